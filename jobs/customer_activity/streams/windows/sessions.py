"""Sessions: what did each customer buy in one go, and is that figure final?

Reads      silver.timed_purchases, change data feed
Writes     gold.customer_sessions (merge; rows that a late purchase joins go, and one comes)
Grain      one row per customer_id and session_start: purchases that were not too late, each at most the gap after the
           one before
On restart what the newest commit notes as read is left out: what was added is not added again

A session is final once the watermark has passed its end, the gap and the grace. Then it never changes, unless somebody
takes late purchases in on purpose: no purchase counts that lands when the watermark is at its own time and the grace,
or later. Proof, where W is the watermark before a landing, S a session that is final by then, and p a purchase of that
landing that counts:

    S.session_end + gap + grace <= W         since S is final
    W < p.occurred_at + grace                since p counts
    so S.session_end + gap < p.occurred_at   and p is too far behind S to join it.

The watermark never goes back, so this holds for each p that lands later, too, and no chain of them reaches S either. So
S is the same whether it was made final in a batch of its own or in one that has p as well.

Spark's executors import this module and need little for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.columns import UTC_MICROS
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.closing import Closing
from customer_activity.engine.current_rows import CurrentRows
from customer_activity.engine.derived import Definition
from customer_activity.engine.regrouping import Regrouping
from customer_activity.lake.datafiles import in_parts
from customer_activity.lake.reducing import PART_ROWS
from customer_activity.streams.event_time.clock import EXPECTED as STAMPED
from customer_activity.streams.windows import lateness
from customer_activity.streams.windows.lateness import Rules
from customer_activity.topology import How, Made, Reads, Spec, Writes

COLUMNS = ["customer_id", "amount", *lateness.STAMPS, "next_watermark"]
# The same, as gaps and islands over all purchases at once: `activity verify` holds the table against it.
EXPECTED = f"""
WITH stamped AS ({STAMPED}),
counted AS (
    SELECT customer_id, occurred_at, amount, gap, grace
    FROM stamped, (
        SELECT to_microseconds(round(grace_hours * 3600000000)::BIGINT) AS grace,
            to_microseconds(round(session_gap_minutes * 60000000)::BIGINT) AS gap
        FROM definition
    )
    WHERE purchase_id IN (SELECT purchase_id FROM reprocessed)
        OR coalesce(partition_time - occurred_at <= grace, true) AND coalesce(watermark < occurred_at + grace, true)
),
begun AS (
    SELECT *, coalesce(occurred_at > lag(occurred_at) OVER customers + gap, true) AS begins
    FROM counted WINDOW customers AS (PARTITION BY customer_id ORDER BY occurred_at)
),
islands AS (
    SELECT *, sum(begins::INTEGER) OVER (PARTITION BY customer_id ORDER BY occurred_at) AS island FROM begun
)
SELECT customer_id, min(occurred_at) AS session_start, max(occurred_at) AS session_end,
    max(occurred_at) + any_value(gap) AS window_end, count(*) AS purchase_count,
    sum(amount)::DECIMAL(38, 2) AS total_amount,
    coalesce(max(occurred_at) + any_value(gap) + any_value(grace) <= (SELECT max(next_watermark) FROM stamped), false)
        AS is_final
