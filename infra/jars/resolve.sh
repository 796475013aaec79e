#!/usr/bin/env bash
# Fetches the jars of infra/jars/ivy.xml into .jars/spark, .jars/s3 and .jars/broker, once, and checks each against
# SHA256SUMS.
# Does nothing when they are there already. Ivy comes with pyspark, so nothing has to be installed for it.
# `resolve.sh --pin` writes SHA256SUMS anew, after a version in ivy.xml was changed on purpose.
set -euo pipefail
cd "$(dirname "$0")/../.."
pins=$PWD/infra/jars/SHA256SUMS
jars=$PWD/.jars
fetched=$jars/.fetched

checksum() { if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }
listed() { sed 's/^[0-9a-f]*  //' "$pins" | LC_ALL=C sort; }
present() { (cd "$1" && LC_ALL=C ls -1 {spark,s3,broker}/*.jar | LC_ALL=C sort) 2>/dev/null; }
# Exactly the jars listed and no other, each with the content pinned.
verified() { [ "$(listed)" = "$(present "$1")" ] && (cd "$1" && checksum -c "$pins" >/dev/null 2>&1); }
fail() { echo "error: $1" >&2; exit 2; }

if [ "${1:-}" != --pin ] && verified "$jars"; then exit 0; fi

ivy=$(echo .venv/lib/python3.*/site-packages/pyspark/jars)
[ -d "$ivy" ] || fail "there is no pyspark in .venv → run \`make setup\`, which installs it first"
rm -rf "$fetched" && mkdir -p "$jars"
echo "Fetching the jars that infra/jars/ivy.xml lists (75 MB, once) …"
# What was fetched before an interruption stays in .jars/.ivy and is not fetched again.
if ! "${JAVA_HOME:+$JAVA_HOME/bin/}java" -cp "$ivy/*" org.apache.ivy.Main -warn -settings infra/jars/ivysettings.xml -ivy infra/jars/ivy.xml \
  -cache "$jars/.ivy" -types jar bundle -retrieve "$fetched/[conf]/[artifact]-[revision].[ext]" >"$jars/resolve.log" 2>&1; then
  grep -E 'not found|download failed|ERROR' "$jars/resolve.log" | head -n 15 >&2 || true
  fail "some jars could not be fetched → check the network and run \`make setup\` again; the whole story: .jars/resolve.log"
fi
if [ "${1:-}" = --pin ]; then (cd "$fetched" && checksum {spark,s3,broker}/*.jar) >"$pins"; fi
if ! verified "$fetched"; then
  (cd "$fetched" && checksum -c "$pins" 2>&1 | grep -v ': OK$' >&2) || true
  rm -rf "$jars/.ivy" "$fetched"
  fail "what was fetched is not what infra/jars/SHA256SUMS lists, so it is not used → run \`make setup\` again; \
if it stays so, somebody changed ivy.xml without --pin, or the jars"
fi
# Only now do they replace what was there, so that a failure above leaves a working set alone.
for folder in spark s3 broker; do
  rm -rf "${jars:?}/$folder"
  mv "$fetched/$folder" "$jars/"
done
rm -rf "$fetched" "$jars/.ivy" "$jars/resolve.log"
