"""Bronze: land topics, each record exactly once, accepted or quarantined.

Reads      Kafka: the purchase and the profile topic, one batch cut over both
Writes     bronze.purchase_events, bronze.customer_profiles, bronze.quarantine (append)
Grain      one row per Kafka record, by (topic, partition, offset)
On restart a repeated batch reads the same offsets; each append carries (txnAppId, batch_id), so none lands twice

Topics of optional streams land by a stream of their own, which is a `Lands`, too: a checkpoint's topics cannot be
switched on and off, and the hot path waits for none of them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from customer_activity.catalog import PROFILES_ROLE, PURCHASES_ROLE, Table
from customer_activity.engine import placement, reach
from customer_activity.engine.executors import InputGone
from customer_activity.engine.stream import Append, Context, Opened, Steps, Writer
from customer_activity.engine.workers import Executors, Workers
from customer_activity.errors import BadShareExceeded
from customer_activity.kafka import clients
from customer_activity.lake import microbatch
from customer_activity.lake.microbatch import ACCEPTED, QUARANTINED, READ, MicroBatch, Place
from customer_activity.lake.numbering import Numbering
from customer_activity.settings import Settings
from customer_activity.streams.bronze.bad_share import BadShareGuard
from customer_activity.streams.bronze.fetching import Fetcher
from customer_activity.streams.bronze.landing import Landed, Landing, land
from customer_activity.streams.bronze.shares import Opens, land_shares, opener
from customer_activity.topology import Reads, Spec, Topic, Writes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COORDINATES = ("topic", "partition", "offset")

SPEC = Spec(
    "bronze",
    reads=(
        Reads(Topic(PURCHASES_ROLE), progress=Table.PURCHASE_EVENTS),
        Reads(Topic(PROFILES_ROLE), progress=Table.PROFILE_EVENTS),
    ),
    writes=(
        Writes(Table.PURCHASE_EVENTS, key=COORDINATES),
        Writes(Table.PROFILE_EVENTS, key=COORDINATES),
        Writes(Table.QUARANTINE, key=COORDINATES, with_every_batch=True),
    ),
    promises="every record lands exactly once, accepted or quarantined, raw and with its coordinates",
    is_spread=True,
)


@dataclass(frozen=True)
class Lands:
    """A stream that lands topics, as the registry lists it.

    Attributes:
        spec: what it is.
        tables: by role of a topic, the table of its records, in the order in which they are committed.
    """

    spec: Spec
    tables: Mapping[str, Table]

    def open(self, context: Context) -> Opened:
        """Open it for a driver: a fetcher at the end of the topics, the number of the next landing, the bad share."""
        settings = context.settings
        topics = list(self.topics(settings))
        numbering = Numbering(settings.lake, self.spec)
        fetcher = Fetcher(settings, topics)
        context.resources.callback(fetcher.close)
        prepared = partial(
            self.step,
            settings=settings,
            guard=BadShareGuard(settings.max_bad_share, stream=self.spec.name, noted=numbering.noted),
            numbering=numbering,
            topic_ids=clients.topic_ids(settings, topics),
            fetcher=fetcher,
            workers=Executors(context.spark),
            opens=opener(settings),
        )
        writer = Writer(self.spec, context.spark, settings.lake)

        def work(_planned: DataFrame, batch: MicroBatch) -> None:
            writer.make_all(prepared(batch), batch)

        return Opened(self.spec, partial(read, context.spark, settings, topics), work, refresh=numbering.refresh)

    def topics(self, settings: Settings) -> dict[str, Table]:
        """Return the table of each topic's records, by the topic's name."""
        return {settings.topics[role]: table for role, table in self.tables.items()}

    def step(
        self,
        batch: MicroBatch,
        *,
        settings: Settings,
        guard: BadShareGuard,
        numbering: Numbering,
        fetcher: Fetcher,
        workers: Workers,
        opens: Opens,
        topic_ids: Mapping[str, str] | None = None,
    ) -> Steps:
        """Land one batch: parse and write files, judge the share of bad records, commit.

        A small batch's records come from the `fetcher`, and a large one's from clients that `workers` open. With
        `topic_ids` each commit tells which topics these are: one that was deleted and created begins at offset 0 again.
        """
        if topic_ids:
            batch.extra["topic_ids"] = topic_ids
        landing = numbering.of(batch)
        how = Landing(settings.lake, self.topics(settings), settings.currency, landing.number, landing.landed_at)
        landed = _landed(batch, how, fetcher, workers, opens, settings)
        for (topic, reason), count in landed.outcomes.items():
            batch.count(topic, READ, count)
            batch.tally.read[topic] += count
            batch.count(topic, ACCEPTED if reason is None else QUARANTINED, count)
            batch.rows += count
        reasons: Counter[str] = Counter()
        for (_, reason), count in landed.outcomes.items():
            if reason is not None:
                reasons[reason] += count
        try:
            batch.extra |= guard.judge(landed.outcomes, (batch.generation, batch.batch_id))
        except BadShareExceeded:
            landed.discard(settings.lake)
            raise
        # Without a record (transactions leave offsets that hold none) the entry carries the batch alone: table and
        # checkpoint are compared at every start, so each batch leaves one.
        order = [Table.QUARANTINE, *self.tables.values()]
        for table in [table for table in order if table in landed.files] or order[-1:]:
            yield Append(table, files=landed.files.get(table, []), reasons=reasons if table is Table.QUARANTINE else {})


def read(spark: SparkSession, settings: Settings, topics: Iterable[str]) -> DataFrame:
    """Stream topics as one source: it plans which offsets a batch has, and notes them; nothing is read by it."""
    return (
        spark.readStream.format("kafka")
        .options(**clients.spark_options(settings))
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", settings.max_offsets_per_trigger)
        .load()
    )


def _landed(
    batch: MicroBatch, landing: Landing, fetcher: Fetcher, workers: Workers, opens: Opens, settings: Settings
) -> Landed:
    """Land a batch's records where their number says."""
    records = batch.records or 0
    batch.placement = placement.decide(
        settings,
        f"{records:,} rows",
        workers.are_there,
        is_small=records <= microbatch.SMALL_BATCH_ROWS,
        uses_threads=True,
    )
    if batch.placement.place is Place.DRIVER:
        return _land_here(fetcher.fetch(batch.ranges), batch, landing)
    with batch.phase("compute"):
        try:
            landed = land_shares(batch.ranges, landing, workers, opens, batch.progress)
        except InputGone as error:
            raise reach.blind(settings) from error
        try:
            reach.require_here(settings, landed.files)
        except BaseException:
            landed.discard(landing.lake)
            raise
    return landed


def _land_here(records: Iterable[pa.RecordBatch], batch: MicroBatch, landing: Landing) -> Landed:
    """Land a batch in this process; reading it and writing it take turns, part after part."""
    started, read_before = time.perf_counter(), batch.phases["read"]
    landed = land(_read(records, batch), landing)
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


# Profiles first: silver may cut its batch between the two, and a purchase without a profile shows nothing.
STREAM = Lands(SPEC, {PROFILES_ROLE: Table.PROFILE_EVENTS, PURCHASES_ROLE: Table.PURCHASE_EVENTS})
