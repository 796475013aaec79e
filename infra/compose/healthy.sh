#!/usr/bin/env bash
# Whether parts of Airflow are well, as the API server says, which sees their heartbeats in the database; and the driver,
# as it says itself: all streams are ready. One that nobody has started, or that was told to stop, has no say.
#   healthy.sh PART…   of metadatabase, scheduler, triggerer, dag_processor, driver
set -euo pipefail

run_dirs() { # of every pipeline
  local file
  if [ -z "${CUSTOMER_ACTIVITY_PIPELINES:-}" ]; then
    echo "${ACTIVITY_RUN_DIR:-}"
    return
  fi
  for file in "$CUSTOMER_ACTIVITY_PIPELINES"/*.env; do
    (unset "${!ACTIVITY_@}"; set -a; . "$file"; echo "${ACTIVITY_RUN_DIR:-}")
  done
}

driver() { # RUN_DIR: fails with what a driver says of streams that are not ready, or where it does not answer
  local port said
  # A driver that is told to stop leaves no number behind; one that died does.
  [ -e "$1/stream.pid" ] && [ -e "$1/metrics.json" ] || return 0
  port=$(sed 's/.*:\([0-9]*\)"\].*/\1/' "$1/metrics.json")
  said=$(curl --silent --show-error --max-time 10 "http://127.0.0.1:$port/readyz")
  python3 - "$said" <<'END'
import json, sys

said = json.loads(sys.argv[1])
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
  while read -r run_dir; do
    driver "$run_dir"
  done < <(run_dirs)
done
[ ${#parts[@]} -gt 0 ] || exit 0
health=$(curl --fail --silent --show-error --max-time 10 "${AIRFLOW_URL:-http://airflow-api-server:8080}/api/v2/monitor/health")
python3 - "$health" "${parts[@]}" <<'END'
import json, sys

health = json.loads(sys.argv[1])
ill = {part: (health.get(part) or {}).get("status") for part in sys.argv[2:]}
sys.exit(", ".join(f"{part}: {status}" for part, status in ill.items() if status != "healthy") or None)
END
