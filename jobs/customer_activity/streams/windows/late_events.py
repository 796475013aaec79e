"""Late events: which purchases do the windows leave out, by how much are they late, and why?

Reads      silver.timed_purchases, change data feed
Writes     ops.late_events (append)
Grain      one row per purchase and window that leaves it out; one alone, without a window, where all of them do,
           or where it is of sessions
On restart what the newest commit notes as read is left out

It goes by the rules that the windows go by, on the same stamps: a purchase is in a window or it is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.appended import Appended
from customer_activity.engine.derived import Definition
from customer_activity.lake.datafiles import in_parts
from customer_activity.lake.reducing import PART_ROWS
from customer_activity.streams.event_time.clock import EXPECTED as STAMPED
from customer_activity.streams.windows import daily, lateness, weekly
from customer_activity.streams.windows.days import Days, windows_of
from customer_activity.streams.windows.lateness import Late, Rules
from customer_activity.topology import Made, Reads, Spec, Writes

WINDOWS = (daily.DAYS, weekly.DAYS)
OF_PURCHASE = ("purchase_id", "customer_id", "amount", "occurred_at", "partition", "offset", "landing")
EXPECTED = """
WITH stamped AS ({stamped}),
given AS (
    SELECT stamped.*, grace FROM stamped ANTI JOIN reprocessed USING (purchase_id),
        (SELECT to_microseconds(round(grace_hours * 3600000000)::BIGINT) AS grace FROM definition)
),
windows AS (
    SELECT placed.*, excluded_from, first.begins AS window_start, after.begins AS window_end
    FROM (
            SELECT given.*, there.day FROM given
            ASOF JOIN (FROM days WHERE is_there) AS there ON given.occurred_at >= there.begins
        ) AS placed,
        (VALUES {windows}) AS tables(excluded_from, days), unnest(range(tables.days)) AS hops(hop)
    JOIN days AS first ON first.day = placed.day - hop::INTEGER
    JOIN days AS after ON after.day = first.day + tables.days::INTEGER
    WHERE coalesce(partition_time - occurred_at <= grace, true)
)
SELECT {columns}, '{late}' AS reason, date_diff('millisecond', occurred_at, partition_time) AS late_by_ms,
    NULL::VARCHAR AS excluded_from, NULL::TIMESTAMPTZ AS window_start, NULL::TIMESTAMPTZ AS window_end
FROM given WHERE partition_time - occurred_at > grace
UNION ALL BY NAME
SELECT {columns}, '{closed}' AS reason, date_diff('millisecond', occurred_at, watermark) AS late_by_ms,
    '{sessions}' AS excluded_from, NULL::TIMESTAMPTZ AS window_start, NULL::TIMESTAMPTZ AS window_end
FROM given WHERE coalesce(partition_time - occurred_at <= grace, true) AND watermark >= occurred_at + grace
UNION ALL BY NAME
SELECT {columns}, '{closed}' AS reason, date_diff('millisecond', window_end, watermark) AS late_by_ms,
    excluded_from, window_start, window_end
FROM windows WHERE watermark >= window_end + grace
"""
SPEC = Spec(
    "late_events",
    reads=(Reads(Table.TIMED_PURCHASES, progress=Table.LATE_EVENTS),),
    writes=(
        Writes(
            Table.LATE_EVENTS,
            key=("purchase_id", "excluded_from", "window_start"),
            expected=EXPECTED.format(
                stamped=STAMPED,
                windows=", ".join(f"('{each.table.label}', {each.days})" for each in WINDOWS),
                columns=", ".join(f'"{name}"' for name in OF_PURCHASE),
                late=Late.LATER_THAN_GRACE,
                closed=Late.WINDOW_CLOSED,
                sessions=Table.SESSIONS.label,
            ),
            made=(
                Made("reason", ("occurred_at", "partition_time", "watermark")),
                Made("late_by_ms", ("occurred_at", "partition_time")),
                Made("excluded_from", ("occurred_at", "watermark")),
                Made("window_start", ("occurred_at",)),
                Made("window_end", ("occurred_at",)),
            ),
        ),
    ),
    promises="each purchase that a window leaves out is listed once for it",
    is_behind=True,
    is_optional=True,
    uses_time_zone=True,
)
COLUMNS = [*OF_PURCHASE, "partition_time", "watermark"]


def stream(definition: Definition, taken_in: frozenset[str] = frozenset()) -> Appended:
    """Return the stream for one definition of the windows, and for late purchases that are taken in."""
    derive = partial(late_ones, definition.time_zone, Rules(definition.grace, taken_in))
    return Appended(SPEC, COLUMNS, derive, definition=definition, define=stream)


def late_ones(time_zone: str, rules: Rules, purchases: Iterable[pa.RecordBatch]) -> pa.Table:
    """Which purchases are left out. Grain: see the module; columns of ops.late_events."""
    schema = arrow_schema(Table.LATE_EVENTS)
    found = [schema.empty_table()]
    for part in in_parts(purchases, PART_ROWS):
        is_late = rules.is_late(part)
        late = part.filter(is_late)
        found.append(_listed(late, Late.LATER_THAN_GRACE, lateness.lateness(late)))
        for days in WINDOWS:
            found += _closed(part.filter(pc.invert(is_late)), days, time_zone, rules)
        found.append(_without_session(part.filter(pc.invert(is_late)), rules))
    return pa.concat_tables(found)


def _closed(purchases: pa.Table, days: Days, time_zone: str, rules: Rules) -> Iterator[pa.Table]:
    """Yield those that came for windows which were closed, with these."""
    for rows in windows_of(purchases, days, time_zone):
        closed = rows.filter(rules.is_closed(rows, rows.column("window_end")))
        late_by = pc.subtract(closed.column("watermark").cast(pa.int64()), closed.column("window_end").cast(pa.int64()))
        yield _listed(closed, Late.WINDOW_CLOSED, late_by, days.table.label)


def _without_session(purchases: pa.Table, rules: Rules) -> pa.Table:
    """Return those that came when a session with them might be closed: which one it was is not looked up."""
    closed = purchases.filter(rules.is_closed(purchases, purchases.column("occurred_at")))
    late_by = pc.subtract(closed.column("watermark").cast(pa.int64()), closed.column("occurred_at").cast(pa.int64()))
    return _listed(closed, Late.WINDOW_CLOSED, late_by, Table.SESSIONS.label)


def _listed(purchases: pa.Table, reason: Late, late_by: pa.ChunkedArray, excluded_from: str | None = None) -> pa.Table:
    schema, rows = arrow_schema(Table.LATE_EVENTS), purchases.num_rows
    has_window = "window_end" in purchases.column_names
    columns = {
        **{name: purchases.column(name) for name in OF_PURCHASE},
        "reason": pa.repeat(pa.scalar(reason.value), rows),
        "late_by_ms": pc.divide(late_by, 1000),
        "excluded_from": pa.repeat(pa.scalar(excluded_from, pa.string()), rows),
        **{
            name: purchases.column(name) if has_window else pa.nulls(rows, schema.field(name).type)
            for name in ("window_start", "window_end")
        },
    }
    return pa.table(columns).select(schema.names).cast(schema)


STREAM = stream(Definition())
