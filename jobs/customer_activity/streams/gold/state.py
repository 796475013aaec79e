"""What gold must know of the past: each customer's running summary and current profile, at one pair of silver versions.

Both follow from silver's tables; its state finds them by customer.

Of a customer's purchases with a trace the newest is kept, with its time: it goes on with a row that is as new as that.

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
from customer_activity.contracts.columns import ACTIVITY_FIELDS, COUNTED, EXTREMES, SUMMED, names
from customer_activity.contracts.columns import TRACE as TRACED
from customer_activity.lake.deltalog import Position
from customer_activity.state import profile_records
from customer_activity.state.columns import listed, plain, plain_sql, typed
from customer_activity.state.keyed import Holding, Needs, State

OUT_OF_RANGE = 10**18  # cents: the first total that decimal(18,2) does not hold; a sum of two still fits 64 bits
SUMS = pa.schema(
    [
        ("customer_id", pa.string()),
        *((name, pa.int64()) for name in ("purchase_count", "cents", *EXTREMES)),
        ("traced", pa.string()),  # the Kafka timestamp in so many digits, then the trace context: the greatest of them
    ]
)
DIGITS = 18  # of microseconds until the year 9999
BEFORE_1970 = 1_000  # microseconds: a record without a timestamp is at -1 ms
# Where a column of gold's row comes from; one that is not named here is the profile's of the same name.
SOURCES = {
    "profile_updated_at": "profile.updated_at",
    "purchase_count": "coalesce(summary.purchase_count, 0)",
    "total_amount": "coalesce(summary.cents, 0)",
    "first_purchase_at": "summary.first_purchase_at",
    "last_purchase_at": "summary.last_purchase_at",
    # A row without purchases is as new as the profile.
    "as_of": "max(profile.kafka_timestamp, coalesce(summary.last_kafka_timestamp, 0))",
}
# The trace of the record that `as_of` names: of several purchases as new as that the greatest, and of a purchase and
# the profile the purchase's. So it is another only where the row differs, too.
TRACE = f"""
CASE WHEN profile.customer_id IS NULL THEN CASE WHEN latest.is_tombstone THEN latest.trace_context END
     WHEN coalesce(summary.last_kafka_timestamp, 0) < profile.kafka_timestamp THEN profile.trace_context
     WHEN substr(summary.traced, 1, {DIGITS}) = printf('%0{DIGITS}d', summary.last_kafka_timestamp + {BEFORE_1970})
     THEN substr(summary.traced, {DIGITS + 1})
