"""What each query is: its source, what to do with its batches, and its life from start to end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from customer_activity import checkpoints, delta, failpoints, gate, kafka, loss
from customer_activity.bronze import stream as bronze
from customer_activity.bronze.bad_share import BadShareGuard
from customer_activity.bronze.fetching import Fetcher
from customer_activity.catalog import Query, Table, checkpoint_path
from customer_activity.errors import (
    ActivityError,
    ChangeFeedLost,
    DiskFull,
    LeaseLost,
    OffsetsLost,
    TransientError,
)
from customer_activity.failpoints import FailPoint
from customer_activity.gold import current
from customer_activity.gold import stream as gold
from customer_activity.gold.state import GoldState
from customer_activity.microbatch import SMALL_BATCH_ROWS, MicroBatch
from customer_activity.observability import HELD, QueryStatus, log
from customer_activity.publish import stream as publish
from customer_activity.publish.transaction import Publisher
from customer_activity.rounds import Rounds
from customer_activity.settings import Settings
from customer_activity.silver import current_profiles, summaries
from customer_activity.silver import stream as silver
from customer_activity.silver.index import SilverIndex
from customer_activity.storage import is_full

OFFSETS_GONE = ("failOnDataLoss", "KAFKA_DATA_LOSS", "OffsetOutOfRange")
FILES_GONE = ("FileNotFoundException", "FILE_NOT_EXIST", "DELTA_CHANGE_DATA_FILE_NOT_FOUND")
LOG_NOTED = "CONCURRENT_STREAM_LOG_UPDATE"  # Spark's own log of offsets knows no lease
GATE_SECONDS = 1.0  # how often a publisher that is held looks whether the gate is open
PUT_BACK = "put them back from a backup: nothing was skipped"


class Plan(NamedTuple):
    """What it takes to start one query.

    Attributes:
        source: what it reads.
        write: what to do with each of its batches.
        begins: the first version that a first batch reads of each table, in the order of the sources (None: it begins
            with the table as it is); empty where the query's batches are not read from files.
    """

    source: DataFrame
    write: Callable[[DataFrame, MicroBatch], None]
    begins: Mapping[Table, int | None] = {}


class Stopping(Exception):
    """Raised inside a batch that must not begin any more: no error, but how it is turned away."""


class RunningQuery:
    """One query: its Spark handle, its status, and whether a batch of it is at work."""

    def __init__(
        self,
        query: Query,
        make_plan: Callable[[], Plan],
        settings: Settings,
        stopping: threading.Event,
        turn: AbstractContextManager[object] | None = None,
        rounds: Rounds | None = None,
        *,
        hold: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Bind a query to what makes its plan, when it starts. Its batches wait for `turn` when there is one.

        With `rounds` a batch ends when the next one may be cut. `hold` tells the epoch of the driver's lease.
        """
        self.query = query
        self.make_plan = make_plan
        self.settings = settings
        self.turn = turn or nullcontext()
        self.rounds = rounds
        self.hold = hold
        self.stopping = stopping
        self.status = QueryStatus(query)
        self.failure: BaseException | None = None
        self.at_work = threading.Lock()
        self.handle: StreamingQuery | None = None
        self.is_draining = False

    def start(self, *, available_now: bool) -> None:
        """Start the query on its checkpoint."""
        self.is_draining = available_now
        plan = self.make_plan()
        writer = (
            plan.source.writeStream.queryName(self.query.value)
            .foreachBatch(partial(self._batch, plan))
            .option("checkpointLocation", checkpoint_path(self.settings.lake, self.query))
        )
        pause = f"{self.settings.merge_seconds} seconds" if self.query.is_behind else "0 seconds"
        writer = writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime=pause)
        self.handle = writer.start()
        log.info("query=%s started", self.query)
        self.status.state = "running"

    def _batch(self, plan: Plan, frame: DataFrame, batch_id: int) -> None:
        if self.query is Query.PUBLISH:
            self._pass_gate()
        through = self.rounds.begin(self.query) if self.rounds is not None else 0
        with self.turn, self.at_work:
            if self.stopping.is_set():
                raise Stopping
            generation = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            reach = failpoints.of(self.settings, self.query)
            batch = MicroBatch(self.query, str(generation), batch_id, hold=self.hold, reach=reach)
            batch.reach(FailPoint.PLANNED)
            cut = checkpoints.cut(self.settings.lake, self.query, batch_id)
            if cut is not None:
                batch.cut = cut._asdict()
                if self.query is Query.BRONZE:
                    batch.ranges = cut.ranges(partial(_begins, self.settings))
                elif plan.begins:
                    batch.versions = cut.versions(plan.begins)
            started = time.monotonic()
            try:
                plan.write(frame, batch)
                batch.reach(FailPoint.WRITTEN)
            except BaseException as error:  # kept as it is: Spark would hand back only its text
                self.failure = error
                raise
            self.status.finished(batch_id, batch.rows, time.monotonic() - started, batch.phases)
            if batch.rows > SMALL_BATCH_ROWS:
                pa.default_memory_pool().release_unused()  # Arrow would keep what a large batch took
        if self.rounds is not None:
            ended = time.monotonic()
            self.rounds.finish(self.query, through)
            waited = round((time.monotonic() - ended) * 1000, 1)
            self.status.phases = {**self.status.phases, "turn": waited}

    def _pass_gate(self) -> None:
        """Wait while quality holds publishing; a drain does not wait. The other queries go on meanwhile.

        Raises:
            PublishingHeld: this is a drain.
            Stopping: the application was told to stop.
        """
        while rules := gate.holding(self.settings.lake):
            if self.is_draining:
                self.failure = gate.held(rules)
                raise self.failure
            if self.status.state != HELD:
                log.warning("query=%s is held by quality: %s", self.query, ", ".join(sorted(rules)))
            self.status.state, self.status.message = HELD, str(gate.held(rules))
            if self.stopping.wait(GATE_SECONDS):
                raise Stopping
        if self.status.state == HELD:
            log.info("query=%s is held no more", self.query)
            self.status.state, self.status.message = "running", ""

    def ended(self) -> bool:
        """Whether the query has ended.

        Raises:
            ActivityError: it ended because of an error.
        """
        if self.handle is None or self.handle.isActive:
            return False
        error = self.handle.exception()
        if error is None or self.stopping.is_set():
            self.status.state = "stopped"
            return True
        self.status.state = "failed"
        fault = explain(self.query, error, self.failure, self.settings, self.hold)
        self.status.message = str(fault)
        raise fault


