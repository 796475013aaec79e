"""Profile records by customer, as local state: what a batch needs of them is looked up, and nothing else is read.

Each record is a row. Where a batch would need many of one customer, the customer's history is condensed: records go
that nothing depends on (`profiles.needless`), and the others are marked: of all records up to them, no more are
needed. What is known since then begins with the newest of these, however long the history is.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.decisions import BEFORE_ALL, Numbers
from customer_activity.lake import deltalog
from customer_activity.state import profile_records
from customer_activity.state.columns import UNNUMBERED, is_text, listed, plain_sql, typed
from customer_activity.state.keyed import Holding, Needs, State
from customer_activity.state.profile_records import Profile
from customer_activity.streams.enrichment import profiles

Row = tuple[Any, ...]

SCHEMA = arrow_schema(Table.PROFILE_CHANGES)
KEY = SCHEMA.names[0]
PLACE = (KEY, "landing", "partition", "offset")
CONDENSED = pa.field("is_condensed", pa.int64())
# Texts come last: one may be a megabyte, and is read only where it is wanted.
ROW = [CONDENSED, *sorted(SCHEMA, key=is_text)]
TABLES = f"""
CREATE TABLE IF NOT EXISTS history (
    {typed(ROW)}, PRIMARY KEY ({", ".join(f'"{name}"' for name in PLACE)})
) WITHOUT ROWID;
"""
COLUMNS = listed(SCHEMA.names, "history")
INSERT = f"""
INSERT OR IGNORE INTO history ({", ".join(f'"{name}"' for name in SCHEMA.names)})
VALUES ({", ".join("?" * len(SCHEMA))})
"""  # noqa: S608 - the names are ours
SEED = f"""
SELECT {", ".join(plain_sql(column) for column in SCHEMA)}
FROM (SELECT * REPLACE (coalesce(landing, {UNNUMBERED}) AS landing) FROM snapshot {{where}})
"""  # noqa: S608 - the names are ours
MOST_CUSTOMERS = 10_000  # that are looked up at once: for more of them it is faster to read all that bronze has
MANY_RECORDS = 100  # of a customer, of whom others have one or a few
ROWS_AT_A_TIME = 64  # between two looks at how large they are
CONDENSED_RECORDS = 100_000  # that are read at once to be condensed: a second or so; the rest is for later batches

SINCE = f"""
coalesce((
    SELECT landing FROM history AS earlier WHERE earlier.customer_id = {{customer}} AND earlier.landing <= {{first}}
        AND is_condensed ORDER BY landing DESC LIMIT 1
), {BEFORE_ALL})
"""  # noqa: S608 - the names are ours
# Customers one after the other (a CROSS JOIN is not turned round): SQLite would look through the whole history.
NEEDED = f"""
FROM wanted CROSS JOIN history ON customer_id = key AND landing <= {{last}}
    AND landing >= {SINCE.format(customer="key", first="{first}")}
"""
LOOK_UP = f"SELECT {COLUMNS} {NEEDED}"
UNCONDENSED = f"""
SELECT {COLUMNS} FROM history WHERE customer_id = ?1 AND landing >= {SINCE.format(customer="?1", first=(1 << 63) - 1)}
ORDER BY landing, "partition", "offset" LIMIT ?2
"""  # noqa: S608
AT = " AND ".join(f'"{name}" = ?' for name in PLACE)
REMOVE = f"DELETE FROM history WHERE {AT}"  # noqa: S608 - the names are ours
MARK = f"UPDATE history SET is_condensed = 1 WHERE {AT} AND is_condensed IS NULL"  # noqa: S608 - likewise


def take(connection: sqlite3.Connection, rows: pa.Table) -> None:
    """Add records of bronze.customer_profiles to the state."""
    connection.executemany(INSERT, profile_records.values(rows.sort_by(KEY)))


NEEDS = Needs(
    TABLES,
    [
        Holding(
            Table.PROFILE_EVENTS,
            SCHEMA.names,
            "DELETE FROM history",
            take,
            SEED,
            INSERT,
            Table.PROFILE_EVENTS,
            goes_on_with=">=",
        )
    ],
)


def records_of(state: State, lake: str, customers: pa.ChunkedArray, landings: Numbers) -> pa.Table | None:
    """Return customers' profile records that tell what was known of them at some landings, from the first to the last.

    None where they are many, or the state cannot tell them at once; it is brought on behind the stream then.
    """
    wanted = pc.unique(customers)
    if len(wanted) > MOST_CUSTOMERS:
        return None
    to = {Table.PROFILE_EVENTS: deltalog.newest_version(lake, Table.PROFILE_EVENTS)}
    if not state.fits():
        return None
    if not state.is_near(to):
        state.catch_up(to)
        return None
    state.bring(to)
    keys, select = wanted.to_pylist(), LOOK_UP.format(first=landings.min(), last=landings.max())
    found, is_all = _needed(state, select, keys)
    counted = Counter(map(itemgetter(0), found))
    if many := [customer for customer, records in counted.items() if records > MANY_RECORDS]:
        condense(state, many)
        found, is_all = _needed(state, select, keys)
    return _table(found) if is_all else None


def _needed(state: State, select: str, keys: list[str]) -> tuple[list[Row], bool]:
    """Return the rows that are needed, and whether these are all: no more are read than tell that they are many."""
    found: list[Row] = []
    size = 0
    with closing(state.each(select, keys)) as rows:
        while some := list(islice(rows, ROWS_AT_A_TIME)):
            found += some
            size += sum(len(value) for row in some for value in row if isinstance(value, str))
            if profiles.are_many(len(found), size):
                return found, False
    return found, True


def condense(state: State, customers: Iterable[str]) -> None:
    """Remove records of customers that nothing depends on."""
    room = CONDENSED_RECORDS
    with state.change() as connection:
        for customer in customers:
            room -= _condense(connection, customer, room)


def _condense(connection: sqlite3.Connection, customer: str, most: int) -> int:
    """Do it with one of them; return how many records were read, which are no more than `most`.

    The last landing may have more than were read. These are needed as before, and so is the record that they are judged
    by: where nothing is left of what was read of that landing, it is one of a landing before.
    """
    left: set[Row] = set()
    read = 0

    def each() -> Iterator[Profile]:
        nonlocal read
        for record in map(Profile._make, connection.execute(UNCONDENSED, (customer, most))):
            read += 1
            left.add(_place(record))
            yield record

    needless = [_place(record) for record in profiles.needless(each())]
    connection.executemany(REMOVE, needless)
    connection.executemany(MARK, left.difference(needless))
    return read


def _place(record: Profile) -> Row:
    return tuple(getattr(record, name) for name in PLACE)


def _table(rows: Iterable[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    table = pa.table([_column(field, list(values)) for field, values in zip(SCHEMA, columns, strict=True)], SCHEMA)
    landing = table.column("landing")
    numbered = pc.if_else(pc.equal(landing, UNNUMBERED), pa.scalar(None, pa.int64()), landing)
    return table.set_column(SCHEMA.names.index("landing"), SCHEMA.field("landing"), numbered)


def _column(field: pa.Field, values: list[object]) -> pa.Array:
    return pa.array(values, pa.string() if is_text(field) else pa.int64()).cast(field.type)
