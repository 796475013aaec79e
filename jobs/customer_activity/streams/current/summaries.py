"""Summaries: what each customer has bought so far, merged behind the hot path.

Reads      silver.purchases, change data feed
Writes     silver.purchase_summaries (merge, additive)
Grain      one row per customer_id that bought
On restart what the newest commit notes as read is left out: what was added is not added again

A total that decimal(18,2) cannot hold is null from then on; count and times go on.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from customer_activity.catalog import Table
from customer_activity.contracts.columns import EXTREMES, SUMMED
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.current_rows import CurrentRows
from customer_activity.lake.datafiles import in_parts
from customer_activity.lake.folding import Aggregate, fitting
from customer_activity.lake.reducing import PART_ROWS
from customer_activity.topology import How, Made, Reads, Spec, Writes

SPEC = Spec(
    "summaries",
    reads=(Reads(Table.PURCHASES, progress=Table.SUMMARIES),),
    writes=(
        Writes(
            Table.SUMMARIES,
            key=("customer_id",),
            made=(
                Made("purchase_count", ("purchase_id",), How.AGGREGATION),
                Made("total_amount", ("amount",), How.AGGREGATION),
                *(Made(name, (column,), How.AGGREGATION) for name, (column, _) in EXTREMES.items()),
            ),
        ),
    ),
    promises="each purchase is added to its customer's running summary once",
    is_behind=True,
    is_spread=True,
)
WIDE = pa.decimal128(38, 2)  # holds the sum of more purchases than there can be
# How a batch's summary joins the stored one: additive, so history is never read again. A total that is null is out of
# range, and stays so.
AGGREGATES = {
    "purchase_count": Aggregate.SUM,
    "total_amount": Aggregate.SUM,
    **{name: Aggregate(how) for name, (_, how) in EXTREMES.items()},
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
    sums = sums.rename_columns(wide.names)
    return pa.table([fitting(sums.column(field.name), field.type) for field in schema], schema=schema)


STREAM = CurrentRows(SPEC, SUMMED, summarise, aggregates=AGGREGATES)
