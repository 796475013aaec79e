"""What gold must know of the past: each customer's running summary and current profile, at one pair of silver versions.

Both follow from silver's tables; the index finds them by customer. `restore.py` says how it comes to be at a version.

A total that leaves decimal(18,2) is kept as OUT_OF_RANGE for ever: such a customer's row is frozen as it was last
right, and only a tombstone still ends it, also where the profile has come back in the same batch.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.lake import deltalog
from customer_activity.lake.deltalog import Position
from customer_activity.settings import Settings
from customer_activity.state import profile_records, restore
from customer_activity.state.index import Index
from customer_activity.state.profile_records import Profile
from customer_activity.state.restore import Holding

NAME = "gold"
OUT_OF_RANGE = 10**18  # cents: the first total that decimal(18,2) does not hold; a sum of two still fits 64 bits
TABLES = """
CREATE TABLE IF NOT EXISTS summary (
    customer_id TEXT PRIMARY KEY, purchase_count INTEGER, cents INTEGER, first_purchase_at INTEGER,
    last_purchase_at INTEGER, kafka_timestamp INTEGER
) WITHOUT ROWID;
CREATE TEMP TABLE changed (customer_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE beyond (customer_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE over (customer_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE before (
    customer_id TEXT PRIMARY KEY, name, email, address, loyalty_status, profile_updated_at, purchase_count, cents,
    first_purchase_at, last_purchase_at, as_of
) WITHOUT ROWID;
"""
# Gold's row of a changed customer: profiles LEFT JOIN summaries; one without purchases is as new as the profile.
VALUES = """
profile.name, profile.email, profile.address, profile.loyalty_status, profile.updated_at,
coalesce(summary.purchase_count, 0), coalesce(summary.cents, 0), summary.first_purchase_at, summary.last_purchase_at,
max(profile.kafka_timestamp, coalesce(summary.kafka_timestamp, 0))
"""
BEFORE = """
before.name, before.email, before.address, before.loyalty_status, before.profile_updated_at, before.purchase_count,
before.cents, before.first_purchase_at, before.last_purchase_at, before.as_of
"""
# From the few that changed to their rows, never the other way: CROSS JOIN and LEFT JOIN keep that order in SQLite.
BEYOND = f"""
INSERT INTO beyond SELECT changed.customer_id
FROM changed CROSS JOIN summary ON summary.customer_id = changed.customer_id AND cents >= {OUT_OF_RANGE}
"""  # noqa: S608 - the names are ours
NEWLY_BEYOND = f"""
SELECT changed.customer_id
FROM changed CROSS JOIN summary ON summary.customer_id = changed.customer_id AND cents >= {OUT_OF_RANGE}
WHERE NOT EXISTS (SELECT 1 FROM beyond WHERE beyond.customer_id = changed.customer_id)
"""  # noqa: S608
# A profile that comes back brings no row back that could not be right, so it is none where a frozen row has ended.
OVER = f"""
INSERT INTO over SELECT customer_id FROM summary WHERE customer_id = ? AND cents >= {OUT_OF_RANGE}
"""  # noqa: S608
FROZEN_AND_ENDED = """
SELECT customer_id FROM beyond
WHERE NOT EXISTS (SELECT 1 FROM profile WHERE profile.customer_id = beyond.customer_id)
   OR EXISTS (SELECT 1 FROM over WHERE over.customer_id = beyond.customer_id)
"""
REMEMBER = f"""
INSERT INTO before SELECT profile.customer_id, {VALUES}
FROM changed CROSS JOIN profile ON profile.customer_id = changed.customer_id
LEFT JOIN summary ON summary.customer_id = changed.customer_id
WHERE coalesce(summary.cents, 0) < {OUT_OF_RANGE}
"""  # noqa: S608 - the names are ours
DIFFERENT = f"""
SELECT changed.customer_id, {VALUES}, before.customer_id IS NOT NULL, profile.customer_id IS NULL
FROM changed LEFT JOIN before ON before.customer_id = changed.customer_id
LEFT JOIN profile ON profile.customer_id = changed.customer_id
    AND NOT EXISTS (SELECT 1 FROM over WHERE over.customer_id = changed.customer_id)
LEFT JOIN summary ON summary.customer_id = profile.customer_id
WHERE profile.customer_id IS NULL AND before.customer_id IS NOT NULL
   OR profile.customer_id IS NOT NULL AND coalesce(summary.cents, 0) < {OUT_OF_RANGE}
      AND (before.customer_id IS NULL OR ({VALUES}) IS NOT ({BEFORE}))
"""  # noqa: S608
ADD = f"""
INSERT INTO summary VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (customer_id) DO UPDATE SET
    purchase_count = purchase_count + excluded.purchase_count,
    cents = min(cents + excluded.cents, {OUT_OF_RANGE}),
    first_purchase_at = min(first_purchase_at, excluded.first_purchase_at),
    last_purchase_at = max(last_purchase_at, excluded.last_purchase_at),
    kafka_timestamp = max(kafka_timestamp, excluded.kafka_timestamp)
"""  # noqa: S608
NAME = "gold"
PURCHASE_COLUMNS = ("customer_id", "amount", "occurred_at", "kafka_timestamp")
PROFILE_COLUMNS = Profile._fields
MICROS = pa.timestamp("us", tz="UTC")
TIMES = [("occurred_at", "min"), ("occurred_at", "max"), ("kafka_timestamp", "max")]
SUM_COLUMNS = ["customer_id", "count", "cents", "first", "last", "kafka_timestamp"]
SUMS = pa.schema([("customer_id", pa.string()), *((name, pa.int64()) for name in SUM_COLUMNS[1:])])
ROWS_AT_A_TIME = 50_000


class Row(NamedTuple):
    """A gold row that changed; times in microseconds, the amount in cents."""

    customer_id: str
    name: str | None
    email: str | None
    address: str | None
    loyalty_status: str | None
    profile_updated_at: int | None
    purchase_count: int | None
    cents: int | None
    first_purchase_at: int | None
    last_purchase_at: int | None
    as_of: int | None
    existed: bool
    is_gone: bool


class Changes(NamedTuple):
    """What a batch's changes come to.

    Attributes:
        rows: the gold rows that differ by them, in parts.
        beyond: customers whose total has left decimal(18,2) by them.
    """

    rows: Iterator[list[Row]]
    beyond: list[str]


class GoldState:
    """Summaries and profiles by customer, at one pair of silver versions."""

    def __init__(self, settings: Settings, table_ids: Mapping[Table, str]) -> None:
        """Open the state; `table_ids` are of silver.purchases and silver.profile_changes."""
        self.lake = settings.lake
        self.ids = {table: table_ids[table] for table in HOLDINGS}
        self.index = Index(settings.index_dir / "gold.db", TABLES + profile_records.TABLE)
        self.at: dict[Table, Position] = {}  # where the last part left it

    def bring(self, to: Mapping[Table, int], progress: Callable[[str], None] = lambda _: None) -> None:
        """Have the state hold silver's tables exactly at these versions, from any earlier state."""
        for table, version in to.items():
            held = self.index.position(table)
            if held is not None and held == self.at.get(table) and held.version == version:
                continue  # where this very driver left it
            place = deltalog.position(self.lake, table, self.ids[table], version)
            restore.bring(self.index, self.lake, HOLDINGS[table], place, progress)

    @contextmanager
    def change(
        self,
        sums: pa.Table,
        profiles: pa.Table,
        ended: Iterable[str],
        to: Mapping[Table, Position],
        in_gold: Callable[[Sequence[str]], Iterable[str]],
    ) -> Iterator[Changes]:
        """Take a batch's changes and yield what they come to; kept unless the body fails.

        Args:
            sums: one row a customer, as `summarised` makes them.
            profiles: one row a customer, as `latest` makes them.
            ended: those of them whose profile has ended in the batch, whether or not another came after.
            to: the pair of places that includes the batch.
            in_gold: tells which of some customers have a row in gold before the batch; asked for those alone whose
                profile has ended while their row was frozen.
        """
        connection = self.index.connection
        self.at = {}
        with self.index.change():
            for name in ("changed", "before", "beyond", "over"):
                connection.execute(f"DELETE FROM {name}")  # noqa: S608 - the names are ours
            sides = [*sums.column("customer_id").chunks, *profiles.column("customer_id").chunks]
            customers = pc.unique(pa.chunked_array(sides, pa.string())).sort()
            connection.executemany("INSERT INTO changed VALUES (?)", _tuples(pa.table({"customer_id": customers})))
            connection.execute(REMEMBER)
            connection.execute(BEYOND)
            connection.executemany(ADD, _tuples(sums))
            connection.executemany(profile_records.CHANGE, profile_records.values(profiles))
            connection.executemany(OVER, ((customer,) for customer in ended))
            if frozen := [customer for (customer,) in connection.execute(FROZEN_AND_ENDED)]:
                had_a_row = ((customer,) for customer in in_gold(frozen))
                connection.executemany("INSERT INTO before (customer_id) VALUES (?)", had_a_row)
            for table, place in to.items():
                self.index.advance(table, place)
            yield Changes(self._different(), [customer for (customer,) in connection.execute(NEWLY_BEYOND)])
        self.at = dict(to)

    def _different(self) -> Iterator[list[Row]]:
        found = self.index.connection.execute(DIFFERENT)
        while rows := found.fetchmany(ROWS_AT_A_TIME):
            yield [Row._make(row) for row in rows]

    def close(self) -> None:
        """Close the file."""
        self.index.close()


def summarised(purchases: pa.Table) -> pa.Table:
    """What purchases add per customer: customer_id, count, cents, first, last, newest Kafka timestamp (micros).

    Cents are OUT_OF_RANGE where there are so many or more.
    """
    cents = pc.cast(pc.multiply(purchases.column("amount"), pa.scalar(100, pa.decimal128(3, 0))), pa.int64())
    plain = pa.table(
        {
            "customer_id": purchases.column("customer_id"),
            "cents": cents,
            **{name: purchases.column(name).cast(MICROS).cast(pa.int64()) for name in PURCHASE_COLUMNS[2:]},
        }
    )
    of_customer = _wide(plain).group_by("customer_id").aggregate([("cents", "count"), ("cents", "sum"), *TIMES])
    return _in_range(of_customer.rename_columns(SUM_COLUMNS))


def totalled(parts: Iterable[pa.Table]) -> pa.Table:
    """Add up what `summarised` made of parts; in the order of customers, in which a tree of keys grows fast."""
    together = _wide(pa.concat_tables([SUMS.empty_table(), *parts]))
    sums = together.group_by("customer_id").aggregate(
        [("count", "sum"), ("cents", "sum"), ("first", "min"), ("last", "max"), ("kafka_timestamp", "max")]
    )
    return _in_range(sums.rename_columns(SUM_COLUMNS)).sort_by("customer_id")


def _wide(rows: pa.Table) -> pa.Table:
    """Give cents the room that their sums need: 64 bits, which are fast, unless all of them together might not fit."""
    largest = pc.max(rows.column("cents")).as_py() or 0
    if largest * rows.num_rows < OUT_OF_RANGE:
        return rows
    at = rows.column_names.index("cents")
    return rows.set_column(at, "cents", rows.column("cents").cast(pa.decimal128(38, 0)))


def _in_range(sums: pa.Table) -> pa.Table:
    """Cap cents, and have them in 64 bits."""
    cents = sums.column("cents")
    capped = pc.min_element_wise(cents, pa.scalar(OUT_OF_RANGE, cents.type)).cast(pa.int64())
    return sums.set_column(sums.column_names.index("cents"), "cents", capped)


def with_an_end(changes: pa.Table) -> list[str]:
    """The customers of whose profile changes one is its end."""
    found: list[str] = pc.unique(changes.filter(changes.column("is_tombstone")).column("customer_id")).to_pylist()
    return found


def latest(changes: pa.Table) -> pa.Table:
    """The last change of each customer's profile, in the order of customers."""
    landing = changes.column("landing").fill_null(profile_records.UNNUMBERED)
    changes = changes.set_column(changes.column_names.index("landing"), "landing", landing)
    numbered = changes.sort_by([(name, "ascending") for name in ("landing", "partition", "offset")])
    numbered = numbered.append_column("number", pa.array(range(numbered.num_rows), pa.int64()))
    newest = numbered.group_by("customer_id").aggregate([("number", "max")]).column("number_max")
    return numbered.take(newest).select(PROFILE_COLUMNS).sort_by("customer_id")


def _take_purchases(connection: sqlite3.Connection, rows: pa.Table) -> None:
    connection.executemany(ADD, _tuples(totalled([summarised(rows)])))


PURCHASES = Holding(
    Table.PURCHASES,
    PURCHASE_COLUMNS,
    "DELETE FROM summary",
    _take_purchases,
    f"""
    SELECT customer_id, count(*), (least(sum(amount), {OUT_OF_RANGE // 100}::DECIMAL(38, 2)) * 100)::BIGINT,
        epoch_us(min(occurred_at)), epoch_us(max(occurred_at)), epoch_us(max(kafka_timestamp))
    FROM snapshot {{where}} GROUP BY customer_id
    """,  # noqa: S608 - the names are ours
    "INSERT INTO summary VALUES (?, ?, ?, ?, ?, ?)",
    Table.PURCHASE_EVENTS,
)
HOLDINGS = {holding.table: holding for holding in (PURCHASES, profile_records.HOLDING)}


def _tuples(rows: pa.Table) -> Iterator[tuple[object, ...]]:
    """Yield rows as tuples; times as microseconds. Some at a time: as Python's objects they take ten times the room."""
    plain = [
        column.cast(MICROS).cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in rows.columns
    ]
    for part in pa.table(plain, rows.column_names).to_batches(max_chunksize=ROWS_AT_A_TIME):
        yield from zip(*(column.to_pylist() for column in part.columns), strict=True)
