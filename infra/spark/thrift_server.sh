#!/usr/bin/env bash
# Spark's Thrift server: JDBC and ODBC to Delta tables for BI tools, on this machine alone (docs/ANALYSTS.md). What it
# knows of tables is in memory: whoever connects names them by their folders. It ends with this script.
#   thrift_server.sh [PORT]
set -euo pipefail
port=${1:-10000}
cd "$(dirname "$0")/../.."
# Its own, whatever SPARK_HOME says: the jars are for this one, and another may be built without Hive.
SPARK_HOME=$(.venv/bin/python -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent)')
export SPARK_HOME
work=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null || true; wait || true; rm -rf "$work"' EXIT
trap 'exit 143' INT TERM
jars=$(printf '%s:' .jars/spark/*.jar)
# No port of its own but this one, no folder but a temporary one; the rows of a result come back a few at a time.
SPARK_LOCAL_DIRS=$work "$SPARK_HOME/bin/spark-submit" \
  --class org.apache.spark.sql.hive.thriftserver.HiveThriftServer2 \
  --master "${THRIFT_MASTER:-local[*]}" --driver-memory "${THRIFT_MEMORY:-1g}" --driver-class-path "$jars" \
  --driver-java-options "-Dderby.system.home=$work" \
  --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \
  --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog \
  --conf "spark.hadoop.javax.jdo.option.ConnectionURL=jdbc:derby:memory:metastore;create=true" \
  --conf "spark.sql.warehouse.dir=$work/warehouse" \
  --conf spark.sql.session.timeZone=UTC \
  --conf spark.sql.shuffle.partitions=8 \
  --conf spark.sql.thriftServer.incrementalCollect=true \
  --conf spark.ui.enabled=false --conf spark.driver.host=localhost --conf spark.driver.bindAddress=127.0.0.1 \
  spark-internal --hiveconf hive.server2.thrift.bind.host=localhost --hiveconf "hive.server2.thrift.port=$port" &
server=$!
wait "$server"
