#!/usr/bin/env bash
# Makes .jars/classes.jsa and .jars/broker.jsa, archives of the classes that a driver and the embedded broker load (JDK
# class data sharing), by running the whole pipeline once on a few records and a broker of its own. With them both are up
# in half the time.
# Does nothing when they are there for these jars and this Java. Without them everything works, only slower to start: so
# a failure is told and is no error, and a JVM that finds an archive made for other jars leaves it alone.
set -euo pipefail
cd "$(dirname "$0")/../.."
archive=$PWD/.jars/classes.jsa
of_broker=$PWD/.jars/broker.jsa
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
key=$("$java" -XshowSettings:none -version 2>&1; ls -l .venv/lib/python3.*/site-packages/pyspark/jars .jars/home/jars .jars/spark .jars/own .jars/broker)
if [ -f "$archive" ] && [ -f "$of_broker" ] && [ "$(cat "$archive.key" 2>/dev/null)" = "$key" ]; then exit 0; fi
rm -f "$archive" "$archive.key" "$of_broker"

trial=$(mktemp -d "${TMPDIR:-/tmp}/classes.XXXXXX")
port=$(.venv/bin/python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
unset ${!ACTIVITY_@} # a deployment's own brokers and secrets have no part in this
export ACTIVITY_LAKE=$trial/lake ACTIVITY_RUN_DIR=$trial/run ACTIVITY_BROKER_DIR=$trial/kafka \
  ACTIVITY_KAFKA_BOOTSTRAP_SERVERS=localhost:$port
trap '.venv/bin/activity stop >/dev/null 2>&1 || true; rm -rf "$trial"' EXIT
echo "Making the class archives that let driver and broker start in half the time (250 MB, once, about a minute) …"
quiet="-Xlog:cds=off -Xlog:cds+dynamic=off"
record() {
  JDK_JAVA_OPTIONS="-XX:ArchiveClassesAtExit=$of_broker.new $quiet" .venv/bin/activity broker start
  .venv/bin/activity produce --customers 2000 --purchases 1000
  # The pipe is open for as long as the JVM, which writes the archive after the command has ended.
  JDK_JAVA_OPTIONS="-XX:ArchiveClassesAtExit=$archive.new $quiet" .venv/bin/activity stream --available-now | cat
  .venv/bin/activity broker stop
}
if record >"$trial/log" 2>&1 && mv "$archive.new" "$archive" && mv "$of_broker.new" "$of_broker"; then
  printf '%s' "$key" >"$archive.key"
else
  tail -n 15 "$trial/log" >&2
  rm -f "$archive" "$archive.new" "$of_broker.new"
  echo "note: no class archives were made; driver and broker start slower without them. \`make setup\` tries again." >&2
fi
