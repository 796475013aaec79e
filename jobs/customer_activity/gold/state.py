"""What gold must know of the past: each customer's running summary and current profile, at one pair of silver versions.

Both follow from silver's tables; the index finds them by customer. See `index.py` for what it is and is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity import history
from customer_activity.catalog import Query, Table
from customer_activity.datafiles import in_parts
from customer_activity.index import Index, appended, begins_anew, loadable
from customer_activity.settings import Settings

TABLES = """
CREATE TABLE IF NOT EXISTS summary (
    customer_id TEXT PRIMARY KEY, purchase_count INTEGER, cents INTEGER, first_purchase_at INTEGER,
    last_purchase_at INTEGER, kafka_timestamp INTEGER
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS profile (
    customer_id TEXT PRIMARY KEY, name TEXT, email TEXT, address TEXT, loyalty_status TEXT, updated_at INTEGER,
    kafka_timestamp INTEGER
) WITHOUT ROWID;
CREATE TEMP TABLE changed (customer_id TEXT PRIMARY KEY) WITHOUT ROWID;
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
REMEMBER = f"""
INSERT INTO before SELECT profile.customer_id, {VALUES}
FROM changed CROSS JOIN profile ON profile.customer_id = changed.customer_id
LEFT JOIN summary ON summary.customer_id = changed.customer_id
"""  # noqa: S608 - the names are ours
DIFFERENT = f"""
SELECT changed.customer_id, {VALUES}, before.customer_id IS NOT NULL, profile.customer_id IS NULL
FROM changed LEFT JOIN before ON before.customer_id = changed.customer_id
LEFT JOIN profile ON profile.customer_id = changed.customer_id
LEFT JOIN summary ON summary.customer_id = profile.customer_id
WHERE (profile.customer_id IS NULL) <> (before.customer_id IS NULL)
   OR profile.customer_id IS NOT NULL AND ({VALUES}) IS NOT ({BEFORE})
"""  # noqa: S608
PURCHASE_COLUMNS = ("customer_id", "amount", "occurred_at", "kafka_timestamp")
PROFILE_COLUMNS = (
    "customer_id", "name", "email", "address", "loyalty_status", "updated_at", "kafka_timestamp", "is_tombstone",
    "partition", "offset",
)  # fmt: skip
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


class GoldState:
    """Summaries and profiles by customer, at one pair of silver versions."""

    def __init__(self, settings: Settings, table_ids: Mapping[Table, str]) -> None:
        """Open the state; `table_ids` are of silver.purchases, silver.profile_changes and gold.activity_changes."""
        self.lake = settings.lake
        self.ids = {table: table_ids[table] for table in (Table.PURCHASES, Table.PROFILE_CHANGES)}
        # Gold's own table belongs to its identity: what the state holds as known must be in that very table.
        self.index = Index(settings.index_dir / "gold.db", TABLES, table_ids.values())
        self.is_current = False

    @property
    def positions(self) -> dict[Table, int]:
        """The pair of silver versions."""
        return {table: self.index.position(name) for table, name in self.ids.items()}

    def catch_up(self, to: Mapping[Table, int]) -> None:
        """Take what silver's tables have up to these versions and the state has not; nothing is taken back.

        Where a log begins later than a version, up to its begin: gold is past that, or the log would be longer.
        """
        for table, wanted in to.items():
            held = self.index.position(self.ids[table])
            if wanted <= held:
                continue
            version = loadable(self.lake, table, wanted)
            with self.index.change():
                columns = PURCHASE_COLUMNS if table is Table.PURCHASES else PROFILE_COLUMNS
                if begins_anew(self.lake, table, held):  # sums are added to: nothing may be there twice
                    name = "summary" if table is Table.PURCHASES else "profile"
                    self.index.connection.execute(f"DELETE FROM {name}")  # noqa: S608 - the names are ours
                rows = appended(self.lake, table, held, version, columns)
                if table is Table.PURCHASES:
                    for part in in_parts(rows, 10 * ROWS_AT_A_TIME):
                        self._add(summarised(part))
                else:
                    self._change(latest(rows.read_all()))
                self.index.advance(self.ids[table], version)

    @contextmanager
    def change(self, sums: pa.Table, profiles: pa.Table, to: Mapping[Table, int]) -> Iterator[Iterator[list[Row]]]:
        """Take a batch's changes and yield the gold rows that differ by them, in parts; kept unless the body fails.

        Args:
            sums: one row a customer, as `summarised` makes them.
            profiles: one row a customer, as `latest` makes them.
            to: the pair of silver versions that includes the batch.
        """
        connection = self.index.connection
        with self.index.change():
            connection.execute("DELETE FROM changed")
            connection.execute("DELETE FROM before")
            sides = [*sums.column("customer_id").chunks, *profiles.column("customer_id").chunks]
            customers = pc.unique(pa.chunked_array(sides, pa.string())).sort()
            connection.executemany("INSERT INTO changed VALUES (?)", _tuples(pa.table({"customer_id": customers})))
            connection.execute(REMEMBER)
            self._add(sums)
            self._change(profiles)
            for table, version in to.items():
                self.index.advance(self.ids[table], version)
            yield self._different()

    def _different(self) -> Iterator[list[Row]]:
        found = self.index.connection.execute(DIFFERENT)
        while rows := found.fetchmany(ROWS_AT_A_TIME):
            yield [Row._make(row) for row in rows]

    def _add(self, sums: pa.Table) -> None:
        self.index.connection.executemany(
            """
            INSERT INTO summary VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (customer_id) DO UPDATE SET
                purchase_count = purchase_count + excluded.purchase_count,
                cents = cents + excluded.cents,
                first_purchase_at = min(first_purchase_at, excluded.first_purchase_at),
                last_purchase_at = max(last_purchase_at, excluded.last_purchase_at),
                kafka_timestamp = max(kafka_timestamp, excluded.kafka_timestamp)
            """,
            _tuples(sums),
        )

    def _change(self, profiles: pa.Table) -> None:
        is_gone = profiles.column("is_tombstone")
        gone = profiles.filter(is_gone).select(["customer_id"])
        self.index.connection.executemany("DELETE FROM profile WHERE customer_id = ?", _tuples(gone))
        current = profiles.filter(pc.invert(is_gone)).select(PROFILE_COLUMNS[:7])
        self.index.connection.executemany(
            "INSERT OR REPLACE INTO profile VALUES (?, ?, ?, ?, ?, ?, ?)", _tuples(current)
        )

    def close(self) -> None:
        """Close the file."""
        self.index.close()


def summarised(purchases: pa.Table) -> pa.Table:
    """What purchases add per customer: customer_id, count, cents, first, last, newest Kafka timestamp (micros)."""
    cents = pc.cast(pc.multiply(purchases.column("amount"), pa.scalar(100, pa.decimal128(3, 0))), pa.int64())
    plain = pa.table(
        {
            "customer_id": purchases.column("customer_id"),
            "cents": cents,
            **{name: purchases.column(name).cast(MICROS).cast(pa.int64()) for name in PURCHASE_COLUMNS[2:]},
        }
    )
    of_customer = plain.group_by("customer_id").aggregate([("cents", "count"), ("cents", "sum"), *TIMES])
    return of_customer.rename_columns(SUM_COLUMNS)


def totalled(parts: Iterable[pa.Table]) -> pa.Table:
    """Add up what `summarised` made of parts; in the order of customers, in which a tree of keys grows fast."""
    together = pa.concat_tables([SUMS.empty_table(), *parts])
    sums = together.group_by("customer_id").aggregate(
        [("count", "sum"), ("cents", "sum"), ("first", "min"), ("last", "max"), ("kafka_timestamp", "max")]
    )
    return sums.rename_columns(SUM_COLUMNS).sort_by("customer_id")


def latest(changes: pa.Table) -> pa.Table:
    """The newest change of each customer's profile, in the order of customers.

    A customer's changes are in one partition: offsets order them.
    """
    numbered = changes.sort_by([("partition", "ascending"), ("offset", "ascending")])
    numbered = numbered.append_column("number", pa.array(range(numbered.num_rows), pa.int64()))
    newest = numbered.group_by("customer_id").aggregate([("number", "max")]).column("number_max")
    return numbered.take(newest).select(PROFILE_COLUMNS).sort_by("customer_id")


def newest_positions(lake: str) -> dict[Table, int]:
    """The pair of silver versions that gold's newest commit was computed from; empty when there is none."""
    metadata = history.newest_note(lake, Table.ACTIVITY_CHANGES, Query.GOLD)
    return {table: metadata[table.label] for table in (Table.PURCHASES, Table.PROFILE_CHANGES)} if metadata else {}


def _tuples(rows: pa.Table) -> Iterator[tuple[object, ...]]:
    """Yield rows as tuples; times as microseconds. Some at a time: as Python's objects they take ten times the room."""
    plain = [
        column.cast(MICROS).cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in rows.columns
    ]
    for part in pa.table(plain, rows.column_names).to_batches(max_chunksize=ROWS_AT_A_TIME):
        yield from zip(*(column.to_pylist() for column in part.columns), strict=True)
