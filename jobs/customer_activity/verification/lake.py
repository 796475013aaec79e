"""Read Delta tables without Spark: rows as tuples, amounts in cents, times in milliseconds; and commits' metadata."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyarrow import fs

from customer_activity.catalog import Reason, Table, history_path, table_path
from customer_activity.errors import TerminalError
from customer_activity.settings import Settings
from customer_activity.storage.filesystem import filesystem
from customer_activity.verification.comparison import Commits
from customer_activity.verification.order import COLUMNS, NOT_BRONZE
from customer_activity.verification.records import Headers, RawRecord

BATCH_ROWS = 65_536
RAW_COLUMNS = ("topic", "partition", "offset", "kafka_timestamp", "key", "value", "headers")
LANDING = "landing"
ADDED = (LANDING, "risk_score")  # whole numbers that releases have added: null in a lake of before
# What is looked at of a commit's note.
OF_LANDINGS = (LANDING, "first_landing", "landed_at", "rules", "replayed_to")
NOTED = ("query", "generation", "batch_id", "upto", "counts", "counted", "definition", *OF_LANDINGS)
LANDED_AT = {
    Table.PURCHASE_EVENTS: "ingested_at",
    Table.PROFILE_EVENTS: "ingested_at",
    Table.PAYMENT_EVENTS: "ingested_at",
    Table.QUARANTINE: "quarantined_at",
}

PLACES = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "landing": pa.int64(),
        "landed_at": pa.int64(),
    }
)

Tables = Mapping[Table, DeltaTable]


class Landed(NamedTuple):
    """A row of bronze: the topic it names, the raw record, when it landed, and the columns that were asked for."""

    topic: str
    raw: RawRecord
    landing: int | None
    landed_at: int | None
    columns: tuple[Any, ...]


class Tombstone(NamedTuple):
    """A record without a value that bronze or quarantine has."""

    partition: int
    offset: int
    key: bytes | None


def open_tables(settings: Settings, wanted: Sequence[Table]) -> dict[Table, DeltaTable]:
    """Open tables at their newest versions; an object keeps its version.

    Raises:
        TerminalError: a table is not there.
    """
    tables, missing = {}, []
    for table in wanted:
        try:
            tables[table] = DeltaTable(table_path(settings.lake, table))
        except TableNotFoundError:
            missing.append(table.label)
    if missing and len(missing) == len(wanted):
        raise TerminalError(f"no lake at {settings.lake}", remedy="run `activity stream`, or correct ACTIVITY_LAKE")
    if missing:
        what = f"{settings.lake}: no table {', '.join(missing)}"
        raise TerminalError(what, remedy="run `activity stream`: it creates every table")
    return tables


def versions(tables: Tables) -> tuple[int, ...]:
    """Return the versions at which tables are open."""
    return tuple(table.version() for table in tables.values())


def rows(
    table: DeltaTable, columns: Sequence[str], customers: frozenset[str] | None = None
) -> Iterator[tuple[Any, ...]]:
    """Yield a table's rows with the columns in the order given, of certain customers where they are given.

    Then `customer_id` is among the columns.
    """
    dataset = table.to_pyarrow_dataset()
    batches = dataset.to_batches(
        columns=_selected(dataset.schema, columns),
        batch_size=BATCH_ROWS,
        batch_readahead=1,
        fragment_readahead=1,
    )
    for batch in batches:
        found = batch if customers is None else batch.filter(_is(batch, "customer_id", customers))
        yield from zip(*(_values(column) for column in found.columns), strict=True)


def newest(
    table: DeltaTable,
    columns: Sequence[str],
    order: Sequence[str],
    ends: str,
    customers: frozenset[str] | None = None,
) -> Iterator[tuple[Any, ...]]:
    """Yield the newest row of each key (the first column) of a table of changes, but of those that have ended.

    `order` are columns that grow with a key's changes, nulls before all others; `ends` is true where a change ended the
    row. Only rows of certain customers where they are given.
    """
    read = list(dict.fromkeys((*columns, *order, ends)))
    numbers = [read.index(column) for column in order]
    end, width = read.index(ends), len(columns)
    found: dict[Any, tuple[Any, ...]] = {}
    positions: dict[Any, list[int]] = {}
    for row in rows(table, read, customers):
        position = [-1 if row[number] is None else row[number] for number in numbers]
        if row[0] not in found or positions[row[0]] < position:
            found[row[0]], positions[row[0]] = row, position
    return (row[:width] for row in found.values() if not row[end])


def landed(tables: Tables, name: Table, columns: Sequence[str]) -> Iterator[Landed]:
    """Yield a bronze table's rows, raw and with certain columns."""
    wanted = (*RAW_COLUMNS, LANDING, LANDED_AT[name], *columns)
    for topic, partition, offset, timestamp, key, value, headers, landing, at, *rest in rows(tables[name], wanted):
        raw = RawRecord(partition, offset, timestamp, key, value, headers)
        yield Landed(topic, raw, landing, at, tuple(rest))


