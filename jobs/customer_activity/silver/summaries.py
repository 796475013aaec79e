"""Summaries: what each customer has bought so far, merged behind the path to the view.

Reads      silver.purchases, change data feed
Writes     silver.purchase_summaries (merge, additive)
Grain      one row per customer_id that bought
On restart the merge carries (txnAppId, batch_id): a batch that was added is not added again
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from customer_activity import delta, feeds
from customer_activity.catalog import Table
from customer_activity.datafiles import arrow_schema
from customer_activity.merging import merge
from customer_activity.microbatch import MicroBatch, fetched
from customer_activity.schemas import SCHEMAS
from customer_activity.settings import Settings

SOURCE = Table.PURCHASES
COLUMNS = ["customer_id", "amount", "occurred_at", "kafka_timestamp"]

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


def summarise(purchases: DataFrame) -> DataFrame:
    """What the purchases add per customer. Grain: one row per customer, columns of silver.purchase_summaries."""
    return (
        purchases.groupBy("customer_id")
        .agg(
            F.count("*").alias("purchase_count"),
            F.sum("amount").cast("decimal(18,2)").alias("total_amount"),
            F.min("occurred_at").alias("first_purchase_at"),
            F.max("occurred_at").alias("last_purchase_at"),
            F.max("kafka_timestamp").alias("last_kafka_timestamp"),
        )
        .select(*SCHEMAS[Table.SUMMARIES].fieldNames())
    )


def summarise_here(purchases: pa.Table) -> pa.Table:
    """Sum purchases that are in this process up as `summarise` does."""
    of_customer = purchases.group_by("customer_id").aggregate(
        [
            ("amount", "count"),
            ("amount", "sum"),
            ("occurred_at", "min"),
            ("occurred_at", "max"),
            ("kafka_timestamp", "max"),
        ]
    )
    schema = arrow_schema(Table.SUMMARIES)
    return of_customer.rename_columns(schema.names).cast(schema)


def merge_batch(purchases: DataFrame, batch: MicroBatch, *, settings: Settings) -> None:
    """Add one batch's purchases to the summaries."""
    with batch.phase("compute"):
        few = feeds.appended(settings.lake, {SOURCE: COLUMNS}, batch.versions)
        source = fetched(summarise(purchases)) if few is None else summarise_here(few)
    with batch.phase("commit"):
        merge(source, settings.lake, Table.SUMMARIES, batch, key="customer_id", update=ADD_TO_SUMMARY)
