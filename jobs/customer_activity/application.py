"""The streaming application: hosts the queries in one Spark session, watches them, and stops them gracefully.

Always on, the queries run side by side. With `available_now` each drains what its source has and ends before the next
one starts, so that what was waiting on Kafka is on the view topic when it exits.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from customer_activity import delta, session
from customer_activity.broker import topics
from customer_activity.bronze import stream as bronze
from customer_activity.bronze.bad_share import BadShareGuard
from customer_activity.catalog import Query, Table, checkpoint_path
from customer_activity.errors import ActivityError, CheckpointMismatch, OffsetsLost, QueryAlreadyRunning, TransientError
from customer_activity.gold import stream as gold
from customer_activity.inspection.describe import lines
from customer_activity.microbatch import MicroBatch
from customer_activity.observability import QueryStatus, log
from customer_activity.publish import stream as publish
from customer_activity.publish.transaction import Publisher
from customer_activity.settings import Settings
from customer_activity.silver import stream as silver

WATCH_SECONDS = 0.5  # status files are written at least once a second
STOP_SECONDS = 25.0  # a batch in progress may finish; the rest of the 30 s promised is for closing the session
LOCK_WAIT_SECONDS = 15.0  # a driver that was just killed holds its locks until its JVM has gone


class Plan(NamedTuple):
    """What it takes to start one query: its source and what to do with each of its batches."""

    source: DataFrame
    write: Callable[[DataFrame, MicroBatch], None]


class Stopping(Exception):
    """Raised inside a batch that must not begin any more: no error, but how it is turned away."""


class RunningQuery:
    """One query: its Spark handle, its status, and whether a batch of it is at work."""

    def __init__(self, query: Query, plan: Plan, stopping: threading.Event) -> None:
        """Bind a plan to a query; nothing runs yet."""
        self.query = query
        self.plan = plan
        self.stopping = stopping
        self.status = QueryStatus(query)
        self.failure: BaseException | None = None
        self.at_work = threading.Lock()
        self.handle: StreamingQuery | None = None

    def start(self, lake: str, *, available_now: bool) -> None:
        """Start the query on its checkpoint."""
        writer = (
            self.plan.source.writeStream.queryName(self.query.value)
            .foreachBatch(self._batch)
            .option("checkpointLocation", checkpoint_path(lake, self.query))
        )
        writer = writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="0 seconds")
        self.handle = writer.start()
        self.status.state = "running"

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        with self.at_work:
            if self.stopping.is_set():
                raise Stopping
            generation = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            batch = MicroBatch(self.query, str(generation), batch_id)
            started = time.monotonic()
            try:
                self.plan.write(frame, batch)
            except BaseException as error:  # kept as it is: Spark would hand back only its text
                self.failure = error
                raise
            self.status.finished(batch_id, batch.rows, time.monotonic() - started)

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
        fault = explain(self.query, error, self.failure)
        self.status.message = str(fault)
        raise fault


def explain(query: Query, error: StreamingQueryException, cause: BaseException | None) -> ActivityError:
    """Turn a query's death into an error of ours: what, where, what to do."""
    if isinstance(cause, ActivityError):
        return cause
    text = str(cause or error)
    if "failOnDataLoss" in text or "KAFKA_DATA_LOSS" in text or "OffsetOutOfRange" in text:
        first = next((line for line in text.splitlines() if "offset" in line.lower()), text.splitlines()[0])
        return OffsetsLost(
            f"{query}: Kafka no longer has offsets that were never landed: {first}",
            remedy="find out what removed them; nothing was skipped",
        )
    log.error("query=%s failed", query, exc_info=cause or error)
    return TransientError(
        f"{query} stopped: {text.splitlines()[0][:300]}",
        remedy="start again: it resumes where it stopped; the log above has the whole error",
    )


@contextmanager
def locks(spark: SparkSession, settings: Settings, queries: Sequence[Query]) -> Iterator[None]:
    """Hold one lock a query on the lake for as long as this driver's JVM lives.

    The JVM holds it, not Python: it is the JVM that writes, and it may outlive a killed Python by a moment.

    Raises:
        QueryAlreadyRunning: another driver holds one.
    """
    if not settings.is_local_lake:
        yield
        return
    folder = Path(settings.lake) / "_locks"
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        for query in queries:
            handle = session.jvm(spark).java.io.RandomAccessFile(str(folder / f"{query}.lock"), "rw")
            held.callback(handle.close)
            deadline = time.monotonic() + LOCK_WAIT_SECONDS
            while handle.getChannel().tryLock() is None:
                if time.monotonic() > deadline:
                    raise QueryAlreadyRunning(
                        f"{query} already runs on {settings.lake}",
                        remedy="stop that driver first (`activity stop`), or run other queries here",
                    )
                time.sleep(WATCH_SECONDS)
        yield


