"""Read Delta tables without Spark: rows as tuples, amounts in cents, times in milliseconds; and commits' metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyarrow import fs

from customer_activity.catalog import Table, history_path, table_path
from customer_activity.errors import TerminalError
from customer_activity.settings import Settings
from customer_activity.storage import filesystem
from customer_activity.verification.comparison import Commits
from customer_activity.verification.oracle import Headers, RawRecord

BATCH_ROWS = 65_536
RAW_COLUMNS = ("topic", "partition", "offset", "kafka_timestamp", "key", "value", "headers")

Tables = Mapping[Table, DeltaTable]


class Landed(NamedTuple):
    """A row of bronze: the topic it names, the raw record, and the other columns that were asked for."""

    topic: str
    raw: RawRecord
    columns: tuple[Any, ...]


def open_tables(settings: Settings) -> dict[Table, DeltaTable]:
    """Open every table at its newest version; the object keeps that version.

    Raises:
        TerminalError: a table is not there.
    """
    tables, missing = {}, []
    for table in Table:
        try:
            tables[table] = DeltaTable(table_path(settings.lake, table))
        except TableNotFoundError:
            missing.append(table.label)
    if missing and len(missing) == len(Table):
        raise TerminalError(f"no lake at {settings.lake}", remedy="run `activity stream`, or correct ACTIVITY_LAKE")
    if missing:
        what = f"{settings.lake}: no table {', '.join(missing)}"
        raise TerminalError(what, remedy="run `activity stream`: it creates every table")
    return tables


def rows(
    table: DeltaTable, columns: Sequence[str], customers: frozenset[str] | None = None
) -> Iterator[tuple[Any, ...]]:
    """Yield a table's rows with the columns in the order given, of certain customers where they are given."""
    batches = table.to_pyarrow_dataset().to_batches(
        columns=list(columns),
        filter=None if customers is None else pc.field("customer_id").isin(pa.array(customers, pa.string())),
        batch_size=BATCH_ROWS,
        batch_readahead=1,
        fragment_readahead=1,
    )
    for batch in batches:
        yield from zip(*(_values(column) for column in batch.columns), strict=True)


def newest(
    table: DeltaTable, columns: Sequence[str], order: str, ends: str, customers: frozenset[str] | None = None
) -> Iterator[tuple[Any, ...]]:
    """Yield the newest row of each key (the first column) of a table of changes, but of those that have ended.

    Args:
        table: one row a change.
        columns: in the order wanted.
        order: column that grows with a key's changes.
        ends: column that is true where the change ended the row.
        customers: these only, where they are given.
    """
    found: dict[Any, tuple[Any, ...]] = {}
    for row in rows(table, (*columns, order, ends), customers):
        if row[0] not in found or found[row[0]][-2] < row[-2]:
            found[row[0]] = row
    return (row[:-2] for row in found.values() if not row[-1])


def landed(table: DeltaTable, columns: Sequence[str]) -> Iterator[Landed]:
    """Yield a bronze table's rows, raw and with certain columns."""
    for topic, partition, offset, timestamp, key, value, headers, *rest in rows(table, (*RAW_COLUMNS, *columns)):
        yield Landed(topic, RawRecord(partition, offset, timestamp, key, value, headers), tuple(rest))


def commits(lake: str, name: Table, table: DeltaTable) -> Commits:
    """Return what the commits of a table carry, as far back as its log and its history go without a gap."""
    # The log first: what leaves it meanwhile is in the history by then.
    said = {commit["version"]: commit for commit in (*_log(lake, name, table.version()), *_history(lake, name))}
    first = table.version() + 1
    while first - 1 in said:
        first -= 1
    metadata = []
    for commit in said.values():
        try:
            parsed = json.loads(commit.get("userMetadata") or "null")
        except ValueError:  # somebody else's note
            continue
        if isinstance(parsed, dict):
            metadata.append(parsed)
    return Commits(first, metadata)


def _log(lake: str, name: Table, newest: int) -> Iterator[dict[str, Any]]:
    """Yield what the commits say that a log has, from a version back. `DeltaTable.history` miscounts beside writers."""
    files, folder = filesystem(table_path(lake, name))
    for version in range(newest, -1, -1):
        entry = f"{folder}/_delta_log/{version:020}.json"
        if files.get_file_info(entry).type == fs.FileType.NotFound:
            return
        with files.open_input_stream(entry) as stream:
            for action in map(json.loads, stream.read().splitlines()):
                if "commitInfo" in action:
                    yield action["commitInfo"] | {"version": version}


def _history(lake: str, name: Table) -> Iterator[dict[str, Any]]:
    files, folder = filesystem(history_path(lake, name))
    for entry in files.get_file_info(fs.FileSelector(folder, allow_not_found=True)):
        with files.open_input_stream(entry.path) as stream:
            yield from map(json.loads, stream.read().splitlines())


def _values(column: Any) -> list[Any]:
    """Return an Arrow column as Python values: decimals as cents, timestamps as milliseconds, headers as tuples."""
    if pa.types.is_decimal(column.type):
        cents = pc.multiply(column, pa.scalar(100, pa.decimal128(3, 0)))
        return list(pc.cast(cents, pa.int64()).to_pylist())
    if pa.types.is_timestamp(column.type):
        return _millis(pc.cast(pc.cast(column, pa.timestamp("us", "UTC")), pa.int64()))
    if pa.types.is_nested(column.type):
        if column.null_count == len(column):
            return [()] * len(column)
        return [_headers(value) for value in column.to_pylist()]
    return list(column.to_pylist())


def _millis(micros: Any) -> list[Any]:
    """Return microseconds as milliseconds; what is finer stays a fraction: rounded away it would compare equal."""
    millis = pc.divide(micros, 1000)
    if pc.all(pc.equal(pc.multiply(millis, 1000), micros), min_count=0).as_py():
        return list(millis.to_pylist())
    values = micros.to_pylist()
    return [value if value is None else value / 1000 if value % 1000 else value // 1000 for value in values]


def _headers(value: list[dict[str, Any]] | None) -> Headers:
    return tuple((header["key"], header["value"]) for header in value or ())
