"""The Delta tables as they are now, from their logs: rows, size and newest time, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import deltalog

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The column of a table that holds the Kafka timestamp of the input it reflects, where there is one.
TIME_COLUMN = {table: "kafka_timestamp" for table in Table if "kafka_timestamp" in arrow_schema(table).names} | {
    Table.SUMMARIES: "last_kafka_timestamp",
    **{table: "as_of" for table in Table if "as_of" in arrow_schema(table).names},
}


MOST_KEPT_FILES = 2_000  # of a table that stays open: some kB of memory each

Kept = dict[Table, DeltaTable]  # tables that stay open from one look to the next


class Contents(NamedTuple):
    """A Delta table at its latest version."""

    table: Table
    table_id: str  # its id in the log, by which a streaming source names it
    version: int
    rows: int
    files: int
    size_bytes: int
    newest: datetime | None  # the greatest Kafka timestamp it reflects; None without rows, or without such a column


class Position(NamedTuple):
    """Which table a streaming source names by its id, and the table's latest version."""

    table_id: str
    version: int


class Waiting(NamedTuple):
    """A commit that a stream has not read."""

    committed_at: datetime  # by the writer's clock
    input_at: datetime  # the Kafka timestamp of the oldest input in it; of what is no plain append, `committed_at`


def open_table(lake: str, table: Table, kept: Kept | None = None) -> DeltaTable | None:
    """Open a table at its latest version; None when there is none yet.

    Opening replays the table's log. A table that is `kept` from the last look reads only the commits since then; one
    whose update fails is no longer kept.
    """
    found = None if kept is None else kept.pop(table, None)
    if kept is None or found is None:
        try:
            return DeltaTable(table_path(lake, table))
        except TableNotFoundError:
            return None
    found.update_incremental()
    kept[table] = found
    return found


def position(lake: str, table: Table, kept: Kept | None = None) -> Position | None:
    """Return a table's id and latest version; None when there is no such table yet."""
    opened = open_table(lake, table, kept)
    return Position(str(opened.metadata().id), opened.version()) if opened else None


def waiting(lake: str, table: Table, version: int) -> Waiting | None:
    """Return since when a version has been there, as its log entry says; None when the log does not have it.

    The entry's own words: storage stamps files by another clock, and a lake that was copied has new files.
    """
    entry = deltalog.entry(lake, table, version)
    if entry is None:
        return None
    info: Mapping[str, Any] = next((action["commitInfo"] for action in entry.actions if "commitInfo" in action), {})
    if "timestamp" not in info:
        return None
    committed_at = EPOCH + timedelta(milliseconds=int(info["timestamp"]))
    oldest = _oldest_input(entry, TIME_COLUMN.get(table))
    return Waiting(committed_at, committed_at if oldest is None else min(oldest, committed_at))


def _oldest_input(entry: deltalog.Entry, column: str | None) -> datetime | None:
    """Return the least time of what a commit appends; None where files were rewritten: these have old rows, too."""
    added = [action["add"] for action in entry.actions if "add" in action]
    is_append = not any("remove" in action or "cdc" in action for action in entry.actions)
    if column is None or not added or not is_append or not all(add["dataChange"] for add in added):
        return None
    least = [json.loads(add.get("stats") or "{}").get("minValues", {}).get(column) for add in added]
    return None if None in least else min(map(datetime.fromisoformat, least)).astimezone(UTC)


def contents(lake: str, table: Table, kept: Kept | None = None) -> Contents | None:
    """Describe a table's latest version; None when there is no such table yet.

    With `kept` a table of few files stays open for the next look. One of many does not: their statistics would be in
    memory for as long as the driver runs.
    """
    opened = open_table(lake, table, kept)
    if opened is None:
        return None
    files = _files(opened)
    if kept is not None and files.num_rows > MOST_KEPT_FILES:
        kept.pop(table, None)
    elif kept is not None:
        kept[table] = opened
    return Contents(
        table,
        str(opened.metadata().id),
        opened.version(),
        _rows(opened, files),
        files.num_rows,
        pc.sum(files["size_bytes"]).as_py() or 0,
        _newest(opened, files, TIME_COLUMN.get(table)),
    )


def _files(opened: DeltaTable) -> pa.Table:
    """List a table's files with their statistics. `pyarrow.table` would import pandas, which takes a second."""
    return pa.RecordBatchReader.from_stream(opened.get_add_actions(flatten=True)).read_all()


def _rows(opened: DeltaTable, files: pa.Table) -> int:
    """Sum the row counts in the log; a file without statistics makes it read the files' footers instead."""
    if "num_records" in files.column_names and files["num_records"].null_count == 0:
        return pc.sum(files["num_records"]).as_py() or 0
    return int(opened.to_pyarrow_dataset().count_rows()) if files.num_rows else 0


def _newest(opened: DeltaTable, files: pa.Table, column: str | None) -> datetime | None:
    """Take the greatest value from the log's statistics; a file that lacks them makes it read the column instead."""
    if not files.num_rows or column is None:
        return None
    name = f"max.{column}"
    if name in files.column_names and files[name].null_count == 0:
        return _moment(pc.max(files[name]))
    return _moment(pc.max(opened.to_pyarrow_dataset().to_table(columns=[column])[column]))


def _moment(newest: pa.TimestampScalar) -> datetime | None:
    """Turn Arrow's time into Python's; its own way imports pandas."""
    micros: int | None = newest.cast(pa.timestamp("us")).value
    return EPOCH + timedelta(microseconds=micros) if micros is not None else None