FROM islands GROUP BY customer_id, island
"""  # noqa: S608 - constants
SPEC = Spec(
    "sessions",
    reads=(Reads(Table.TIMED_PURCHASES, progress=Table.SESSIONS),),
    writes=(
        Writes(
            Table.SESSIONS,
            key=("customer_id", "session_start"),
            expected=EXPECTED,
            made=(
                *(
                    Made(name, ("occurred_at",), How.AGGREGATION)
                    for name in ("session_start", "session_end", "window_end")
                ),
                Made("purchase_count", ("purchase_id",), How.AGGREGATION),
                Made("total_amount", ("amount",), How.AGGREGATION),
                Made("is_final", ("next_watermark",), How.AGGREGATION),
            ),
        ),
    ),
    promises="each purchase that is not too late is in one session, and a session is final once",
    is_behind=True,
    is_spread=True,
    is_optional=True,
)


def stream(definition: Definition, taken_in: frozenset[str] = frozenset()) -> CurrentRows:
    """Return the stream for one definition of sessions, and for late purchases that are taken in."""
    gap = definition.session_gap
    return CurrentRows(
        SPEC,
        COLUMNS,
        partial(per_session, gap, Rules(definition.grace, taken_in)),
        closing=Closing(definition.grace),
        definition=definition,
        define=stream,
        regrouping=Regrouping("customer_id", partial(merged, gap), near),
    )


def per_session(gap: int, rules: Rules, purchases: Iterable[pa.RecordBatch]) -> pa.Table:
    """Which sessions purchases make by themselves. Grain: one row per session, columns of gold.customer_sessions."""
    found = [arrow_schema(Table.SESSIONS).empty_table()]
    for part in in_parts(purchases, PART_ROWS):
        in_time = part.filter(pc.invert(rules.is_late(part)))
        found.append(merged(gap, _alone(in_time.filter(pc.invert(_is_closed(rules, in_time))), gap)))
    return merged(gap, pa.concat_tables(found))


def _is_closed(rules: Rules, purchases: pa.Table) -> pa.ChunkedArray:
    """Return for which purchases a session with them might be closed: one that ended up to the gap before them."""
    return rules.is_closed(purchases, purchases.column("occurred_at"))


def _alone(purchases: pa.Table, gap: int) -> pa.Table:
    """Return a session of each purchase."""
    at = purchases.column("occurred_at").cast(UTC_MICROS)
    rows = {
        "customer_id": purchases.column("customer_id"),
        "session_start": at,
        "session_end": at,
        "window_end": pc.add(at.cast(pa.int64()), gap).cast(UTC_MICROS),
        "purchase_count": pa.repeat(pa.scalar(1, pa.int64()), purchases.num_rows),
        "total_amount": purchases.column("amount").cast(pa.decimal128(38, 2)),
        "is_final": pa.repeat(pa.scalar(value=False), purchases.num_rows),
    }
    return pa.table(rows, schema=arrow_schema(Table.SESSIONS))


def merged(gap: int, sessions: pa.Table) -> pa.Table:
    """Join sessions of a customer with at most a gap (microseconds) from one to the next; none of them is final then.

    They may overlap, in any order: of purchases that were looked at apart. Grain and columns stay.
    """
    schema = arrow_schema(Table.SESSIONS)
    numbers = pa.array(_numbers(gap, sessions), pa.int64())
    grouped = (
        sessions.append_column("number", numbers)
        .group_by("number")
        .aggregate(
            [
                ("customer_id", "min"),
                ("session_start", "min"),
                ("session_end", "max"),
                ("window_end", "max"),
                ("purchase_count", "sum"),
                ("total_amount", "sum"),
            ]
        )
        .drop_columns("number")
    )
    is_final = pa.repeat(pa.scalar(value=False), grouped.num_rows)
    return grouped.append_column("is_final", is_final).rename_columns(schema.names).cast(schema)


def _numbers(gap: int, sessions: pa.Table) -> npt.NDArray[np.int64]:
    """Return a number of each session, the same for those that are one."""
    customers = np.concatenate(
        [
            np.empty(0, np.int64),
            *(
                chunk.indices.to_numpy()
                for chunk in sessions.column("customer_id").dictionary_encode().unify_dictionaries().chunks
            ),
        ]
    )
    starts, ends = (
        np.asarray(sessions.column(name).cast(pa.int64()).to_numpy(), np.int64)
        for name in ("session_start", "session_end")
    )
    order = np.lexsort([starts, customers])
    # The latest end so far of the customer: as a place in the order of (customer, end), in which all of one customer
    # are after all of the one before.
    by_end = np.lexsort([ends, customers])
    places = np.empty(len(order), np.int64)
    places[by_end] = np.arange(len(order))
    latest = by_end[np.maximum.accumulate(places[order])]
    begins = np.ones(len(order), np.int64)
    before, after = latest[:-1], order[1:]
    begins[1:] = (customers[before] != customers[after]) | (starts[after] > ends[before] + gap)
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(begins)
    return numbers


def near(changes: pa.Table) -> pc.Expression:
    """Return which sessions of the table are within a gap of changes, as far as these reach from first to last."""
    first, last = pc.min(changes.column("session_start")), pc.max(changes.column("window_end"))
    return (pc.field("window_end") >= first) & (pc.field("session_start") <= last)


STREAM = stream(Definition())
