#!/usr/bin/env bash
# Makes .jars/home, a Spark home with links to those of pyspark's jars that a driver on one machine needs. Spark looks
# for its extensions in every jar on the class path, opens them all, and builds the functions of its machine learning
# library at each start: without what is left out here a session is up a second sooner. Other masters use all of Spark.
set -euo pipefail
cd "$(dirname "$0")/../.."
spark=$(echo "$PWD"/.venv/lib/python3.*/site-packages/pyspark)
home=.jars/home
left_out=(
  'kubernetes-*' 'spark-kubernetes*' 'zjsonpatch*' 'vertx-*' 'spark-yarn*' # other masters
  'spark-mllib*' 'spark-graphx*' 'breeze*' 'spire*' 'algebra*' 'cats-kernel*' 'arpack*' 'blas-*' 'lapack-*'
  'JTransforms*' 'JLargeArrays*' # machine learning, graphs and their mathematics
  'spark-hive*' 'hive-[!s]*' 'hive-s[!t]*' 'datanucleus-*' 'derby*' 'jdo-api*' 'javax.jdo*' 'jta*' 'jpam*'
  'libfb303*' 'libthrift*' 'HikariCP*' 'transaction-api*' # Hive and its metastore; ORC's reader needs hive-storage-api
  'spark-repl*' 'scala-compiler*' 'jline-*' 'spark-connect*' # shells and Spark Connect
  'lz4-java-1.8.0*' # reads past its buffers (CVE-2025-12183, CVE-2025-66566): .jars/spark has the same classes, mended
)
key=$(cat infra/spark/home.sh; ls -l "$spark"/jars; echo "$spark")
if [ "$(cat "$home/key" 2>/dev/null)" = "$key" ]; then exit 0; fi

rm -rf "$home.new" && mkdir -p "$home.new/jars"
ln -s "$spark/bin" "$home.new/bin"
ln -s "$spark"/jars/*.jar "$home.new/jars/"
for family in "${left_out[@]}"; do
  # The pattern is expanded here: one that matches nothing is out of date, and rm says so.
  (cd "$home.new/jars" && rm -- $family)
done
printf '%s' "$key" >"$home.new/key"
rm -rf "$home" && mv "$home.new" "$home"
