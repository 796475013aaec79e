"""Summaries: what each customer has bought so far, merged behind the hot path.

Reads      silver.purchases, change data feed
Writes     silver.purchase_summaries (merge, additive)
Grain      one row per customer_id that bought
On restart what the newest commit notes as read is left out: what was added is not added again

A total that decimal(18,2) cannot hold is null from then on; count and times go on.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.tables import EXTREMES, SUMMED, arrow_schema
from customer_activity.engine.changes import CurrentRows
from customer_activity.lake.datafiles import in_parts
from customer_activity.lake.merging import PART_ROWS
from customer_activity.topology import Reads, Spec, Writes

SPEC = Spec(
    "summaries",
    reads=(Reads(Table.PURCHASES, progress=Table.SUMMARIES),),
    writes=(Writes(Table.SUMMARIES, key=("customer_id",)),),
    promises="each purchase is added to its customer's running summary once",
    is_behind=True,
)
WIDE = pa.decimal128(38, 2)  # holds the sum of more purchases than there can be
MOST = Decimal("9999999999999999.99")  # of a total

BOTH = "cast(t.total_amount as decimal(38,2)) + cast(s.total_amount as decimal(38,2))"
# How a batch's summary (`s`) adds to the stored one (`t`): additive, so history is never read again. What is null is
# out of range, and stays so.
ADD_TO_SUMMARY = {
    "purchase_count": "t.purchase_count + s.purchase_count",
    "total_amount": f"try_cast({BOTH} as decimal(18,2))",
    **{name: f"{'least' if how == 'min' else 'greatest'}(t.{name}, s.{name})" for name, (_, how) in EXTREMES.items()},
}


def summarise(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """What purchases add per customer. Grain: one row per customer, columns of silver.purchase_summaries."""
    schema = arrow_schema(Table.SUMMARIES)
    wide = schema.set(schema.get_field_index("total_amount"), pa.field("total_amount", WIDE))
    names = schema.names[1:]
    parts = [
        part.append_column("one", pa.repeat(1, part.num_rows))
        .set_column(part.column_names.index("amount"), "amount", part.column("amount").cast(WIDE))
        .group_by("customer_id")
        .aggregate([("one", "sum"), ("amount", "sum"), *EXTREMES.values()])
        .rename_columns(wide.names)
        for part in in_parts(batches, PART_ROWS)
    ]
    together = pa.concat_tables([wide.empty_table(), *(part.cast(wide) for part in parts)])
    how = ("sum", "sum", *(how for _, how in EXTREMES.values()))
    sums = together.group_by("customer_id").aggregate(list(zip(names, how, strict=True)))
    return _in_range(sums.rename_columns(wide.names)).cast(schema)


def _in_range(sums: pa.Table) -> pa.Table:
    """Make totals null that the table cannot hold."""
    totals = sums.column("total_amount")
    held = pc.if_else(pc.less_equal(totals, pa.scalar(MOST, WIDE)), totals, pa.scalar(None, WIDE))
    return sums.set_column(sums.column_names.index("total_amount"), "total_amount", held)


STREAM = CurrentRows(SPEC, SUMMED, summarise, update=ADD_TO_SUMMARY)
