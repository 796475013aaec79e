#!/usr/bin/env bash
# Runs Airflow's scheduler and triggerer in one container, the driver's: the one starts it and the other watches it, so
# both need its process table and its folder. A part that ends is started again, and the driver, which leads a session of
# its own, goes on meanwhile. Told to stop, it stops both and then the driver, which may finish a batch.
set -uo pipefail
pause=${PAUSE_SECONDS:-5}
driver_seconds=${DRIVER_SECONDS:-45}

keep() { # COMMAND…: run it, and again whenever it ends, until told to stop
  local child=
  # Workers of a scheduler that was killed wait for work for ever: what a part leaves of its session ends with it.
  trap 'kill -TERM "$child" 2>/dev/null; wait "$child"; kill -KILL -- "-$child" 2>/dev/null; exit 0' TERM
  while true; do
    setsid "$@" &
    child=$!
    wait "$child"
    echo "\`$*\` ended with exit code $?; it is started again in $pause s" >&2
    kill -KILL -- "-$child" 2>/dev/null
    sleep "$pause" &
    child=$!
    wait "$child"
  done
}

stop_drivers() { # of every pipeline, at once: together they have no more time than one
  local file
  if [ -z "${CUSTOMER_ACTIVITY_PIPELINES:-}" ]; then
    activity driver stop --seconds "$driver_seconds"
    return
  fi
  unset "${!ACTIVITY_@}" # each has its settings in a file
  for file in "$CUSTOMER_ACTIVITY_PIPELINES"/*.env; do
    (set -a; . "$file"; activity driver stop --seconds "$driver_seconds") &
  done
  wait
}

stop() {
  trap - TERM INT
  kill -TERM "${parts[@]}" 2>/dev/null
  wait "${parts[@]}"
  stop_drivers
  exit 0
}

parts=()
trap stop TERM INT
for part in scheduler triggerer; do
  keep airflow "$part" &
  parts+=($!)
done
wait
