"""Bronze: land both topics, each record exactly once, accepted or quarantined.

Reads      Kafka: the purchase and the profile topic, one batch cut over both
Writes     bronze.purchase_events, bronze.customer_profiles, bronze.quarantine (append)
Grain      one row per Kafka record, by (topic, partition, offset)
On restart a repeated batch reads the same offsets; each append carries (txnAppId, batch_id), so none lands twice
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from customer_activity import commits, kafka
from customer_activity.bronze.bad_share import BadShareGuard
from customer_activity.bronze.fetching import Fetcher
from customer_activity.bronze.landing import Landing, land_here, land_in_workers
from customer_activity.catalog import Table
from customer_activity.microbatch import ACCEPTED, QUARANTINED, READ, SMALL_BATCH_ROWS, MicroBatch, collected
from customer_activity.settings import Settings

# Profiles first: silver may cut its batch between the two, and a purchase without a profile shows nothing.
ORDER = (Table.QUARANTINE, Table.PROFILE_EVENTS, Table.PURCHASE_EVENTS)


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
        # A broker with nothing new keeps a fetch for half a second by default, and a batch waits for every partition.
        .option("kafka.fetch.max.wait.ms", "20")
        .option("maxOffsetsPerTrigger", settings.max_offsets_per_trigger)
        .load()
    )


def land(
    records: DataFrame,
    batch: MicroBatch,
    *,
    settings: Settings,
    guard: BadShareGuard,
    topic_ids: Mapping[str, str] | None = None,
    fetcher: Fetcher | None = None,
) -> None:
    """Land one batch: parse and write files, judge the share of bad records, commit.

    With `topic_ids` each commit tells which topics these are: one that is made anew begins at offset 0 again. With a
    `fetcher` a small batch's records come from it, and `records` is only a plan that nobody runs.
    """
    if topic_ids:
        batch.extra["topic_ids"] = topic_ids
    landing = Landing(settings.lake, settings.purchase_topic, settings.profile_topic, settings.currency)
    with batch.phase("read"):
        is_small = batch.records is not None and batch.records <= SMALL_BATCH_ROWS
        few = fetcher.fetch(batch.ranges) if fetcher and is_small else collected(records, batch.records)
    with batch.phase("compute"):
        landed = land_in_workers(records, landing) if few is None else land_here(few, landing)
    for (topic, reason), count in landed.outcomes.items():
        batch.count(topic, READ, count)
        batch.count(topic, ACCEPTED if reason is None else QUARANTINED, count)
        batch.rows += count
    guard.judge(landed.outcomes)
    with batch.phase("commit"):
        # Without a record (transactions leave offsets that hold none) the entry carries the batch alone: table and
        # checkpoint are compared at every start, so each batch leaves one.
        for table in [table for table in ORDER if table in landed.files] or [Table.PURCHASE_EVENTS]:
            commits.commit(records.sparkSession, settings.lake, table, landed.files.get(table, []), batch)
