"""What a customer's purchases come to: sums that add up, however purchases are divided.

Of a customer's purchases with a trace the newest is kept, with its time: it goes on with a row that is as new as that.

A total that leaves decimal(18,2) is kept as OUT_OF_RANGE for ever. Executors import this module, too.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.contracts.columns import EXTREMES, SUMMED
from customer_activity.state.columns import plain

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
    return pc.binary_join_element_wise(in_digits(times), contexts, "")


def in_digits(times: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return times in microseconds as texts that are in the same order."""
    return pc.utf8_lpad(pc.add(times, BEFORE_1970).cast(pa.string()), DIGITS, "0")


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
