#!/usr/bin/env bash
# Before Airflow starts: its database as this version wants it, and its two users. `admin`, for people, gets its first
# password from its secret, and may change it. `watcher`, with which the stream's trigger asks whether its DAG is paused,
# may only look, and always has the password of its secret.
set -euo pipefail
secrets=${SECRETS:-/run/secrets}

# On standard input, where no list of processes shows it; in a session of its own, where no terminal is asked instead.
with_password() { # SECRET COMMAND…
  local password
  password=$(cat "$secrets/$1")
  printf '%s\n%s\n' "$password" "$password" | setsid --wait "${@:2}"
}

airflow db migrate
with_password airflow_admin_password airflow users create \
  --username admin --role Admin --firstname Admin --lastname Admin --email admin@localhost
with_password airflow_watcher_password airflow users create \
  --username watcher --role Viewer --firstname Watcher --lastname Watcher --email watcher@localhost
with_password airflow_watcher_password airflow users reset-password --username watcher