def tombstones(table: DeltaTable, topic: str) -> Iterator[Tombstone]:
    """Yield the coordinates and keys of all records of a topic without a value."""
    dataset = table.to_pyarrow_dataset()
    is_marked = "is_tombstone" in dataset.schema.names  # less to read than the values
    has_none = pc.field("is_tombstone") if is_marked else pc.field("value").is_null()
    batches = dataset.to_batches(
        columns=["topic", *Tombstone._fields],
        filter=has_none & pc.field("offset").is_valid(),
        batch_size=BATCH_ROWS,
        batch_readahead=1,
        fragment_readahead=1,
    )
    for batch in batches:
        found = batch.filter(_is(batch, "topic", [topic])).select(Tombstone._fields)
        yield from map(Tombstone._make, zip(*(column.to_pylist() for column in found.columns), strict=True))


def too_large(quarantine: DeltaTable, topic: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of the records that are in quarantine because a topic takes none so large."""
    batches = quarantine.to_pyarrow_dataset().to_batches(
        columns=["topic", "reason", "key", "value"],
        batch_size=BATCH_ROWS,
        batch_readahead=1,
        fragment_readahead=1,
    )
    for batch in batches:
        is_held = pc.and_(_is(batch, "topic", [topic]), _is(batch, "reason", [Reason.TOO_LARGE_TO_PUBLISH]))
        found = batch.filter(is_held)
        yield from zip(found.column("key").to_pylist(), found.column("value").to_pylist(), strict=True)


def places(tables: Tables) -> pa.Table:
    """Return the coordinates and the landing of every row that bronze wrote; `order.COLUMNS`."""
    parts = []
    for name, stamp in LANDED_AT.items():
        if name not in tables:
            continue
        dataset = tables[name].to_pyarrow_dataset()
        reason = ("reason",) if "reason" in dataset.schema.names else ()
        found = dataset.to_table(columns=_selected(dataset.schema, (*COLUMNS[:-1], stamp, *reason)))
        if reason:
            found = found.filter(pc.invert(_is(found, "reason", NOT_BRONZE)))
        # Whole milliseconds, floored: so the contract counts.
        moments = pc.divide(found.column(stamp).cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1000)
        columns = [*(found.column(column) for column in COLUMNS[:-1]), moments]
        parts.append(pa.table(columns, names=list(COLUMNS)).cast(PLACES))
    return pa.concat_tables(parts)


def _is(rows: pa.Table | pa.RecordBatch, column: str, texts: Iterable[str]) -> Any:
    """Tell of rows that were read which have one of some texts.

    No filter can tell it while they are read: files that a merge or a replay wrote have texts as views until their
    footers are repaired, and Arrow compares these with no text.
    """
    return pc.is_in(rows.column(column).cast(pa.string()), pa.array(list(texts), pa.string()))


def _selected(schema: pa.Schema, columns: Sequence[str]) -> list[str] | dict[str, pc.Expression]:
    """Ask for columns; for those that the table's release did not have, for nulls."""
    lacks = [name for name in ADDED if name in columns and name not in schema.names]
    if not lacks:
        return list(columns)
    nothing = pc.scalar(pa.scalar(None, pa.int64()))
    return {name: nothing if name in lacks else pc.field(name) for name in columns}


def commits(lake: str, name: Table, table: DeltaTable) -> Commits:
    """Return what the commits of a table carry, as far back as its log and its history go without a gap."""
    # The log first: what leaves it meanwhile is in the history by then.
    said: dict[int, dict[str, Any] | None] = {}
    for commit in chain(log(lake, name, table.version()), _history(lake, name)):
        said[commit["version"]] = _kept(commit.get("userMetadata"))
    first = table.version() + 1
    while first - 1 in said:
        first -= 1
    versions = [version for version, note in said.items() if note is not None]
    metadata = [note for note in said.values() if note is not None]
    return _since_correction(Commits(first, metadata), versions)


def _kept(text: str | None) -> dict[str, Any] | None:
    """Return what is looked at of a commit's note: a history has millions, and most of a note is about its batch."""
    try:
        note = json.loads(text or "null")
    except ValueError:  # somebody else's note
        return None
    return {name: note[name] for name in NOTED if name in note} if isinstance(note, dict) else None


def _since_correction(commits: Commits, versions: list[int]) -> Commits:
    """Leave out what was told before the newest correction: it tells what all batches had counted by then."""
    counted = [version for version, note in zip(versions, commits.metadata, strict=True) if "counted" in note]
    if not counted:
        return commits
    newest = max(counted)
    is_known = all(note["counted"] is not None for note in commits.metadata if "counted" in note)
    metadata = [
        {**note, "counts": note.get("counted") or note.get("counts", {})}
        for version, note in zip(versions, commits.metadata, strict=True)
        if version >= newest
    ]
    return Commits(0 if is_known and commits.first_version <= newest else max(commits.first_version, 1), metadata)


def log(lake: str, name: Table, newest: int) -> Iterator[dict[str, Any]]:
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
        if not entry.path.endswith(".jsonl"):  # a draft
            continue
        with files.open_input_stream(entry.path) as stream:
            for line in stream.read().splitlines():
                with suppress(ValueError):  # cut off; its commit is in the log or the next file, or a gap tells of it
                    yield json.loads(line)


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
