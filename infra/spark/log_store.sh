#!/usr/bin/env bash
# Compiles infra/spark/LazyLocalLogStore.scala into .jars/log-store, with the Scala compiler that pyspark ships: a Java
# runtime is enough. Does nothing when that was done for this source and these jars.
set -euo pipefail
cd "$(dirname "$0")/../.."
source=infra/spark/LazyLocalLogStore.scala
folder=.jars/log-store
spark=$(echo .venv/lib/python3.*/site-packages/pyspark/jars)
compiler=$(echo "$spark"/scala-{compiler,library,reflect}*.jar | tr ' ' :)
known=$(echo .jars/spark/delta-storage-*.jar "$spark"/hadoop-client-api-*.jar "$spark"/scala-library-*.jar | tr ' ' :)
key=$(cat infra/spark/log_store.sh "$source"; echo "$compiler:$known")
jar=lazy-local-log-store.jar
if [ -f "$folder/$jar" ] && [ "$(cat "$folder/key" 2>/dev/null)" = "$key" ]; then exit 0; fi

new=$(mktemp -d .jars/log-store.XXXXXX)
trap 'rm -rf "$new"' EXIT
if ! "${JAVA_HOME:+$JAVA_HOME/bin/}java" -cp "$compiler" scala.tools.nsc.Main -classpath "$known" -deprecation -Werror \
  -d "$new/$jar" "$source" >"$new/log" 2>&1; then
  cat "$new/log" >&2
  echo "error: $source does not compile → see above; the jars are those of pyproject.toml and infra/jars/ivy.xml" >&2
  exit 2
fi
rm "$new/log"
printf '%s' "$key" >"$new/key"
chmod 755 "$new"
rm -rf "$folder" && mv "$new" "$folder"
