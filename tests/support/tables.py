"""Commits to the tables of a lake, as the pipeline makes them, without Spark; and the logs that they are in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from support.streams import Query


def append(lake: str, table: Table, *rows: dict[str, Any], query: str = Query.SILVER, **note: Any) -> int:
    """Append rows as a query's commit; return the version."""
    return commit(lake, table, {"query": query, **note}, *rows)


def append_table(lake: str, table: Table, rows: pa.Table, *, query: str = Query.SILVER, **note: Any) -> int:
    """Append rows as a query's commit; return the version."""
    return _commit(lake, table, {"query": query, **note}, rows)


def commit(lake: str, table: Table, note: object, *rows: dict[str, Any]) -> int:
    """Append rows, or none, with any note; return the version."""
    return _commit(lake, table, note, pa.Table.from_pylist(list(rows), arrow_schema(table)))


def opened(lake: str, table: Table) -> DeltaTable:
    """Open a table at its newest version."""
    return DeltaTable(table_path(lake, table))


def newest(lake: str, table: Table) -> int:
    """Return the newest version of a table."""
    return opened(lake, table).version()


def entry(lake: str, table: Table, version: int) -> Path:
    """Return where a table's log has a version."""
    return Path(table_path(lake, table), "_delta_log", f"{version:020}.json")


def date(lake: str, table: Table, at: int, version: int | None = None) -> None:
    """Have a commit to a table, the newest where none is named, be of a moment, in epoch milliseconds."""
    path = entry(lake, table, newest(lake, table) if version is None else version)
    actions = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] = at
    path.write_text("\n".join(json.dumps(action) for action in actions), encoding="utf-8")


def _commit(lake: str, table: Table, note: object, rows: pa.Table) -> int:
    properties = CommitProperties(custom_metadata={"userMetadata": json.dumps(note)})
    write_deltalake(table_path(lake, table), rows, mode="append", commit_properties=properties)
    return newest(lake, table)
