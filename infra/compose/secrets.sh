#!/usr/bin/env bash
# Makes the secrets of docker-compose.yml, each at random, in infra/compose/secrets; what is there already stays as it is.
# Each part sees only its own, as files in /run/secrets. Only the folder's owner can enter it on this machine; the files
# themselves are readable, because Compose hands them over as they are and each part runs as a user of its own.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p secrets && chmod 700 secrets
cd secrets
umask 077

random() { head -c 32 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=\n'; } # safe within addresses, JSON and INI files
keep() { # NAME: the secret of this name, from standard input, unless there is one
  if [ -s "$1" ]; then cat >/dev/null; return; fi
  printf '%s' "$(cat)" >"$1.new" # no line end after it: that would be taken for a part of it
  chmod 444 "$1.new"
  mv "$1.new" "$1"
  echo "made infra/compose/secrets/$1"
}

random | keep postgres_password
keep airflow_database <<<"postgresql+psycopg2://airflow:$(cat postgres_password)@postgres:5432/airflow"
echo "$(random)=" | keep airflow_fernet_key # 32 bytes with the padding, as Fernet wants them
random | keep airflow_api_key
random | keep airflow_token_key
random | keep airflow_admin_password
random | keep airflow_watcher_password
keep airflow_connections.json <<END
{
  "customer_activity_airflow": {
    "conn_type": "http", "host": "airflow-api-server", "port": 8080,
    "login": "watcher", "password": "$(cat airflow_watcher_password)"
  }
}
END
random | keep minio_password
keep lake_keys <<END
AWS_ACCESS_KEY_ID=lake
AWS_SECRET_ACCESS_KEY=$(cat minio_password)
END
