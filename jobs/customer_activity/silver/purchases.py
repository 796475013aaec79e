"""Which purchase records count, and what they add to each customer's summary. Pure steps, no IO."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from customer_activity.catalog import Table
from customer_activity.microbatch import ACCEPTED, DUPLICATE, QUARANTINED
from customer_activity.schemas import SCHEMAS

CONTENT = ("customer_id", "product_id", "amount", "currency", "occurred_at")


def judge(events: DataFrame, counted: DataFrame) -> DataFrame:
    """Add `verdict` to each purchase record: accepted, duplicate, or quarantined (a repeat with other content).

    Adds `is_new` too, always true here: both topics' judged records are counted alike.

    The first record of a purchase id counts: the one already in silver, or else the lowest (partition, offset).
    A record is known by its coordinates. So when a batch is repeated after its rows were appended, they are found in
    silver, recognised as themselves, and accepted again.

    Args:
        events: bronze purchase records of the batch.
        counted: silver.purchases rows that share a purchase id with the batch (others do no harm).
    """
    earliest = Window.partitionBy("purchase_id").orderBy("partition", "offset")
    first_here = F.struct("partition", "offset", *CONTENT)
    first_ever = counted.select("purchase_id", F.struct("partition", "offset", *CONTENT).alias("counted"))
    judged = (
        events.withColumn("here", F.first(first_here).over(earliest))
        .join(first_ever, on="purchase_id", how="left")
        .withColumn("first", F.coalesce("counted", "here"))
        .withColumn("verdict", _verdict())
    )
    return judged.select(*events.columns, "verdict", F.lit(True).alias("is_new"))


def _verdict() -> Column:
    is_first = (F.col("partition") == F.col("first.partition")) & (F.col("offset") == F.col("first.offset"))
    is_same = F.lit(True)
    for name in CONTENT:
        is_same &= F.col(name).eqNullSafe(F.col(f"first.{name}"))
    return F.when(is_first, ACCEPTED).when(is_same, DUPLICATE).otherwise(QUARANTINED)


def accepted(judged: DataFrame) -> DataFrame:
    """The records that count, as silver.purchases has them."""
    return judged.where(F.col("verdict") == ACCEPTED).select(*SCHEMAS[Table.PURCHASES].fieldNames())


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


# How a batch's summary (`s`) adds to the stored one (`t`): additive, so history is never read again.
ADD_TO_SUMMARY = {
    "purchase_count": "t.purchase_count + s.purchase_count",
    "total_amount": "cast(t.total_amount + s.total_amount as decimal(18,2))",
    "first_purchase_at": "least(t.first_purchase_at, s.first_purchase_at)",
    "last_purchase_at": "greatest(t.last_purchase_at, s.last_purchase_at)",
    "last_kafka_timestamp": "greatest(t.last_kafka_timestamp, s.last_kafka_timestamp)",
}
