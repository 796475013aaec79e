#!/usr/bin/env bash
# Packs a Python with what executors need besides the code, for `spark.archives` (docs/CLUSTERS.md): the libraries that
# tasks import, in the versions of uv.lock. Its interpreter is a link: the machines need the same one at the same path.
#   environment.sh ARCHIVE.tar.gz
set -euo pipefail
archive=$(realpath "${1:?where to? environment.sh ARCHIVE.tar.gz}")
cd "$(dirname "$0")/../.."
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
infra/uv.sh export --quiet --frozen --no-dev --no-emit-project --no-hashes --output-file "$made/constraints.txt" >/dev/null
infra/uv.sh venv --quiet --relocatable --python "$(realpath .venv/bin/python)" "$made/environment"
infra/uv.sh pip install --quiet --python "$made/environment/bin/python" --constraint "$made/constraints.txt" \
  confluent-kafka msgspec numpy pandas pyarrow pydantic-settings tenacity
tar --create --gzip --file "$archive" --directory "$made/environment" .
