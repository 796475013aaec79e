"""Windows of whole days in a time zone, that hop by one day: what a customer bought in each.

A day is from midnight to midnight where the time zone is, so it has 23 or 25 hours when clocks change. Where midnight
does not exist, it begins at the first moment after; where there are two, at the first.

Spark's executors import this module and need little for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.closing import Closing
from customer_activity.engine.current_rows import CurrentRows
from customer_activity.engine.derived import Definition
from customer_activity.lake.datafiles import in_parts
from customer_activity.lake.folding import Aggregate
from customer_activity.lake.reducing import PART_ROWS
from customer_activity.streams.windows import lateness
from customer_activity.streams.windows.lateness import Rules
from customer_activity.topology import How, Made, Spec

AMOUNT = pa.decimal128(38, 2)
COLUMNS = ["customer_id", "amount", *lateness.STAMPS, "next_watermark"]
AGGREGATES = {
    "window_start": Aggregate.MIN,
    "window_end": Aggregate.MAX,
    "purchase_count": Aggregate.SUM,
    "total_amount": Aggregate.SUM,
    "first_purchase_at": Aggregate.MIN,
    "last_purchase_at": Aggregate.MAX,
    "is_final": Aggregate.MAX,
}
# The same, as a query over all purchases at once: `activity verify` holds the table against it.
EXPECTED = """
WITH stamped AS ({stamped}),
windows AS (
    SELECT placed.*, first.day AS first_day, first.begins AS window_start, after.begins AS window_end,
        to_microseconds(round(grace_hours * 3600000000)::BIGINT) AS grace
    FROM (
            SELECT stamped.*, there.day FROM stamped
            ASOF JOIN (FROM days WHERE is_there) AS there ON stamped.occurred_at >= there.begins
        ) AS placed,
        definition, range({days}) AS hops(hop)
    JOIN days AS first ON first.day = placed.day - hop::INTEGER
    JOIN days AS after ON after.day = first.day + {days}
)
SELECT customer_id, first_day AS {first_day}, min(window_start) AS window_start, max(window_end) AS window_end,
    count(*) AS purchase_count, sum(amount)::DECIMAL(38, 2) AS total_amount,
    min(occurred_at) AS first_purchase_at, max(occurred_at) AS last_purchase_at,
    coalesce(max(window_end) + any_value(grace) <= (SELECT max(next_watermark) FROM stamped), false) AS is_final
FROM windows
WHERE purchase_id IN (SELECT purchase_id FROM reprocessed)
    OR coalesce(partition_time - occurred_at <= grace, true) AND coalesce(watermark < window_end + grace, true)
GROUP BY customer_id, first_day
"""


class Days(NamedTuple):
    """A table of windows: of how many days they are, and the column that names their first one."""

    table: Table
    days: int
    first_day: str

    @property
    def made(self) -> tuple[Made, ...]:
        """What its columns are made of."""
        return (
            *(Made(name, ("occurred_at",)) for name in (self.first_day, "window_start", "window_end")),
            Made("purchase_count", ("purchase_id",), How.AGGREGATION),
            Made("total_amount", ("amount",), How.AGGREGATION),
            Made("first_purchase_at", ("occurred_at",), How.AGGREGATION),
            Made("last_purchase_at", ("occurred_at",), How.AGGREGATION),
            Made("is_final", ("next_watermark",), How.AGGREGATION),
        )


def stream(spec: Spec, days: Days, definition: Definition, taken_in: frozenset[str] = frozenset()) -> CurrentRows:
    """Return the stream of a table of windows, for one definition of them and for late purchases that are taken in."""
    return CurrentRows(
        spec,
        COLUMNS,
        partial(per_window, days, definition.time_zone, Rules(definition.grace, taken_in)),
        AGGREGATES,
        closing=Closing(definition.grace),
        definition=definition,
        define=partial(stream, spec, days),
    )


def per_window(days: Days, time_zone: str, rules: Rules, purchases: Iterable[pa.RecordBatch]) -> pa.Table:
    """What purchases add to windows. Grain: one row per customer and window, columns of the table."""
    schema = arrow_schema(days.table)
    found = [schema.empty_table()]
    for part in in_parts(purchases, PART_ROWS):
        counted = part.filter(pc.invert(rules.is_late(part)))
        for rows in windows_of(counted, days, time_zone):
            in_time = rows.filter(pc.invert(rules.is_closed(rows, rows.column("window_end"))))
            found.append(_added(in_time, days).select(schema.names).cast(schema))
    together = pa.concat_tables(found)
    key = ["customer_id", days.first_day]
    summed = together.group_by(key).aggregate([(name, how.value) for name, how in AGGREGATES.items()])
    return summed.rename_columns(schema.names).cast(schema)


def windows_of(purchases: pa.Table, days: Days, time_zone: str) -> Iterator[pa.Table]:
    """Yield purchases with the windows that they are in: each in one of each table, from the latest back."""
    local = pc.local_timestamp(purchases.column("occurred_at").cast(pa.timestamp("us", time_zone)))
    day = pc.floor_temporal(local, unit="day").cast(pa.date32()).cast(pa.int32())
    for hop in range(days.days):
        first = pc.subtract(day, pa.scalar(hop, pa.int32()))
        yield (
            purchases.append_column(days.first_day, first.cast(pa.date32()))
            .append_column("window_start", midnight(first, time_zone))
            .append_column("window_end", midnight(pc.add(first, pa.scalar(days.days, pa.int32())), time_zone))
        )


def midnight(day: pa.ChunkedArray, time_zone: str) -> pa.ChunkedArray:
    """Return when days begin, by their number since 1970."""
    naive = day.cast(pa.date32()).cast(pa.timestamp("us"))
    return pc.assume_timezone(naive, time_zone, ambiguous="earliest", nonexistent="latest").cast(
        pa.timestamp("us", "UTC")
    )


def _added(rows: pa.Table, days: Days) -> pa.Table:
    """Return what each customer's purchases come to."""
    ones = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
    prepared = pa.table(
        {
            "customer_id": rows.column("customer_id"),
            days.first_day: rows.column(days.first_day),
            "window_start": rows.column("window_start"),
            "window_end": rows.column("window_end"),
            "purchase_count": ones,
            "total_amount": rows.column("amount").cast(AMOUNT),
            "first_purchase_at": rows.column("occurred_at"),
            "last_purchase_at": rows.column("occurred_at"),
            "is_final": pa.repeat(pa.scalar(value=False), rows.num_rows),
        }
    )
    grouped = prepared.group_by(["customer_id", days.first_day])
    return grouped.aggregate([(name, how.value) for name, how in AGGREGATES.items()]).rename_columns(
        prepared.column_names
    )
