#!/usr/bin/env bash
# Whether parts of Airflow are well, as the API server says: it sees their heartbeats in the database.
#   healthy.sh PART…   of metadatabase, scheduler, triggerer, dag_processor
set -euo pipefail
health=$(curl --fail --silent --show-error --max-time 10 "${AIRFLOW_URL:-http://airflow-api-server:8080}/api/v2/monitor/health")
python3 - "$health" "$@" <<'END'
import json, sys

health = json.loads(sys.argv[1])
ill = {part: (health.get(part) or {}).get("status") for part in sys.argv[2:]}
sys.exit(", ".join(f"{part}: {status}" for part, status in ill.items() if status != "healthy") or None)
END
