#!/usr/bin/env bash
# Runs uv: the one on the PATH when it is recent enough, otherwise one of the project's own, installed into .uv once.
set -euo pipefail
cd "$(dirname "$0")/.."
at_least="0.9" # understands the lock file's revision and its conflicting groups

is_recent() {
  local version
  version=$("$1" --version 2>/dev/null | cut -d' ' -f2) && [ -n "$version" ] &&
    [ "$(printf '%s\n' "$at_least" "$version" | sort -V | head -n 1)" = "$at_least" ]
}

if is_recent uv; then exec uv "$@"; fi
if ! is_recent .uv/bin/uv; then
  echo "Installing uv into .uv (once) …" >&2
  "$(infra/preflight.sh --python)" -m venv --clear .uv
  .uv/bin/python -m pip install --quiet --disable-pip-version-check "uv>=$at_least"
fi
exec .uv/bin/uv "$@"
