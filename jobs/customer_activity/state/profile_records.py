"""Profile records as the hops know them, and an index's table of the last one of each customer.

Records are in the order of (landing, partition, offset); what landed before landings were numbered comes first. An
index keeps tombstones, too: rows may come in any order, and an older one must not bring a profile back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from customer_activity.catalog import Table
from customer_activity.state.restore import Holding

MICROS = pa.timestamp("us", tz="UTC")
UNNUMBERED = -1  # the landing of what landed before they were numbered
COLUMNS = """
    customer_id TEXT PRIMARY KEY, name TEXT, email TEXT, address TEXT, loyalty_status TEXT, updated_at INTEGER,
    "partition" INTEGER, "offset" INTEGER, kafka_timestamp INTEGER, landing INTEGER, is_tombstone INTEGER
"""
TABLE = f"""
CREATE TABLE IF NOT EXISTS latest ({COLUMNS}) WITHOUT ROWID;
CREATE TEMP VIEW profile AS SELECT * FROM latest WHERE NOT is_tombstone;
"""  # noqa: S608 - the names are ours
INSERT = "INSERT INTO latest VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
CHANGE = f"""
{INSERT} ON CONFLICT (customer_id) DO UPDATE SET
    name = excluded.name, email = excluded.email, address = excluded.address, updated_at = excluded.updated_at,
    loyalty_status = excluded.loyalty_status, "partition" = excluded."partition", "offset" = excluded."offset",
    kafka_timestamp = excluded.kafka_timestamp, landing = excluded.landing, is_tombstone = excluded.is_tombstone
WHERE (excluded.landing, excluded."partition", excluded."offset") >= (landing, "partition", "offset")
"""
SEED = f"""
SELECT customer_id, said.name, said.email, said.address, said.loyalty_status, said.updated_at, said."partition",
    said."offset", said.kafka_timestamp, said.landing, said.is_tombstone
FROM (
    SELECT customer_id, arg_max(
        {{{{'name': name, 'email': email, 'address': address, 'loyalty_status': loyalty_status,
          'updated_at': epoch_us(updated_at), 'partition': "partition", 'offset': "offset",
          'kafka_timestamp': epoch_us(kafka_timestamp), 'landing': coalesce(landing, {UNNUMBERED}),
          'is_tombstone': is_tombstone::INTEGER}}}},
        (coalesce(landing, {UNNUMBERED}), "partition", "offset")
    ) AS said
    FROM snapshot {{where}} GROUP BY customer_id
)
"""  # noqa: S608 - the names are ours


class Profile(NamedTuple):
    """One profile record; times in microseconds since 1970, UTC."""

    customer_id: str
    name: str | None
    email: str | None
    address: str | None
    loyalty_status: str | None
    updated_at: int | None
    partition: int
    offset: int
    kafka_timestamp: int
    landing: int
    is_tombstone: bool = False

    @property
    def content(self) -> tuple[object, ...]:
        """What it says, apart from where and when it was said."""
        return self[:6]


def records(rows: pa.Table | pa.RecordBatch) -> Iterator[Profile]:
    """Return a table's rows as profile records; columns are taken by name."""
    return map(Profile._make, values(rows))


def values(rows: pa.Table | pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Return the same as plain tuples, for SQL: to name their fields takes half as long as to insert them."""
    columns = []
    for name in Profile._fields:
        column = rows.column(name)
        if name == "landing":
            column = column.fill_null(UNNUMBERED)
        if pa.types.is_timestamp(column.type):
            column = column.cast(MICROS).cast(pa.int64())
        columns.append(column.to_pylist())
    return zip(*columns, strict=True)


def take(connection: sqlite3.Connection, rows: pa.Table) -> None:
    """Let rows of silver.profile_changes change the index's table."""
    connection.executemany(CHANGE, values(rows.sort_by("customer_id")))


HOLDING = Holding(
    Table.PROFILE_CHANGES, Profile._fields, "DELETE FROM latest", take, SEED, INSERT, Table.PROFILE_EVENTS
)
