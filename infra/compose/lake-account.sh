#!/usr/bin/env bash
# The driver's own account in the object store, with the rights of lake-policy.json. Run again, it sets both once more.
# The store's image has bash and mc, and hardly anything else.
set -euo pipefail
secrets=${SECRETS:-/run/secrets}
policy=${BASH_SOURCE[0]%/*}/lake-policy.json

value() { # SECRET NAME
  local name value
  while IFS== read -r name value || [ -n "$name" ]; do
    if [ "$name" = "$2" ]; then printf '%s' "$value"; fi
  done <"$secrets/$1"
}
root=$(value minio_keys AWS_ACCESS_KEY_ID):$(value minio_keys AWS_SECRET_ACCESS_KEY)
export MC_HOST_store=${STORE%%://*}://$root@${STORE#*://}
account=$(value lake_keys AWS_ACCESS_KEY_ID)

mc --quiet admin policy create store lake "$policy"
# On standard input, where no list of processes shows it.
printf '%s\n%s\n' "$account" "$(value lake_keys AWS_SECRET_ACCESS_KEY)" | mc --quiet admin user add store
# It has the policy already when this was run before, and mc calls that a failure.
if ! said=$(mc --quiet admin policy attach store lake --user "$account" 2>&1); then
  case $said in
    *"already in effect"*) ;;
    *) echo "$said" >&2; exit 1 ;;
  esac
fi
echo "account $account may use the lake's bucket"