def _begins(settings: Settings, topic: str) -> dict[int, int]:
    """Return the first offset that Kafka has, by partition: where a query's first batch begins."""
    return {partition: low for partition, (low, _) in kafka.offset_range(settings, topic).items()}


def explain(
    query: Query,
    error: BaseException,
    cause: BaseException | None,
    settings: Settings,
    hold: Callable[[], int | None],
) -> ActivityError:
    """Turn a query's death into an error of ours: what, where, what to do.

    Args:
        query: which one.
        error: as Spark tells it.
        cause: what was raised in a batch; None when it was not in one.
        settings: of its driver.
        hold: raises LeaseLost when the query is another driver's by now.
    """
    if isinstance(cause, ActivityError) and not isinstance(cause, OffsetsLost):
        return cause
    text = str(cause or error)
    if LOG_NOTED in text:
        return planned_by_another(query, hold)
    if isinstance(cause, OffsetsLost) or any(words in text for words in OFFSETS_GONE):
        return offsets_lost(query, text, settings)
    if is_full(settings.lake):
        return disk_full(settings)
    if any(words in text for words in FILES_GONE):
        return ChangeFeedLost(
            f"{query}: files are gone of a change feed that it still has to read",
            remedy="find out what removed them; "
            + ("`activity resync publish --reason …` sends what differs" if query is Query.PUBLISH else PUT_BACK),
        )
    log.error("query=%s failed", query, exc_info=cause or error)
    return TransientError(
        f"{query} stopped: {text.splitlines()[0][:300]}",
        remedy="start again: it resumes where it stopped; the log above has the whole error",
    )


