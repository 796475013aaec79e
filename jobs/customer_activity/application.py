"""The streaming application: hosts the queries in one Spark session, watches them, and stops them gracefully.

Always on, the queries run side by side. With `available_now` each drains what its source has and ends before the next
one starts, so that what was waiting on Kafka is on the view topic when it exits.
"""

from __future__ import annotations

import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType

from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from customer_activity import topology, unforeseen
from customer_activity.engine import heartbeat, loss, reach, runtime, session
from customer_activity.engine.failures import disk_full
from customer_activity.engine.logs import log
from customer_activity.engine.observability import Written, is_due
from customer_activity.engine.queries import RunningQuery, stop_gracefully
from customer_activity.engine.stream import Context
from customer_activity.engine.turns import Turn, Turns
from customer_activity.errors import ActivityError, PublishingHeld
from customer_activity.inspection import switched_off
from customer_activity.inspection.describe import lines
from customer_activity.kafka import topics
from customer_activity.lake import delta, holds, jvm, layout
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.lease.lease import Lease
from customer_activity.lineage import recording
from customer_activity.lineage.recording import NOBODY, Recorder
from customer_activity.maintenance.scheduler import Scheduler
from customer_activity.metrics import serving
from customer_activity.operations import recovery
from customer_activity.settings import Settings
from customer_activity.state import files
from customer_activity.storage.filesystem import PRIVATE, is_full, keep_private
from customer_activity.streams.registry import STREAMS

WATCH_SECONDS = 1.0  # between two looks at the queries
ENDING_SECONDS = 0.5  # the same where they end by themselves
BEHIND_SECONDS = 20.0  # most that what runs behind the path starts after it; supervision waits 120 s for a whole start


def leased(spark: SparkSession, settings: Settings, queries: Sequence[str], resources: ExitStack) -> Lease:
    """Take the queries for this driver.

    Raises:
        QueryAlreadyRunning: another driver is at work on one.
    """
    lease = resources.enter_context(Lease(partial(session.JvmLock, spark), settings.lake, queries))
    for query in lease.frozen:
        words = "%s was taken over from a driver that did not give it back and does not answer"
        log.warning(words, query, extra={"query": query})
        files.forget(settings, query)  # that driver may wake inside a change of it
    return lease


def run(
    settings: Settings,
    queries: Sequence[str],
    *,
    available_now: bool = False,
    create_topics: bool = False,
    attended: float | None = None,
) -> None:
    """Run the queries until they have drained (`available_now`), fail, or the process is told to stop.

    With `attended` it also stops when nobody has looked after it for so many seconds.

    Raises:
        ActivityError: a query failed, another driver runs it, or Kafka is not as it should be.
    """
    settings.run_dir.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
    stopping = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    for line in lines(settings):
        log.info("%s", line)
    layout.refuse_others(settings.lake)  # before Spark is started, and once more under the lease
    see_to_what_is_off(settings)
    topics.check(settings, create=create_topics)
    if words := topics.warning(settings):
        log.warning("%s", words)
    started = time.monotonic()
    with recording.recorder(settings) as recorder:
        spark = session.start(settings)
        log.info("Spark is ready after %.1f s", time.monotonic() - started)
        try:
            host(spark, settings, queries, stopping, available_now=available_now, attended=attended, recorder=recorder)
        except Exception as error:
            if isinstance(error, ActivityError) or jvm.is_alive(spark):
                raise
            raise jvm.gone() from error
        finally:
            with jvm.unless_gone():
                spark.stop()


def see_to_what_is_off(settings: Settings) -> None:
    """Say which streams are off that have run before: what they wrote grows old, and its readers cannot tell.

    Holds on tables' logs that a catch-up of their local state has left are released: log retention goes on.
    """
    try:
        found = switched_off.unattended(settings)
    except (OSError, ActivityError) as error:
        log.warning("whether streams that are off have run before is unknown: %s", unforeseen.brief(error))
        return
    for left in found:
        log.warning("%s: %s", left.what, switched_off.remedy([left]), extra={"query": left.spec.name})
    try:
        for left in found:
            holds.take_back(settings.lake, left.spec.name)
    except OSError as error:
        log.warning("what streams that are off hold of tables' logs is not released: %s", unforeseen.brief(error))


