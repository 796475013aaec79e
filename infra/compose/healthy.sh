#!/usr/bin/env bash
# Whether parts of Airflow are well, as the API server says, which sees their heartbeats in the database; and the driver,
# as it says itself: all streams are ready. One that nobody has started, or that was told to stop, has no say.
#   healthy.sh PART…   of metadatabase, scheduler, triggerer, dag_processor, driver
set -euo pipefail

drivers() { # ADDRESS RUN_DIR of every pipeline
  local file
  if [ -z "${CUSTOMER_ACTIVITY_PIPELINES:-}" ]; then
    echo "${ACTIVITY_METRICS_ADDRESS:-127.0.0.1} ${ACTIVITY_RUN_DIR:-}"
    return
  fi
  for file in "$CUSTOMER_ACTIVITY_PIPELINES"/*.env; do
    (
      unset "${!ACTIVITY_@}"
      set -a
      . "$file"
      echo "${ACTIVITY_METRICS_ADDRESS:-127.0.0.1} ${ACTIVITY_RUN_DIR:-}"
    )
  done
}

driver() { # ADDRESS RUN_DIR: fails with what a driver says of streams that are not ready, or where it does not answer
  local host=$1 port said
  # A driver that is told to stop leaves no number behind; one that died does.
  [ -e "$2/stream.pid" ] && [ -e "$2/metrics.json" ] || return 0
  port=$(sed 's/.*:\([0-9]*\)"\].*/\1/' "$2/metrics.json")
  case $host in # one that listens on all is asked here
    0.0.0.0) host=127.0.0.1 ;;
    ::) host='[::1]' ;;
    *:*) host="[$host]" ;;
  esac
  said=$(curl --silent --show-error --globoff --noproxy '*' --max-time 10 "http://$host:$port/readyz")
  # Another pipeline's driver may have got the port of one that died.
  python3 - "$said" "$(head -n 1 "$2/stream.pid")" <<'END'
import json, sys

said, pid = json.loads(sys.argv[1]), int(sys.argv[2])
of = (said.get("driver") or {}).get("pid")  # none before it has looked for the first time: it is not ready then
if of != pid and (of is not None or said["ready"]):
    sys.exit(f"the driver, process {pid}, does not answer: process {of} does at its address")
lines = [f"{stream}: {why}" for stream, why in said["not_ready"].items()]
sys.exit(None if said["ready"] else "; ".join(lines) or said["message"] or "the driver is not ready")
END
}

parts=()
for part in "$@"; do
  if [ "$part" != driver ]; then
    parts+=("$part")
    continue
  fi
  while read -r address run_dir; do
    driver "$address" "$run_dir"
  done < <(drivers)
done
[ ${#parts[@]} -gt 0 ] || exit 0
health=$(curl --fail --silent --show-error --max-time 10 "${AIRFLOW_URL:-http://airflow-api-server:8080}/api/v2/monitor/health")
python3 - "$health" "${parts[@]}" <<'END'
import json, sys

health = json.loads(sys.argv[1])
ill = {part: (health.get(part) or {}).get("status") for part in sys.argv[2:]}
sys.exit(", ".join(f"{part}: {status}" for part, status in ill.items() if status != "healthy") or None)
END
