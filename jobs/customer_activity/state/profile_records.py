"""Profile records as the streams know them, and the local state's table of the last one of each customer.

Records are in the order of (landing, partition, offset); what landed before landings were numbered comes first. An
index keeps tombstones, too: rows may come in any order, and an older one must not bring a profile back.
"""

from __future__ import annotations

import sqlite3
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from customer_activity.catalog import Table
from customer_activity.contracts.columns import PROFILE_FIELDS
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake.datafiles import wide
from customer_activity.state.columns import UNNUMBERED, is_text, plain, plain_sql, typed
from customer_activity.state.keyed import Holding

COLUMNS = arrow_schema(Table.PROFILE_CHANGES).names
# As the streams hold them. Texts of many customers may come to more than the 2 GB that a column of `string` holds.
HELD = pa.schema(
    [
        (column.name, pa.large_string() if is_text(column) else pa.int64())
        for column in arrow_schema(Table.PROFILE_CHANGES)
    ]
).set(0, pa.field("customer_id", pa.string()))
_CONTENT = slice(len(PROFILE_FIELDS))
TABLE = f"""
CREATE TABLE IF NOT EXISTS latest (
    {typed(arrow_schema(Table.PROFILE_CHANGES))}, PRIMARY KEY (customer_id)
) WITHOUT ROWID;
CREATE TEMP VIEW profile AS SELECT * FROM latest WHERE NOT is_tombstone;
"""  # noqa: S608 - the names are ours
INSERT = f"INSERT INTO latest VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608
PUT = f"REPLACE INTO latest VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608
CHANGE = f"""
{INSERT} ON CONFLICT (customer_id) DO UPDATE SET {", ".join(f'"{name}" = excluded."{name}"' for name in COLUMNS[1:])}
WHERE (excluded.landing, excluded."partition", excluded."offset") >= (landing, "partition", "offset")
"""
# All records, of which CHANGE leaves the last: an aggregate by customer would hold all texts, and does not spill them.
SEED = f"""
SELECT {", ".join(plain_sql(column) for column in arrow_schema(Table.PROFILE_CHANGES))}
FROM (SELECT * REPLACE (coalesce(landing, {UNNUMBERED}) AS landing) FROM snapshot {{where}})
"""  # noqa: S608 - the names are ours


class Profile(namedtuple("Profile", COLUMNS)):  # type: ignore[misc]  # noqa: PYI024 - the columns are the contract's
    """One profile record, times in microseconds since 1970, UTC; declared are the columns that are named somewhere."""

    __slots__ = ()
    customer_id: str
    updated_at: int | None
    offset: int
    landing: int
    is_tombstone: bool

    @property
    def content(self) -> tuple[object, ...]:
        """What it says, apart from where and when it was said."""
        return self[_CONTENT]


def records(rows: pa.Table | pa.RecordBatch) -> Iterator[Profile]:
    """Return a table's rows as profile records; columns are taken by name."""
    return map(Profile._make, values(rows))


def values(rows: pa.Table | pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Return the same as plain tuples, for SQL: to name their fields takes half as long as to insert them."""
    landing = rows.column("landing").fill_null(UNNUMBERED)
    columns = (landing if name == "landing" else plain(rows.column(name)) for name in COLUMNS)
    return zip(*(column.to_pylist() for column in columns), strict=True)


def with_room(rows: pa.Table) -> pa.Table:
    """Return rows whose texts may come to more than 2 GB when they are brought together."""
    return wide(rows, but=("customer_id",))


def as_held(rows: pa.Table) -> pa.Table:
    """Return them as columns of HELD."""
    landing = rows.column("landing").fill_null(UNNUMBERED)
    columns = [landing if name == "landing" else plain(rows.column(name)) for name in COLUMNS]
    return pa.table(columns, COLUMNS).cast(HELD)


def newest(rows: pa.Table) -> pa.Table:
    """Return the last record of each customer, as HELD has it, in the order of customers."""
    in_order = as_held(rows).sort_by([(name, "ascending") for name in ("landing", "partition", "offset")])
    numbered = in_order.append_column("number", pa.array(range(in_order.num_rows), pa.int64()))
    last = numbered.group_by("customer_id").aggregate([("number", "max")]).column("number_max")
    return numbered.take(last).select(COLUMNS).sort_by("customer_id")


def take(connection: sqlite3.Connection, rows: pa.Table) -> None:
    """Let rows of silver.profile_changes change the index's table."""
    connection.executemany(CHANGE, values(rows.sort_by("customer_id")))


HOLDING = Holding(
    Table.PROFILE_CHANGES,
    COLUMNS,
    "DELETE FROM latest",
    take,
    SEED,
    CHANGE,
    Table.PROFILE_EVENTS,
    goes_on_with=">=",
)
