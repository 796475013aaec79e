"""Read a small batch's change feeds from the files that its commits added: no plan, no job, a few milliseconds.

Spark plans which versions a batch has, and notes them in the checkpoint. The tables of the path are only appended to,
so the change feed of some versions is what their commits added: the files that `_delta_log/<version>.json` names. A
compaction's files are none of them (`dataChange` is false).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from customer_activity import microbatch
from customer_activity.catalog import Table, table_path
from customer_activity.datafiles import arrow_schema
from customer_activity.storage import filesystem

SMALL_BATCH_FILES = 64
VERSION = pa.field("_commit_version", pa.int64())
SIDE = pa.field("side", pa.string())


class Added(NamedTuple):
    """A file that a commit added to a table."""

    version: int
    path: str
    size: int


def appended(
    lake: str, columns: Mapping[Table, Sequence[str]], versions: Mapping[Table, tuple[int, int]]
) -> pa.Table | None:
    """Return what was appended to some tables in a batch's versions, as one table.

    Args:
        lake: where the tables are.
        columns: what to read of each; one that a table lacks is null in its rows.
        versions: by table, the version that was read last and the newest of the batch; empty when they are not known.

    Returns:
        `side` (the table's label), the columns of all, `_commit_version`; None when the versions are not known, it is
        too much for this process, a commit did more than append, or its entry or a file of it is gone.
    """
    if not versions:
        return None
    found: dict[Table, list[Added]] = {}
    for table in columns:
        added = _added(lake, table, *versions[table])
        if added is None:
            return None
        found[table] = added
    every = [file for added in found.values() for file in added]
    if len(every) > SMALL_BATCH_FILES or sum(file.size for file in every) > microbatch.SMALL_BATCH_BYTES:
        return None
    try:
        parts = [part for table, added in found.items() for part in _rows(lake, table, columns[table], added)]
    except FileNotFoundError:
        return None  # Spark, asked instead, says which of its change feed is lost
    return pa.concat_tables(parts, promote_options="default")


def _added(lake: str, table: Table, after: int, upto: int) -> list[Added] | None:
    """List the files that commits added; None when that cannot be said or is not all they did."""
    files, folder = filesystem(table_path(lake, table))
    added: list[Added] = []
    for version in range(after + 1, upto + 1):
        if len(added) > SMALL_BATCH_FILES:
            return None
        actions = _actions(files, f"{folder}/_delta_log/{version:020}.json")
        if actions is None:
            return None
        for action in actions:
            if "cdc" in action or action.get("remove", {}).get("dataChange"):
                return None
            if action.get("add", {}).get("dataChange"):
                added.append(Added(version, unquote(action["add"]["path"]), action["add"]["size"]))
    return added


def _actions(files: fs.FileSystem, path: str) -> list[dict[str, Any]] | None:
    try:
        with files.open_input_stream(path) as stream:
            return [json.loads(line) for line in stream.read().splitlines()]
    except FileNotFoundError:
        return None


def _rows(lake: str, table: Table, columns: Sequence[str], added: Sequence[Added]) -> Iterator[pa.Table]:
    """Yield the rows of each file; an empty table first, which has the types."""
    files, folder = filesystem(table_path(lake, table))
    schema = pa.schema([arrow_schema(table).field(name) for name in columns])
    yield _labelled(schema.empty_table(), table, 0)
    for file in added:
        rows = pq.read_table(f"{folder}/{file.path}", schema=schema, filesystem=files)
        yield _labelled(rows, table, file.version)


def _labelled(rows: pa.Table, table: Table, version: int) -> pa.Table:
    rows = rows.append_column(SIDE, pa.repeat(pa.scalar(table.label), rows.num_rows))
    return rows.append_column(VERSION, pa.repeat(pa.scalar(version, pa.int64()), rows.num_rows))
