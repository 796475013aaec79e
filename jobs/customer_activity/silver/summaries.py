"""Summaries: what each customer has bought so far, merged behind the path to the view.

Reads      silver.purchases, change data feed
Writes     silver.purchase_summaries (merge, additive)
Grain      one row per customer_id that bought
On restart the merge carries (txnAppId, batch_id): a batch that was added is not added again
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from customer_activity import delta, feeds
from customer_activity.catalog import Table
from customer_activity.datafiles import arrow_schema, in_parts
from customer_activity.merging import PART_ROWS, merge
from customer_activity.microbatch import MicroBatch
from customer_activity.settings import Settings

SOURCE = Table.PURCHASES
COLUMNS = ["customer_id", "amount", "occurred_at", "kafka_timestamp"]
TIMES = [("occurred_at", "min"), ("occurred_at", "max"), ("kafka_timestamp", "max")]

# How a batch's summary (`s`) adds to the stored one (`t`): additive, so history is never read again.
ADD_TO_SUMMARY = {
    "purchase_count": "t.purchase_count + s.purchase_count",
    "total_amount": "cast(t.total_amount + s.total_amount as decimal(18,2))",
    "first_purchase_at": "least(t.first_purchase_at, s.first_purchase_at)",
    "last_purchase_at": "greatest(t.last_purchase_at, s.last_purchase_at)",
    "last_kafka_timestamp": "greatest(t.last_kafka_timestamp, s.last_kafka_timestamp)",
}


def read(spark: SparkSession, settings: Settings) -> DataFrame:
    """Stream the purchases that count."""
    return delta.read_changes(spark, settings.lake, SOURCE)


def summarise(purchases: Iterable[pa.Table]) -> pa.Table:
    """What the purchases add per customer. Grain: one row per customer, columns of silver.purchase_summaries."""
    schema = arrow_schema(Table.SUMMARIES)
    names = schema.names[1:]
    parts = [
        part.append_column("one", pa.repeat(1, part.num_rows))
        .group_by("customer_id")
        .aggregate([("one", "sum"), ("amount", "sum"), *TIMES])
        .rename_columns(schema.names)
        for part in purchases
    ]
    together = pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in parts)])
    sums = together.group_by("customer_id").aggregate(
        list(zip(names, ("sum", "sum", "min", "max", "max"), strict=True))
    )
    return sums.rename_columns(schema.names).cast(schema)


def merge_batch(purchases: DataFrame, batch: MicroBatch, *, settings: Settings) -> None:
    """Add one batch's purchases to the summaries."""
    with batch.phase("compute"):
        feed = feeds.read(purchases, settings.lake, {SOURCE: COLUMNS}, batch.versions)
        source = summarise(in_parts(feed.batches(SOURCE, COLUMNS), PART_ROWS))
    with batch.phase("commit"):
        merge(source, settings.lake, Table.SUMMARIES, batch, key="customer_id", update=ADD_TO_SUMMARY)
