"""Bronze: land both topics, each record exactly once, accepted or quarantined.

Reads      Kafka: the purchase and the profile topic, one batch cut over both
Writes     bronze.purchase_events, bronze.customer_profiles, bronze.quarantine (append)
Grain      one row per Kafka record, by (topic, partition, offset)
On restart a repeated batch reads the same offsets; each append carries (txnAppId, batch_id), so none lands twice
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from customer_activity import delta, kafka
from customer_activity.bronze.bad_share import BadShareGuard
from customer_activity.bronze.parsing import parse_batch
from customer_activity.catalog import Table
from customer_activity.microbatch import ACCEPTED, QUARANTINED, READ, ArrowStep, MicroBatch, held
from customer_activity.schemas import COORDINATES, PROFILE_FIELDS, PURCHASE_FIELDS, RAW, SCHEMAS
from customer_activity.settings import Settings

PARSED = StructType(
    list(
        {
            field.name: field
            for part in (
                RAW,
                COORDINATES,
                StructType().add("reason", "string").add("detail", "string"),
                PURCHASE_FIELDS,
                PROFILE_FIELDS,
                StructType().add("is_tombstone", "boolean"),
            )
            for field in part.fields
        }.values()
    )
)


def read(spark: SparkSession, settings: Settings) -> DataFrame:
    """Stream both topics as one source: raw key, value and headers with their coordinates."""
    return (
        spark.readStream.format("kafka")
        .options(**kafka.spark_options(settings))
        .option("subscribe", f"{settings.purchase_topic},{settings.profile_topic}")
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", settings.max_offsets_per_trigger)
        .load()
    )


def contract(settings: Settings) -> ArrowStep:
    """Bytes to typed columns, with `reason` and `detail` where a record breaks its contract: PARSED, row by row."""
    return partial(
        parse_batch,
        purchase_topic=settings.purchase_topic,
        profile_topic=settings.profile_topic,
        currency=settings.currency,
    )


def accepted_from(parsed: DataFrame, topic: str, table: Table) -> DataFrame:
    """Rows of one topic that keep the contract, as its bronze table has them."""
    return (
        parsed.where((F.col("topic") == topic) & F.col("reason").isNull())
        .withColumn("ingested_at", F.current_timestamp())
        .select(*SCHEMAS[table].fieldNames())
    )


def refused(parsed: DataFrame) -> DataFrame:
    """Rows that break the contract, as bronze.quarantine has them."""
    return (
        parsed.where(F.col("reason").isNotNull())
        .withColumn("quarantined_at", F.current_timestamp())
        .select(*SCHEMAS[Table.QUARANTINE].fieldNames())
    )


def land(records: DataFrame, batch: MicroBatch, *, settings: Settings, guard: BadShareGuard) -> None:
    """Write one batch: count, judge the share of bad records, append."""
    with held(records, contract(settings), PARSED) as parsed:
        outcomes = parsed.counts("topic", "reason")
        for (topic, reason), count in outcomes.items():
            batch.count(topic, READ, count)
            batch.count(topic, ACCEPTED if reason is None else QUARANTINED, count)
            batch.rows += count
        guard.judge(outcomes)
        for topic, table in (
            # Profiles first: silver may cut its batch between the two, and a purchase without a profile shows nothing.
            (settings.profile_topic, Table.PROFILE_EVENTS),
            (settings.purchase_topic, Table.PURCHASE_EVENTS),
        ):
            if batch.counts[topic].get(ACCEPTED):
                delta.append(accepted_from(parsed.frame, topic, table), settings.lake, table, batch)
        if any(outcome.get(QUARANTINED) for outcome in batch.counts.values()):
            delta.append(refused(parsed.frame), settings.lake, Table.QUARANTINE, batch)
