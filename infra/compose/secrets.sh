#!/usr/bin/env bash
# Makes the secrets of docker-compose.yml, each at random, in infra/compose/secrets; what is there already stays as it is.
# Each part sees only its own, as files in /run/secrets. Only the folder's owner can enter it on this machine; the files
# themselves are readable, because Compose hands them over as they are and each part runs as a user of its own.
set -euo pipefail
cd "$(dirname "$0")"
# As Compose has it: from the environment, or from the file .env beside docker-compose.yml.
pipeline=${ACTIVITY_PIPELINE:-$(sed --quiet 's/^ACTIVITY_PIPELINE=//p' ../../.env 2>/dev/null || true)}
pipeline=${pipeline:-customer-activity}
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
  "${pipeline//-/_}_airflow": {
    "conn_type": "http", "host": "airflow-api-server", "port": 8080,
    "login": "watcher", "password": "$(cat airflow_watcher_password)"
  }
}
END
random | keep grafana_admin_password
# Where alerts and warnings go: webhooks of a chat service. Until somebody writes one there they are in Grafana alone.
keep alerts_webhook <<<"http://alerts.invalid/"
keep warnings_webhook <<<"http://warnings.invalid/"
random | keep minio_password
keep minio_keys <<END
AWS_ACCESS_KEY_ID=store
AWS_SECRET_ACCESS_KEY=$(cat minio_password)
END
# The lake's account was the store's root once: where it still has its password, it gets one of its own.
if [ -s lake_keys ] && grep --quiet --fixed-strings --file=minio_password lake_keys; then rm --force lake_keys; fi
keep lake_keys <<END
AWS_ACCESS_KEY_ID=lake
AWS_SECRET_ACCESS_KEY=$(random)
END

random | keep mask_key # names and addresses are hashed with it: another one means other hashes

sign_in() { # USER: a file for ACTIVITY_KAFKA_CONFIG and for --command-config of Kafka's own tools
  cat <<END
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="$1" password="$(random)";
END
}
word_in() { sed --quiet 's/.* password="\(.*\)";/\1/p' "$1"; }
sign_in admin | keep kafka_admin
sign_in activity | keep kafka_client
sign_in producers | keep kafka_producers
sign_in portal | keep kafka_portal
# It is made of the others: where one of them is new, it is made again.
if [ -s kafka_users ] && ! grep --quiet user_portal= kafka_users; then rm --force kafka_users; fi
keep kafka_users <<END
KafkaServer {
  org.apache.kafka.common.security.plain.PlainLoginModule required
  username="admin" password="$(word_in kafka_admin)"
  user_admin="$(word_in kafka_admin)"
  user_activity="$(word_in kafka_client)"
  user_producers="$(word_in kafka_producers)"
  user_portal="$(word_in kafka_portal)";
};
END
random | keep portal_metrics
keep portal_tokens <<END
# Who may see what on the portal: docs/PORTAL.md.
viewer $(random)
personal-data $(random)
metrics $(cat portal_metrics)
END
keep spark_defaults <<END
spark.authenticate true
spark.authenticate.secret $(random)
spark.network.crypto.enabled true
spark.network.crypto.saslFallback false
spark.acls.enable true
spark.master.rest.enabled false
spark.ui.killEnabled false
END
