"""Bronze: land both topics, each record exactly once, accepted or quarantined.

Reads      Kafka: the purchase and the profile topic, one batch cut over both
Writes     bronze.purchase_events, bronze.customer_profiles, bronze.quarantine (append)
Grain      one row per Kafka record, by (topic, partition, offset)
On restart a repeated batch reads the same offsets; each append carries (txnAppId, batch_id), so none lands twice
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from customer_activity.catalog import Table
from customer_activity.engine.observability import log
from customer_activity.kafka import clients
from customer_activity.lake import commits
from customer_activity.lake.microbatch import ACCEPTED, QUARANTINED, READ, SMALL_BATCH_ROWS, MicroBatch, collected
from customer_activity.settings import Settings
from customer_activity.streams.bronze.bad_share import BadShareGuard
from customer_activity.streams.bronze.fetching import Fetcher, Sizes
from customer_activity.streams.bronze.landing import Landed, Landing, NotForWorkers, land_here, land_in_workers
from customer_activity.streams.bronze.numbering import Numbering

# Of larger records a few come at a time, to this process: Spark's workers and its consumers hold many of them each.
LARGE_RECORD_BYTES = 8_192

# Profiles first: silver may cut its batch between the two, and a purchase without a profile shows nothing.
ORDER = (Table.QUARANTINE, Table.PROFILE_EVENTS, Table.PURCHASE_EVENTS)


def read(spark: SparkSession, settings: Settings) -> DataFrame:
    """Stream both topics as one source: raw key, value and headers with their coordinates."""
    return (
        spark.readStream.format("kafka")
        .options(**clients.spark_options(settings))
        .option("subscribe", f"{settings.purchase_topic},{settings.profile_topic}")
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .option("kafka.isolation.level", "read_committed")
        # A broker with nothing new keeps a fetch for half a second by default, and a batch waits for every partition.
        .option("kafka.fetch.max.wait.ms", "20")
        # A damaged record is an error, and never read as if it were none.
        .option("kafka.check.crcs", "true")
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
    numbering: Numbering | None = None,
) -> None:
    """Land one batch: parse and write files, judge the share of bad records, commit.

    With `topic_ids` each commit tells which topics these are: one that is made anew begins at offset 0 again. With a
    `fetcher` a small batch's records come from it, and one's of large records; `records` is only a plan then that
    is never run.
    """
    if topic_ids:
        batch.extra["topic_ids"] = topic_ids
    landing = (numbering or Numbering(settings.lake)).of(batch)
    topics = settings.purchase_topic, settings.profile_topic
    landed = _landed(
        records, batch, Landing(settings.lake, *topics, settings.currency, landing.number, landing.landed_at), fetcher
    )
    for (topic, reason), count in landed.outcomes.items():
        batch.count(topic, READ, count)
        batch.count(topic, ACCEPTED if reason is None else QUARANTINED, count)
        batch.rows += count
    batch.extra |= guard.judge(landed.outcomes, (batch.generation, batch.batch_id))
    with batch.phase("commit"):
        # Without a record (transactions leave offsets that hold none) the entry carries the batch alone: table and
        # checkpoint are compared at every start, so each batch leaves one.
        for table in [table for table in ORDER if table in landed.files] or [Table.PURCHASE_EVENTS]:
            commits.commit(records.sparkSession, settings.lake, table, landed.files.get(table, []), batch)


def _landed(records: DataFrame, batch: MicroBatch, landing: Landing, fetcher: Fetcher | None) -> Landed:
    """Land a batch's records the way that suits their number and size."""
    sizes = Sizes(0, 0)
    if fetcher is not None and batch.records is not None:
        is_small = batch.records <= SMALL_BATCH_ROWS
        with batch.phase("read"):
            sizes = sizes if is_small else fetcher.sample(batch.ranges)
        if is_small or sizes.mean > LARGE_RECORD_BYTES:
            return _land_here(fetcher.fetch(batch.ranges), batch, landing)
    with batch.phase("read"):
        few = collected(records, batch.records)
    if few is not None:
        return _land_here(few.to_batches(), batch, landing)
    try:
        with batch.phase("compute"):
            return land_in_workers(records, landing, sizes.largest)
    except NotForWorkers as reason:
        if fetcher is None or batch.records is None:
            raise
        log.info("query=%s batch_id=%d comes to the driver: %s", batch.query, batch.batch_id, reason)
        return _land_here(fetcher.fetch(batch.ranges), batch, landing)


def _land_here(records: Iterable[pa.RecordBatch], batch: MicroBatch, landing: Landing) -> Landed:
    """Land a batch in this process; reading it and writing it take turns, part after part."""
    started, read_before = time.perf_counter(), batch.phases["read"]
    landed = land_here(_read(records, batch), landing)
    elapsed = (time.perf_counter() - started) * 1000
    batch.phases["compute"] += elapsed - (batch.phases["read"] - read_before)
    return landed


def _read(records: Iterable[pa.RecordBatch], batch: MicroBatch) -> Iterator[pa.RecordBatch]:
    """Pass a batch's parts on, and tell how far it is."""
    parts, rows = iter(records), 0
    while True:
        with batch.phase("read"):
            part = next(parts, None)
        if part is None:
            return
        yield part
        rows += part.num_rows
        batch.progress(f"{rows:,} of {batch.records:,} records have landed" if batch.records else f"{rows:,} records")
