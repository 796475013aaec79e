#!/usr/bin/env bash
# Checks what set-up itself cannot install; one line for each thing that is missing, and what to do about it.
# `preflight.sh --python` prints the Python that fits instead.
set -uo pipefail
cd "$(dirname "$0")/.."
disk_mb=4096 # both environments and the jars take 2.4 GB; tables, Kafka's log and checkpoints of the real data the rest
missing=0
need() { echo "error: $1" >&2; missing=1; }

# pyproject.toml: >=3.11,<3.14
fits='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))'
python=""
for candidate in python3.11 python3.12 python3.13 python3 python; do
  if "$candidate" -c "$fits" 2>/dev/null; then python=$candidate; break; fi
done
if [ "${1:-}" = --python ]; then echo "${python:-python3}"; exit; fi

if [ -z "$python" ]; then
  need "no Python 3.11, 3.12 or 3.13 on the PATH → install one (Debian: apt install python3 python3-venv)"
elif ! command -v uv >/dev/null && [ ! -x .uv/bin/uv ] && ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  need "$python cannot make virtual environments → install its venv module (Debian: apt install python3-venv), or uv"
fi

# As Spark does: the Java of JAVA_HOME when that is set, otherwise the one on the PATH.
program=${JAVA_HOME:+$JAVA_HOME/bin/}java
java=$("$program" -version 2>&1 | sed -n 's/.*version "\([^"]*\)".*/\1/p' | head -n 1)
if [ -z "$java" ]; then
  need "no Java: $program does not run → install a Java 17 runtime (Debian: apt install openjdk-17-jre-headless)"
elif [ "${java%%[!0-9]*}" -lt 17 ]; then
  need "$program is Java $java, Spark 4 needs 17 → install Java 17 and put it first on the PATH, or set JAVA_HOME"
fi

command -v git >/dev/null || need "no git on the PATH → install git"

# What set-up has installed already needs no room any more.
[ -d .venv-airflow ] && disk_mb=1024
free_mb=$(df -Pm . | awk 'NR == 2 { print $4 }')
[ "$free_mb" -ge "$disk_mb" ] || need "$free_mb MB free in $PWD, $disk_mb MB are needed → free some disk"

[ "$missing" -eq 0 ] || exit 2