def planned_by_another(query: Query, hold: Callable[[], int | None]) -> ActivityError:
    """Say whose the query is now that two drivers have planned a batch of it."""
    try:
        hold()
    except LeaseLost as lost:
        return lost
    return TransientError(
        f"{query}: a driver that was frozen planned a batch in this query's checkpoint when it woke",
        remedy="start again: that batch is done then; it was not begun",
    )


def offsets_lost(query: Query, text: str, settings: Settings) -> ActivityError:
    """Name what Kafka has lost; where it has it again by now, say what was said."""
    try:
        loss.check(settings)
    except ActivityError as fault:
        return fault
    first = next((line for line in text.splitlines() if "offset" in line.lower()), text.splitlines()[0])
    return OffsetsLost(
        f"{query}: Kafka no longer has offsets that were never landed: {first}",
        remedy="find out what removed them; nothing was skipped",
    )


def disk_full(settings: Settings) -> DiskFull:
    """Say that there is no space left for the lake."""
    return DiskFull(
        f"no space left on the disk of {settings.lake}",
        remedy="free some, then start again: nothing of a batch at work counts yet, and it is taken again",
    )


class Plans:
    """Makes each query's plan when it starts: a source looks at its table then. Owns what the plans keep open."""

    def __init__(self, spark: SparkSession, settings: Settings, resources: ExitStack) -> None:
        """Make nothing yet; what is opened closes with `resources`."""
        self.spark = spark
        self.settings = settings
        self.resources = resources
        self.ids = {table: delta.table_id(settings.lake, table) for table in Table}

    def make(self, query: Query) -> Plan:
        """Make a query's plan."""
        spark, settings = self.spark, self.settings
        if query is Query.BRONZE:
            guard = BadShareGuard(settings.max_bad_share)
            ids = kafka.topic_ids(settings, (settings.purchase_topic, settings.profile_topic))
            fetcher = Fetcher(settings)
            self.resources.callback(fetcher.close)
            write = partial(bronze.land, settings=settings, guard=guard, topic_ids=ids, fetcher=fetcher)
            return Plan(bronze.read(spark, settings), write)
        if query is Query.SILVER:
            index = SilverIndex(settings, self._ids(Table.PURCHASES, Table.PROFILE_CHANGES))
            self.resources.callback(index.close)
            write = partial(silver.append_batch, settings=settings, index=index)
            return Plan(silver.read(spark, settings), write, delta.begins(settings.lake, silver.SIDES))
        if query is Query.GOLD:
            state = GoldState(settings, self._ids(Table.PURCHASES, Table.PROFILE_CHANGES, Table.ACTIVITY_CHANGES))
            self.resources.callback(state.close)
            clock = gold.ViewClock.of(settings.lake)
            write = partial(gold.append_batch, settings=settings, state=state, clock=clock)
            return Plan(gold.read(spark, settings), write, gold.begins(settings))
        if query is Query.PUBLISH:
            publisher = self.resources.enter_context(Publisher(settings))
            write = partial(
                publish.publish_batch,
                settings=settings,
                publisher=publisher,
                table_id=self.ids[Table.ACTIVITY_CHANGES],
                instead_of=delta.instead_of(settings.lake, Table.ACTIVITY_CHANGES),
            )
            return Plan(publish.read(spark, settings, publisher), write, publish.begins(settings, publisher))
        merging = {Query.SUMMARIES: summaries, Query.PROFILES: current_profiles, Query.ACTIVITY: current}[query]
        return Plan(
            merging.read(spark, settings),
            partial(merging.merge_batch, settings=settings),
            delta.begins(settings.lake, [merging.SOURCE]),
        )

    def _ids(self, *tables: Table) -> dict[Table, str]:
        return {table: self.ids[table] for table in tables}
