"""Topics that publish a table: the last record of each key says what the table's row says.

A stream declares for its topic which rows of its table are there, as a query over `stored`. A record is the row as
JSON: a field is a column in camelCase, times are milliseconds since 1970, amounts are exact, days are ISO 8601; its key
is the key column's text, or a JSON array where there are several. Records that may have expired from a topic are not
missed; `expiry.py` says which may not.

Where records stand by themselves, one that was sent stays as it was, whatever becomes of its row: then a stream keeps
it in a table of outdated ones, and what is there must be, or may still be, on the topic like that.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import duckdb
from deltalake import DeltaTable

from customer_activity.catalog import Table
from customer_activity.settings import Settings
from customer_activity.verification import expiry, kafka_input, lake
from customer_activity.verification.comparison import Check, Differences, unlike
from customer_activity.verification.records import RawRecord

BATCH_ROWS = 65_536
MILLIS = "EpochMillis"
FRAME_BYTES = 100  # what a batch of one record has beside key and value, at most


class PublishedTopic(NamedTuple):
    """A topic of a table.

    Attributes:
        topic: its name.
        table: which it publishes.
        key: the columns that are its records' key.
        query: for the rows of the table, as `stored`, that it has.
        order: the columns that tell records of one key apart where each stands by itself; empty where the last counts.
        outdated: the table of records that stay as they were sent; None where there are none.
        beside: the other topics of its publisher, which sends a row to none that one of them would not take.
    """

    topic: str
    table: Table
    key: tuple[str, ...]
    query: str
    order: tuple[str, ...] = ()
    outdated: Table | None = None
    beside: tuple[str, ...] = ()


@dataclass
class Seen:
    """What was read of a topic so far: the last value of each key, or of each record by itself; and up to where."""

    fields: tuple[str, ...] = ()  # of a value, that tell records of one key apart
    last: dict[bytes, bytes | None] = field(default_factory=dict)
    repeated: list[bytes] = field(default_factory=list)  # records that should be there once, and were there before
    positions: Mapping[int, int] | None = None
    is_whole: bool = True  # whether no key's last record has expired
    since: int | None = None  # where one may have: since when none has, in milliseconds since 1970; None if unknown
    oldest: dict[int, int | None] = field(default_factory=dict)  # timestamp of each partition's first record
    # By key, bytes and value of what quarantine has instead of the topic.
    held: dict[bytes, list[tuple[int, bytes]]] = field(default_factory=dict)

    def hold(self, found: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Take note of the records, key and value, that are in quarantine because the topic takes none so large."""
        self.held.clear()
        for key, value in ((key or b"", value or b"") for key, value in found):
            self.held.setdefault(self._of(key, value), []).append((len(key) + len(value), value))

    def read(self, settings: Settings, topic: str) -> None:
        """Read on to the topic's present end."""
        begins = None
        if self.positions is None:
            self.positions = begins = kafka_input.begins(settings, topic)
            self.is_whole = not kafka_input.expires(settings, topic) or not any(begins.values())
        end = kafka_input.ends(settings, topic)
        self.take(kafka_input.read(settings, topic, self.positions, end))
        self.positions = end
        if begins is not None and not self.is_whole:
            self.since = expiry.complete_since(begins, self.oldest)

    def take(self, records: Iterable[RawRecord]) -> None:
        """Add records, a partition's in offset order."""
        for raw in records:
            self.oldest.setdefault(raw.partition, raw.timestamp)
            key = self._of(raw.key or b"", raw.value)
            if self.fields and key in self.last:
                self.repeated.append(key)
            self.last[key] = raw.value

    def _of(self, key: bytes, value: bytes | None) -> bytes:
        if not self.fields:
            return key
        found = _parsed(value or b"null")
        names = [str(found.get(name)) if isinstance(found, dict) else "" for name in self.fields]
        return _key([key.decode(errors="replace"), *names])


