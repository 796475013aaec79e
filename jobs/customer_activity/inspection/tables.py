"""The Delta tables as they are now, from their logs: rows, size and newest time, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyarrow.fs import FileType

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.storage.filesystem import filesystem

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The column of a table that holds the Kafka timestamp of the input it reflects, where there is one.
TIME_COLUMN = {table: "kafka_timestamp" for table in Table if "kafka_timestamp" in arrow_schema(table).names} | {
    Table.SUMMARIES: "last_kafka_timestamp",
    **{table: "as_of" for table in Table if "as_of" in arrow_schema(table).names},
}


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


def open_table(lake: str, table: Table) -> DeltaTable | None:
    """Open a table; None when there is none yet."""
    try:
        return DeltaTable(table_path(lake, table))
    except TableNotFoundError:
        return None


def position(lake: str, table: Table) -> Position | None:
    """Return a table's id and latest version; None when there is no such table yet."""
    opened = open_table(lake, table)
    return Position(str(opened.metadata().id), opened.version()) if opened else None


def committed_at(lake: str, table: Table, version: int) -> datetime | None:
    """Return when a version was committed, as its log entry's file tells; None when the log has no such entry."""
    files, folder = filesystem(table_path(lake, table))
    entry = files.get_file_info(f"{folder}/_delta_log/{version:020}.json")
    return None if entry.type == FileType.NotFound else datetime.fromtimestamp(entry.mtime_ns / 1e9, UTC)


def newest_at(lake: str, table: Table, versions: dict[str, int]) -> datetime | None:
    """Return the greatest Kafka timestamp that a table reflected at the version given for its id."""
    opened = open_table(lake, table)
    if opened is None or (version := versions.get(str(opened.metadata().id), -1)) < 0:
        return None
    opened.load_as_version(version)
    return _newest(opened, _files(opened), TIME_COLUMN.get(table))


def contents(lake: str, table: Table) -> Contents | None:
    """Describe a table's latest version; None when there is no such table yet."""
    opened = open_table(lake, table)
    if opened is None:
        return None
    files = _files(opened)
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
