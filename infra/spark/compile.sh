#!/usr/bin/env bash
# Compiles the Scala sources of infra/spark into .jars/own, with the Scala compiler that pyspark ships: a Java
# runtime is enough. Does nothing when that was done for these sources and these jars.
set -euo pipefail
cd "$(dirname "$0")/../.."
sources=(infra/spark/*.scala)
folder=.jars/own
spark=$(echo .venv/lib/python3.*/site-packages/pyspark/jars)
compiler=$(echo "$spark"/scala-{compiler,library,reflect}*.jar | tr ' ' :)
known=$(echo .jars/spark/delta-storage-*.jar "$spark"/{hadoop-client-api,scala-library,spark-{core,catalyst,common-utils,sql-api,sql,tags,unsafe},jackson-{core,databind,annotations},slf4j-api}[_-]*.jar | tr ' ' :)
key=$(cat infra/spark/compile.sh "${sources[@]}"; echo "$compiler:$known")
jar=customer-activity.jar
if [ -f "$folder/$jar" ] && [ "$(cat "$folder/key" 2>/dev/null)" = "$key" ]; then exit 0; fi

new=$(mktemp -d .jars/own.XXXXXX)
trap 'rm -rf "$new"' EXIT
if ! "${JAVA_HOME:+$JAVA_HOME/bin/}java" -cp "$compiler" scala.tools.nsc.Main -classpath "$known" -deprecation -Werror \
  -d "$new/$jar" "${sources[@]}" >"$new/log" 2>&1; then
  cat "$new/log" >&2
  echo "error: $(printf "%s " "${sources[@]}")does not compile → see above; the jars are those of pyproject.toml and infra/jars/ivy.xml" >&2
  exit 2
fi
rm "$new/log"
printf '%s' "$key" >"$new/key"
chmod 755 "$new"
rm -rf "$folder" && mv "$new" "$folder"