def host(
    spark: SparkSession,
    settings: Settings,
    queries: Sequence[str],
    stopping: threading.Event,
    *,
    available_now: bool,
    attended: float | None = None,
    recorder: Recorder = NOBODY,
) -> None:
    """Run the queries in a session until they have drained, fail, or `stopping` is set; `recorder` tells their lineage.

    Raises:
        ActivityError: a query failed, or another driver runs it.
    """
    runtime.require_time_zone(runtime.time_zone(settings.time_zone, queries))
    with ExitStack() as resources, explained(settings):
        lease = leased(spark, settings, queries, resources)
        check = partial(look_around, settings, stopping, lease, attended)
        keep_private(settings.index_dir)
        delta.ensure_tables(settings.lake)
        recovery.check_agreement(settings.lake, queries)
        for stream in topology.landings():
            if stream.name in queries:
                loss.check(settings, stream)
        if spread := [query for query in queries if topology.spec(query).is_spread]:
            reach.check(spark, settings, runtime.time_zone(settings.time_zone, spread), stopping, check)
        context = Context(
            spark, settings, {table: delta.table_id(settings.lake, table) for table in topology.tables()}, resources
        )

        observe = resources.enter_context(serving.served(settings, {} if available_now else lease.epochs))

        def told(batch: MicroBatch, seconds: float) -> None:
            observe(batch, seconds)
            recorder.take(batch)

        def prepared(
            query: str, until: threading.Event, turn: Turn | None = None, turns: Turns | None = None
        ) -> RunningQuery:
            fencing_epoch = partial(lease.fencing_epoch, query)
            opening = partial(STREAMS[query].open, context)
            running = RunningQuery(
                query, opening, settings, until, turn, turns, fencing_epoch=fencing_epoch, observe=told
            )
            recorder.begin(running.spec, running.status)
            return running

        if available_now:
            drain(queries, prepared, settings, stopping, check)
            return
        # What runs behind the hot path has one turn between all: two cores are few.
        turn = Turn()
        turns = Turns(queries, stopping)
        together = [
            prepared(query, stopping, turn if topology.spec(query).is_behind else None, turns) for query in queries
        ]
        supervise(together, settings, stopping, available_now=False, check=check, spark=spark)
        # Told to stop: what is on the topic goes into the current rows, too, so that a lake at rest is whole.
        for query in (query for query in queries if topology.spec(query).is_behind and jvm.is_alive(spark)):
            last = prepared(query, threading.Event())
            supervise([last], settings, last.stopping, available_now=True, check=check)


def look_around(settings: Settings, stopping: threading.Event, lease: Lease | None, attended: float | None) -> None:
    """See that the queries are still this driver's, and that somebody looks after it where that was asked for.

    Raises:
        LeaseLost: another driver took a query over.
    """
    if lease is not None:
        lease.check()
    if attended is not None and not stopping.is_set() and heartbeat.is_stale(settings.run_dir, attended):
        log.warning("no heartbeat from this driver's supervisor for %.0f s: shutting down", attended)
        stopping.set()


def drain(
    queries: Sequence[str],
    prepared: Callable[[str, threading.Event], RunningQuery],
    settings: Settings,
    stopping: threading.Event,
    check: Callable[[], None],
) -> None:
    """Run one query after the other: the topic first, the tables of current rows after it, as always-on.

    Raises:
        PublishingHeld: quality holds the topic; the tables are whole all the same.
    """
    held: PublishingHeld | None = None
    for query in sorted(queries, key=lambda query: topology.spec(query).is_behind):
        if stopping.is_set():
            break
        try:
            supervise([prepared(query, stopping)], settings, stopping, available_now=True, check=check)
        except PublishingHeld as fault:
            held = fault
    if held is not None:
        raise held


@contextmanager
def explained(settings: Settings) -> Iterator[None]:
    """Turn whatever fails on a full disk into an error that says so.

    Raises:
        DiskFull: that was it.
    """
    try:
        yield
    except (OSError, sqlite3.Error, DeltaError) as error:
        if is_full(settings.lake):
            raise disk_full(settings) from error
        raise


def supervise(
    running: Sequence[RunningQuery],
    settings: Settings,
    stopping: threading.Event,
    *,
    available_now: bool,
    check: Callable[[], None] | None = None,
    spark: SparkSession | None = None,
) -> None:
    """Start the queries and watch them until all have ended, one has failed, or the application must stop.

    `check` is called in every round: it raises when the queries are no longer this driver's. With `spark` maintenance
    has executors do what is large.
    """
    scheduler = Scheduler(settings, running, serves=not available_now, spark=spark)
    waiting = [query for query in running if query.spec.is_behind]
    fault: Exception | None = None
    try:
        with explained(settings):
            for query in running:
                if query not in waiting and not stopping.is_set():
                    query.start(available_now=available_now)
            # A start is a race for two cores, and what merges behind the hot path has nothing to do before that has.
            delay = 0.0 if available_now else min(2 * settings.merge_seconds, BEHIND_SECONDS)
            begin_behind = time.monotonic() + delay
            written: Written = {}
            while not stopping.is_set():
                if check is not None:
                    check()
                while waiting and time.monotonic() >= begin_behind:
                    waiting.pop(0).start(available_now=available_now)
                ended = [query.ended() for query in running]
                takes_long = scheduler.is_due()  # nothing is written meanwhile
                write_status([query for query in running if is_due(query.status, written) or takes_long], settings)
                if all(ended):
                    break
                scheduler.look()
                stopping.wait(ENDING_SECONDS if available_now else WATCH_SECONDS)
    except Exception as error:
        fault = error
        if len(running) > 1:
            stopping.set()  # the others begin no new batch
        raise
    finally:
        scheduler.close()
        stop_gracefully(running, fault)
        write_status(running, settings)


def write_status(running: Sequence[RunningQuery], settings: Settings) -> None:
    """Write queries' status files."""
    for query in running:
        progress = query.last_progress()
        if progress is not None:
            query.status.spark_phases = dict(progress.durationMs)
            if "addBatch" not in progress.durationMs:
                query.status.idle_at = progress.timestamp
        query.status.write(settings.run_dir)