def compare(
    published: PublishedTopic,
    tables: lake.Tables,
    seen: Seen,
    largest: int,
    required: Collection[bytes] = frozenset(),
) -> Check:
    """Compare a topic's last values with the rows of its table.

    Args:
        published: which topic.
        tables: of the lake.
        seen: what was read of the topic, and of its part of quarantine.
        largest: how many bytes it takes; a row of more is in quarantine.
        required: keys of rows that must be there although records have expired: see `must_have`.
    """
    outdated = {} if published.outdated is None else dict(_rows_of(published, tables[published.outdated]))
    differences = Differences()
    left = {key: value for key, value in seen.last.items() if value is not None}
    wanted = there = 0
    for key, present in _rows_of(published, tables[published.table]):
        wanted += 1
        is_outdated = key in outdated
        row = outdated.pop(key, present)
        value = left.pop(key, None)
        held = seen.held.get(key, [])
        if any(size > largest - FRAME_BYTES and _parsed(kept) == row for size, kept in held):
            there += 1  # what the topic has, if anything, is from before the row grew
        elif value is not None:
            there += 1
            _hold(differences, key, row, value)
        elif seen.is_whole or (key in required and not is_outdated):
            differences.add(key.decode(), "is missing")
    for key in outdated.keys() & left.keys():
        wanted, there = wanted + 1, there + 1
        _hold(differences, key, outdated[key], left.pop(key))
    for key in left:
        differences.add(key.decode(errors="replace"), "is not in the table")
    for key in seen.repeated:
        differences.add(key.decode(errors="replace"), "is there once more")
    return differences.check(published.topic, wanted, there + len(left))


def _hold(differences: Differences, key: bytes, row: Mapping[str, Any], value: bytes) -> None:
    """Hold a record against the row that it must be."""
    found = _parsed(value)
    if isinstance(found, dict):
        found = dict.fromkeys(row) | found  # sent before a release knew the field: absent is null
    if found != row:
        differences.add(key.decode(), "differs:", unlike(tuple(row), tuple(row.values()), _values(row, found)))


def must_have(path: str, published: PublishedTopic, tables: lake.Tables, seen: Seen) -> set[bytes]:
    """Return the keys that a topic must have although records have expired from it.

    Raises:
        DeltaError, OSError: storage does not answer.
    """
    if seen.is_whole or seen.since is None:
        return set()
    changed = expiry.changed_since(path, published.table, tables[published.table], seen.since)
    return {key for stored in changed for key, _ in rows(published, stored)}


def _rows_of(published: PublishedTopic, table: DeltaTable) -> Iterator[tuple[bytes, dict[str, Any]]]:
    return rows(published, table.to_pyarrow_dataset())


def rows(published: PublishedTopic, stored: Any) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield the records that a topic must have of rows that are stored: key and fields."""
    with duckdb.connect(":memory:") as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("stored", stored)
        found = database.sql(published.query).to_arrow_reader(BATCH_ROWS)
        for batch in found:
            for row in batch.to_pylist():
                yield _key([_plain(row[name]) for name in (*published.key, *published.order)]), dict(_fields(row))


def camel_case(column: str) -> str:
    """Return a column's name as JSON has it; of a time without `EpochMillis`."""
    first, *others = column.split("_")
    return first + "".join(map(str.capitalize, others))


def _key(texts: Sequence[Any]) -> bytes:
    if len(texts) == 1:
        said = str(texts[0])
    else:
        said = json.dumps([str(text) for text in texts], ensure_ascii=False, separators=(",", ":"))
    return said.encode("utf-8", "surrogatepass")  # JSON of another writer may escape half of a character


def _fields(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for column, value in row.items():
        name = camel_case(column)
        yield name + MILLIS if isinstance(value, datetime) else name, _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    return value.isoformat() if isinstance(value, date) else value


def _parsed(value: bytes) -> Any:
    try:
        return json.loads(value, parse_float=Decimal)
    except (ValueError, RecursionError, ArithmeticError):  # nested too deeply; a number that no decimal holds
        return None


def _values(row: Mapping[str, Any], found: Any) -> tuple[Any, ...]:
    return tuple(found.get(name) if isinstance(found, dict) else None for name in row)
