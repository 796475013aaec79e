"""Which of Airflow's runs a command belongs to, as OpenLineage identifies it.

The ids are those that Airflow's own OpenLineage provider gives its runs (`lineage_parent_id`): where it is on, what the
pipeline tells and what Airflow tells are one graph. It need not be installed.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from hashlib import sha1
from typing import Any
from uuid import UUID

PARENT, ROOT = "ACTIVITY_LINEAGE_PARENT", "ACTIVITY_LINEAGE_ROOT"
NAMESPACES = ("AIRFLOW__OPENLINEAGE__NAMESPACE", "OPENLINEAGE_NAMESPACE")
DEFAULT = "default"  # the provider's


def parents(context: Any) -> dict[str, str]:
    """Return the settings that tell a command whose it is; none where that is not known."""
    task, run = context.get("ti"), context.get("dag_run")
    if task is None or run is None:
        return {}
    at = getattr(run, "logical_date", None) or getattr(run, "run_after", None)
    if at is None:
        return {}
    space, dag = namespace(), task.dag_id
    map_index = -1 if getattr(task, "map_index", None) is None else task.map_index
    of_task = run_id(at, f"{space}.{dag}.{task.task_id}.{task.try_number}.{map_index}")
    of_dag = run_id(at, f"{space}.{dag}.{getattr(run, 'clear_number', 0) or 0}")
    return {PARENT: f"{space}/{dag}.{task.task_id}/{of_task}", ROOT: f"{space}/{dag}/{of_dag}"}


def namespace() -> str:
    """Return the namespace of Airflow's jobs."""
    return next((os.environ[name] for name in NAMESPACES if os.environ.get(name)), DEFAULT)


def run_id(at: datetime, what: str) -> UUID:
    """Return the id that OpenLineage's client makes of a time and some words: a UUID of version 7 whose rest is a hash.

    DAGs have not that client; a test compares the two.
    """
    instant = at.astimezone(UTC)
    millis = int(instant.timestamp() * 1000) & 0xFFFF_FFFF_FFFF
    digest = sha1(instant.isoformat().encode() + what.encode(), usedforsecurity=False).digest()
    rest = int.from_bytes(digest) >> 84  # 76 bits of it
    number = millis << 80 | rest
    number = number & ~(0xF << 76) | 7 << 76  # version
    return UUID(int=number & ~(0x3 << 62) | 0x2 << 62)  # variant