def check_checkpoints(spark: SparkSession, settings: Settings, queries: Sequence[Query]) -> None:
    """Refuse to count everything again.

    Raises:
        CheckpointMismatch: a query that adds to its tables has rows there but no checkpoint.
    """
    adds_to = {
        Query.BRONZE: (Table.PURCHASE_EVENTS, Table.PROFILE_EVENTS),
        Query.SILVER: (Table.PURCHASES, Table.PROFILES),
    }
    java = session.jvm(spark)
    for query in set(queries) & set(adds_to):
        path = java.org.apache.hadoop.fs.Path(checkpoint_path(settings.lake, query), "metadata")
        if path.getFileSystem(spark._jsc.hadoopConfiguration()).exists(path):  # noqa: SLF001
            continue
        for table in adds_to[query]:
            if not delta.read(spark, settings.lake, table).isEmpty():
                raise CheckpointMismatch(
                    f"{query}: {table.label} has rows, but there is no checkpoint at "
                    f"{checkpoint_path(settings.lake, query)}; starting would take everything in a second time",
                    remedy="put the checkpoint back, or move the lake away to build it anew from Kafka",
                )


def plans(spark: SparkSession, settings: Settings, publisher: Publisher | None) -> dict[Query, Callable[[], Plan]]:
    """Each query's plan, made when it starts: a source looks at its table then."""

    def publishing() -> Plan:
        if publisher is None:
            raise ValueError("publish needs its publisher")
        table_id = delta.table_id(spark, settings.lake, Table.ACTIVITY)
        write = partial(publish.publish_batch, publisher=publisher, table_id=table_id)
        return Plan(publish.read(spark, settings, publisher), write)

    guard = BadShareGuard(settings.max_bad_share)
    return {
        Query.BRONZE: lambda: Plan(bronze.read(spark, settings), partial(bronze.land, settings=settings, guard=guard)),
        Query.SILVER: lambda: Plan(silver.read(spark, settings), partial(silver.merge_batch, settings=settings)),
        Query.GOLD: lambda: Plan(
            gold.read(spark, settings),
            partial(gold.merge_batch, settings=settings, clock=gold.ViewClock.of(spark, settings.lake)),
        ),
        Query.PUBLISH: publishing,
    }


def run(
    settings: Settings, queries: Sequence[Query], *, available_now: bool = False, create_topics: bool = False
) -> None:
    """Run the queries until they have drained (`available_now`), fail, or the process is told to stop.

    Raises:
        ActivityError: a query failed, another driver runs it, or Kafka is not as it should be.
    """
    stopping = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    for line in lines(settings):
        log.info("%s", line)
    topics.check(settings, create=create_topics)
    spark = session.start(settings)
    try:
        host(spark, settings, queries, stopping, available_now=available_now)
    finally:
        spark.stop()


def host(
    spark: SparkSession,
    settings: Settings,
    queries: Sequence[Query],
    stopping: threading.Event,
    *,
    available_now: bool,
) -> None:
    """Run the queries in a session until they have drained, fail, or `stopping` is set.

    Raises:
        ActivityError: a query failed, or another driver runs it.
    """
    with ExitStack() as resources:
        resources.enter_context(locks(spark, settings, queries))
        delta.ensure_tables(spark, settings.lake)
        check_checkpoints(spark, settings, queries)
        publisher = resources.enter_context(Publisher(settings)) if Query.PUBLISH in queries else None
        make = plans(spark, settings, publisher)
        if available_now:
            for query in queries:
                if not stopping.is_set():
                    supervise([RunningQuery(query, make[query](), stopping)], settings, stopping, available_now=True)
        else:
            together = [RunningQuery(query, make[query](), stopping) for query in queries]
            supervise(together, settings, stopping, available_now=False)


def supervise(
    running: Sequence[RunningQuery], settings: Settings, stopping: threading.Event, *, available_now: bool
) -> None:
    """Start the queries and watch them until all have ended, one has failed, or the application must stop."""
    try:
        for query in running:
            query.start(settings.lake, available_now=available_now)
        while not stopping.is_set():
            ended = [query.ended() for query in running]
            write_status(running, settings)
            if all(ended):
                break
            stopping.wait(WATCH_SECONDS)
    except ActivityError:
        stopping.set()  # the others begin no new batch
        raise
    finally:
        stop_gracefully(running)
        write_status(running, settings)


def stop_gracefully(running: Sequence[RunningQuery]) -> None:
    """Let batches at work finish, turn new ones away, then stop the queries."""
    deadline = time.monotonic() + STOP_SECONDS
    for query in running:
        if query.at_work.acquire(timeout=max(0.0, deadline - time.monotonic())):
            query.at_work.release()
        if query.handle is not None and query.handle.isActive:
            query.handle.stop()
        if query.status.state == "running":
            query.status.state = "stopped"


def write_status(running: Sequence[RunningQuery], settings: Settings) -> None:
    """Write every query's status file."""
    for query in running:
        progress = query.handle.lastProgress if query.handle is not None else None
        if progress is not None:
            query.status.phases = dict(progress.durationMs)
        query.status.write(settings.run_dir)
