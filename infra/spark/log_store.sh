#!/usr/bin/env bash
# Compiles infra/spark/LazyLocalLogStore.scala into .jars/log-store, with the Scala compiler that pyspark ships: a Java
# runtime is enough. Does nothing when that was done for this source and these jars.
set -euo pipefail
cd "$(dirname "$0")/../.."
source=infra/spark/LazyLocalLogStore.scala
folder=.jars/log-store
spark=$(echo "$PWD"/.venv/lib/python3.*/site-packages/pyspark/jars)
compiler=$(echo "$spark"/scala-{compiler,library,reflect}*.jar | tr ' ' :)
known=$(echo .jars/spark/delta-storage-*.jar "$spark"/hadoop-client-api-*.jar "$spark"/scala-library-*.jar | tr ' ' :)
key=$(cat infra/spark/log_store.sh "$source"; echo "$compiler:$known")
if [ "$(cat "$folder/key" 2>/dev/null)" = "$key" ]; then exit 0; fi

rm -rf "$folder.new" && mkdir -p "$folder.new"
if ! "${JAVA_HOME:+$JAVA_HOME/bin/}java" -cp "$compiler" scala.tools.nsc.Main -classpath "$known" -deprecation -Werror \
  -d "$folder.new/lazy-local-log-store.jar" "$source" >"$folder.new/log" 2>&1; then
  cat "$folder.new/log" >&2
  echo "error: $source does not compile → see above; the jars are those of pyproject.toml and infra/jars/ivy.xml" >&2
  exit 2
fi
rm "$folder.new/log"
printf '%s' "$key" >"$folder.new/key"
rm -rf "$folder" && mv "$folder.new" "$folder"
