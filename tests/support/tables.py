"""Commits to the tables of a lake, as the pipeline makes them, without Spark."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from support.streams import Query


def append(lake: str, table: Table, *rows: dict[str, Any], query: str = Query.SILVER, **note: Any) -> int:
    """Append rows as a query's commit; return the version."""
    return append_table(lake, table, pa.Table.from_pylist(list(rows), arrow_schema(table)), query=query, **note)


def append_table(lake: str, table: Table, rows: pa.Table, *, query: str = Query.SILVER, **note: Any) -> int:
    """Append rows as a query's commit; return the version."""
    path = table_path(lake, table)
    metadata = {"userMetadata": json.dumps({"query": query, **note})}
    write_deltalake(
        path,
        rows,
        mode="append",
        commit_properties=CommitProperties(custom_metadata=metadata),
    )
    return DeltaTable(path).version()