END
"""
COLUMNS = [name for name in names(ACTIVITY_FIELDS[1:]) if name not in ("currency", "view_version")]
ROW = ("customer_id", *COLUMNS, "existed", "is_gone", "trace_context")
VALUES = ", ".join(SOURCES.get(name, f'profile."{name}"') for name in COLUMNS)
BEFORE = listed(COLUMNS, "before")
TABLES = f"""
CREATE TABLE IF NOT EXISTS summary ({typed(SUMS)}, PRIMARY KEY (customer_id)) WITHOUT ROWID;
CREATE TEMP TABLE changed (customer_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE beyond (customer_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE over (customer_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TEMP TABLE before (customer_id TEXT PRIMARY KEY, {", ".join(COLUMNS)}) WITHOUT ROWID;
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
SELECT changed.customer_id, {VALUES}, before.customer_id IS NOT NULL, profile.customer_id IS NULL, {TRACE}
FROM changed LEFT JOIN before ON before.customer_id = changed.customer_id
LEFT JOIN latest ON latest.customer_id = changed.customer_id
LEFT JOIN profile ON profile.customer_id = changed.customer_id
    AND NOT EXISTS (SELECT 1 FROM over WHERE over.customer_id = changed.customer_id)
LEFT JOIN summary ON summary.customer_id = profile.customer_id
WHERE profile.customer_id IS NULL AND before.customer_id IS NOT NULL
   OR profile.customer_id IS NOT NULL AND coalesce(summary.cents, 0) < {OUT_OF_RANGE}
      AND (before.customer_id IS NULL OR ({VALUES}) IS NOT ({BEFORE}))
"""  # noqa: S608
# An optional field is null where a purchase lacks it, and SQLite's min and max of a value and null are null.
EXTREME = "{0} = coalesce({1}({0}, excluded.{0}), {0}, excluded.{0})"
INSERT = f"INSERT INTO summary VALUES ({', '.join('?' * len(SUMS))})"  # noqa: S608
ADD = f"""
{INSERT} ON CONFLICT (customer_id) DO UPDATE SET
    purchase_count = purchase_count + excluded.purchase_count,
    cents = min(cents + excluded.cents, {OUT_OF_RANGE}),
    traced = coalesce(max(traced, excluded.traced), traced, excluded.traced),
    {", ".join(EXTREME.format(name, how) for name, (_, how) in EXTREMES.items())}
"""
ROWS_AT_A_TIME = 50_000

Row = tuple[object, ...]  # ROW: times in microseconds, the amount in cents


class Changes(NamedTuple):
    """What a batch's changes come to.

    Attributes:
        rows: the gold rows that differ by them, in parts.
        beyond: customers whose total has left decimal(18,2) by them.
    """

    rows: Iterator[list[Row]]
    beyond: list[str]


@contextmanager
def change(
    state: State,
    sums: pa.Table,
    profiles: pa.Table,
    ended: Iterable[str],
    to: Mapping[Table, Position],
    in_gold: Callable[[Sequence[str]], Iterable[str]],
) -> Iterator[Changes]:
    """Let the state take a batch's changes and yield what they come to; kept unless the body fails.

    Args:
        state: holds both tables as they are where the batch begins.
        sums: one row a customer, as `summarised` makes them.
        profiles: one row a customer, as `profile_records.newest` makes them.
        ended: those of them whose profile has ended in the batch, whether or not another came after.
        to: the pair of places that includes the batch.
        in_gold: tells which of some customers have a row in gold before the batch; asked for those alone whose
            profile has ended while their row was frozen.
    """
    with state.change() as connection:
        for table, place in to.items():
            state.advance(table, place.version, place.commit)
        yield take_in(connection, sums, profiles, ended, in_gold)


def take_in(
    connection: sqlite3.Connection,
    sums: pa.Table,
    profiles: pa.Table,
    ended: Iterable[str],
    in_gold: Callable[[Sequence[str]], Iterable[str]],
) -> Changes:
    """Change the state in a database by a batch, and return what that comes to; see `change`."""
    for name in ("changed", "before", "beyond", "over"):
        connection.execute(f"DELETE FROM {name}")  # noqa: S608 - the names are ours
    sides = [*sums.column("customer_id").chunks, *profiles.column("customer_id").chunks]
    customers = pc.unique(pa.chunked_array(sides, pa.string())).sort()
    connection.executemany("INSERT INTO changed VALUES (?)", tuples(pa.table({"customer_id": customers})))
    connection.execute(REMEMBER)
    connection.execute(BEYOND)
    connection.executemany(ADD, tuples(sums))
    connection.executemany(profile_records.CHANGE, profile_records.values(profiles))
    connection.executemany(OVER, ((customer,) for customer in ended))
    if frozen := [customer for (customer,) in connection.execute(FROZEN_AND_ENDED)]:
        had_a_row = ((customer,) for customer in in_gold(frozen))
        connection.executemany("INSERT INTO before (customer_id) VALUES (?)", had_a_row)
    newly_beyond = [customer for (customer,) in connection.execute(NEWLY_BEYOND)]
    return Changes(_in_parts(connection.execute(DIFFERENT)), newly_beyond)


def _in_parts(found: sqlite3.Cursor) -> Iterator[list[Row]]:
    while rows := found.fetchmany(ROWS_AT_A_TIME):
        yield rows


def summarised(purchases: pa.Table) -> pa.Table:
    """What purchases add per customer, columns of SUMS; cents are OUT_OF_RANGE where there are so many or more."""
    cents = pc.cast(pc.multiply(purchases.column("amount"), pa.scalar(100, pa.decimal128(3, 0))), pa.int64())
    columns = {name: plain(purchases.column(name)) for name in SUMMED if name != "amount"}
    traced = _traced(columns["kafka_timestamp"], purchases.column("trace_context"))
    by_customer = _wide(pa.table(columns | {"cents": cents, "traced": traced})).group_by("customer_id")
    sums = by_customer.aggregate([("cents", "count"), ("cents", "sum"), *EXTREMES.values(), ("traced", "max")])
    return _in_range(sums.rename_columns(SUMS.names))


def _traced(times: pa.ChunkedArray, contexts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return trace contexts behind their times, in microseconds, so that the greatest is the newest; mostly none."""
    if contexts.null_count == len(contexts):
        return contexts
    digits = pc.utf8_lpad(pc.add(times, BEFORE_1970).cast(pa.string()), DIGITS, "0")
    return pc.binary_join_element_wise(digits, contexts, "")


def totalled(parts: Iterable[pa.Table]) -> pa.Table:
    """Add up what `summarised` made of parts; in the order of customers, in which a tree of keys grows fast."""
    together = _wide(pa.concat_tables([SUMS.empty_table(), *parts]))
    how = [("purchase_count", "sum"), ("cents", "sum"), *((name, how) for name, (_, how) in EXTREMES.items())]
    how.append(("traced", "max"))
    sums = together.group_by("customer_id").aggregate(how)
    return _in_range(sums.rename_columns(SUMS.names)).sort_by("customer_id")


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


def _take_purchases(connection: sqlite3.Connection, rows: pa.Table) -> None:
    connection.executemany(ADD, tuples(totalled([summarised(rows)])))


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


def tuples(rows: pa.Table) -> Iterator[tuple[object, ...]]:
    """Yield rows as tuples. Some at a time: as Python's objects they take ten times the room."""
    for part in rows.to_batches(max_chunksize=ROWS_AT_A_TIME):
        yield from zip(*(column.to_pylist() for column in part.columns), strict=True)
