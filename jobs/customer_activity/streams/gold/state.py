"""What gold must know of the past: each customer's running summary and current profile, at one pair of silver versions.

Both follow from silver's tables; its state finds them by customer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.columns import COUNTED, EXTREMES, SUMMED, names
from customer_activity.contracts.columns import TRACE as TRACED
from customer_activity.lake.datafiles import in_parts
from customer_activity.lake.deltalog import Position
from customer_activity.state import profile_records
from customer_activity.state.columns import plain_sql, typed
from customer_activity.state.keyed import Holding, Needs, State
from customer_activity.streams.gold import rows
from customer_activity.streams.gold.rows import PROFILE, Different
from customer_activity.streams.gold.sums import BEFORE_1970, DIGITS, OUT_OF_RANGE, SUMS, summarised, totalled

TABLES = f"""
CREATE TABLE IF NOT EXISTS summary ({typed(SUMS)}, PRIMARY KEY (customer_id)) WITHOUT ROWID;
CREATE TEMP TABLE changed (customer_id TEXT PRIMARY KEY) WITHOUT ROWID;
"""
# From the few that changed to what is known of them, never the other way: CROSS JOIN keeps that order in SQLite.
HELD = """
SELECT {0}.* FROM changed CROSS JOIN {0} ON {0}.customer_id = changed.customer_id
"""
# An optional field is null where a purchase lacks it, and SQLite's min and max of a value and null are null.
EXTREME = "{0} = coalesce({1}({0}, excluded.{0}), {0}, excluded.{0})"
INSERT = f"INSERT INTO summary VALUES ({', '.join('?' * len(SUMS))})"  # noqa: S608
PUT = f"REPLACE INTO summary VALUES ({', '.join('?' * len(SUMS))})"  # noqa: S608
ADD = f"""
{INSERT} ON CONFLICT (customer_id) DO UPDATE SET
    purchase_count = purchase_count + excluded.purchase_count,
    cents = min(cents + excluded.cents, {OUT_OF_RANGE}),
    traced = coalesce(max(traced, excluded.traced), traced, excluded.traced),
    {", ".join(EXTREME.format(name, how) for name, (_, how) in EXTREMES.items())}
"""
ROWS_AT_A_TIME = 50_000
BYTES_AT_A_TIME = 64 << 20  # of what is new, at most: a profile may have texts of a megabyte


@contextmanager
def change(
    state: State,
    sums: pa.Table,
    profiles: pa.Table,
    ended: Sequence[str],
    to: Mapping[Table, Position],
    in_gold: Callable[[Sequence[str]], Iterable[str]],
) -> Iterator[Iterator[Different]]:
    """Let the state take a batch's changes and yield what they come to, in parts; kept unless the body fails.

    The state changes as the parts are read: the body reads all of them.

    Args:
        state: holds both tables as they are where the batch begins.
        sums: one row a customer, as `totalled` makes them.
        profiles: one row a customer, as `profile_records.newest` makes them.
        ended: those of them whose profile has ended in the batch, whether or not another came after.
        to: the pair of places that includes the batch.
        in_gold: see `rows.different`.
    """
    with state.change() as connection:
        for table, place in to.items():
            state.advance(table, place.version, place.commit)
        yield take_in(connection, sums, profiles, ended, in_gold)


def take_in(
    connection: sqlite3.Connection,
    sums: pa.Table,
    profiles: pa.Table,
    ended: Sequence[str],
    in_gold: Callable[[Sequence[str]], Iterable[str]],
) -> Iterator[Different]:
    """Change the state in a database by a batch, and yield what that comes to, some customers at a time; see `change`.

    In the order of customers, in which a tree of keys grows fast.
    """
    sides = [*sums.column("customer_id").chunks, *profiles.column("customer_id").chunks]
    customers = pc.unique(pa.chunked_array(sides, pa.string())).sort()
    told = rows.known(customers, sums, profiles)
    for new in in_parts(told.to_batches(max_chunksize=ROWS_AT_A_TIME), ROWS_AT_A_TIME, BYTES_AT_A_TIME):
        before = _held(connection, new.column("customer_id").combine_chunks())
        after = rows.since(before, new)
        _hold(connection, after, new)
        yield rows.different(before, after, ended, in_gold)


def _held(connection: sqlite3.Connection, customers: pa.Array) -> pa.Table:
    """Return what the database has of customers."""
    connection.execute("DELETE FROM changed")
    connection.executemany("INSERT INTO changed VALUES (?)", ((customer,) for customer in customers.to_pylist()))
    held = []
    for name, schema in (("summary", SUMS), ("latest", profile_records.HELD)):
        cells = list(zip(*connection.execute(HELD.format(name)), strict=True)) or [()] * len(schema)
        held.append(
            pa.table([pa.array(of, field.type) for of, field in zip(cells, schema, strict=True)], schema=schema)
        )
    return rows.known(customers, *held)


def _hold(connection: sqlite3.Connection, after: pa.Table, new: pa.Table) -> None:
    """Have the database hold what is known since, of customers of whom something is new."""
    with_sums = after.filter(pc.is_valid(new.column("purchase_count"))).select(SUMS.names)
    connection.executemany(PUT, tuples(with_sums))
    last = ["customer_id", *(field.name for field in PROFILE)]
    with_profile = after.filter(rows.has_record(new)).select(last)
    connection.executemany(profile_records.PUT, tuples(with_profile))


def with_an_end(changes: pa.Table) -> list[str]:
    """The customers of whose profile changes one is its end."""
    found: list[str] = pc.unique(changes.column("customer_id").filter(changes.column("is_tombstone"))).to_pylist()
    return found


def _take_purchases(connection: sqlite3.Connection, purchases: pa.Table) -> None:
    connection.executemany(ADD, tuples(totalled([summarised(purchases)])))


PURCHASES = Holding(
    Table.PURCHASES,
    [*SUMMED, *names(TRACED)],
    "DELETE FROM summary",
    _take_purchases,
    f"""
    SELECT customer_id, count(*), (least(sum(amount), {OUT_OF_RANGE // 100}::DECIMAL(38, 2)) * 100)::BIGINT,
        {", ".join(f"{how}({plain_sql(COUNTED.field(column))})" for column, how in EXTREMES.values())},
        max(lpad((epoch_us(kafka_timestamp) + {BEFORE_1970})::VARCHAR, {DIGITS}, '0') || trace_context)
    FROM snapshot {{where}} GROUP BY customer_id
    """,  # noqa: S608 - the names are ours
    INSERT,
    Table.PURCHASE_EVENTS,
)
NEEDS = Needs(TABLES + profile_records.TABLE, (PURCHASES, profile_records.HOLDING))


def tuples(of: pa.Table) -> Iterator[tuple[object, ...]]:
    """Yield rows as tuples. Some at a time: as Python's objects they take ten times the room."""
    for part in of.to_batches(max_chunksize=ROWS_AT_A_TIME):
        yield from zip(*(column.to_pylist() for column in part.columns), strict=True)
