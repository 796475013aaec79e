"""The streaming application: hosts the queries in one Spark session, watches them, and stops them gracefully.

Always on, the queries run side by side. With `available_now` each drains what its source has and ends before the next
one starts, so that what was waiting on Kafka is on the view topic when it exits.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from customer_activity import delta, maintenance, session
from customer_activity.broker import topics
from customer_activity.catalog import FLOWS, Query, Table, checkpoint_path
from customer_activity.errors import ActivityError, CheckpointMismatch, QueryAlreadyRunning
from customer_activity.inspection.describe import lines
from customer_activity.observability import log
from customer_activity.queries import Plans, RunningQuery
from customer_activity.rounds import Rounds
from customer_activity.settings import Settings

WATCH_SECONDS = 0.5  # status files are written at least once a second
BEHIND_AFTER_SECONDS = 20.0  # what merges behind the path has nothing to do before the path has
UPKEEP_SECONDS = 20.0  # how often the tables are looked at for a checkpoint and for small files
STOP_SECONDS = 25.0  # a batch in progress may finish; the rest of the 30 s promised is for closing the session
LOCK_WAIT_SECONDS = 15.0  # a driver that was just killed holds its locks until its JVM has gone


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
        Query.SILVER: (Table.PURCHASES, Table.PROFILE_CHANGES),
        Query.SUMMARIES: (Table.SUMMARIES,),
    }
    java = session.jvm(spark)
    for query in set(queries) & set(adds_to):
        path = java.org.apache.hadoop.fs.Path(checkpoint_path(settings.lake, query), "metadata")
        if path.getFileSystem(spark._jsc.hadoopConfiguration()).exists(path):  # noqa: SLF001
            continue
        for table in adds_to[query]:
            if not delta.is_empty(settings.lake, table):
                raise CheckpointMismatch(
                    f"{query}: {table.label} has rows, but there is no checkpoint at "
                    f"{checkpoint_path(settings.lake, query)}; starting would take everything in a second time",
                    remedy="put the checkpoint back, or move the lake away to build it anew from Kafka",
                )


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
    started = time.monotonic()
    spark = session.start(settings)
    log.info("Spark is ready after %.1f s", time.monotonic() - started)
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
        delta.ensure_tables(settings.lake)
        check_checkpoints(spark, settings, queries)
        plans = Plans(spark, settings, resources)
        if available_now:
            # The topic first, the tables of current rows after it: the order of always-on running.
            for query in sorted(queries, key=lambda query: query.is_behind):
                if not stopping.is_set():
                    alone = RunningQuery(query, partial(plans.make, query), settings, stopping)
                    supervise([alone], settings, stopping, available_now=True)
            return
        # What runs behind the path to the view has one turn between all: two cores are few.
        turn = threading.Lock()
        rounds = Rounds(queries, stopping)
        together = [
            RunningQuery(
                query, partial(plans.make, query), settings, stopping, turn if query.is_behind else None, rounds
            )
            for query in queries
        ]
        supervise(together, settings, stopping, available_now=False)
        # Told to stop: what is on the topic goes into the current rows, too, so that a lake at rest is whole.
        for query in (query for query in queries if query.is_behind and session.is_alive(spark)):
            last = RunningQuery(query, partial(plans.make, query), settings, threading.Event())
            supervise([last], settings, last.stopping, available_now=True)


def supervise(
    running: Sequence[RunningQuery], settings: Settings, stopping: threading.Event, *, available_now: bool
) -> None:
    """Start the queries and watch them until all have ended, one has failed, or the application must stop."""
    tables = writers_of(running)
    next_upkeep = time.monotonic() + UPKEEP_SECONDS
    waiting = [query for query in running if query.query.is_behind]
    try:
        for query in running:
            if query not in waiting and not stopping.is_set():
                query.start(available_now=available_now)
        # A start is a race for two cores: the path to the view goes first.
        begin_behind = time.monotonic() + (0.0 if available_now else BEHIND_AFTER_SECONDS)
        while not stopping.is_set():
            while waiting and time.monotonic() >= begin_behind:
                waiting.pop(0).start(available_now=available_now)
            ended = [query.ended() for query in running]
            write_status(running, settings)
            if all(ended):
                break
            if time.monotonic() >= next_upkeep:
                for table, writers in tables.items():
                    if keep(settings, table, writers):
                        break  # one compaction at a look: what waited for it goes first
                next_upkeep = time.monotonic() + UPKEEP_SECONDS
            stopping.wait(WATCH_SECONDS)
    except ActivityError:
        stopping.set()  # the others begin no new batch
        raise
    finally:
        stop_gracefully(running)
        write_status(running, settings)


def writers_of(running: Sequence[RunningQuery]) -> dict[Table, list[RunningQuery]]:
    """Tables that are written here and nowhere else, with the queries that write them."""
    here = {query.query: query for query in running}
    writers: dict[Table, list[Query]] = {}
    for flow in FLOWS:
        for name in flow.writes:
            if ":" not in name:
                writers.setdefault(Table(name), []).append(flow.query)
    return {
        table: [here[query] for query in queries] for table, queries in writers.items() if set(queries) <= set(here)
    }


def keep(settings: Settings, table: Table, writers: Sequence[RunningQuery]) -> bool:
    """Keep a table's log short and its files few, between its writers' batches; say whether files were compacted."""
    try:
        maintenance.checkpoint(settings.lake, table)
        if not maintenance.needs_compaction(settings.lake, table):
            return False
        with ExitStack() as paused:
            for query in writers:
                if not query.at_work.acquire(timeout=WATCH_SECONDS):
                    return False  # a long batch is at work: next time
                paused.callback(query.at_work.release)
            started = time.monotonic()
            maintenance.compact(settings.lake, table)
            log.info("table=%s compacted seconds=%.3f", table.label, time.monotonic() - started)
    except (DeltaError, OSError) as error:  # the table is as it was: the streams go on
        log.warning("table=%s upkeep failed, tried again after %.0f s: %s", table.label, UPKEEP_SECONDS, error)
        return False
    return True


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
            query.status.spark_phases = dict(progress.durationMs)
        query.status.write(settings.run_dir)
