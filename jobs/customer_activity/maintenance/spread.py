"""Compaction of large tables on Spark's executors, beside the streams: the driver plans and commits.

delta-rs keeps files of a megabyte while the streams run, because their writers wait for it. A table that grows for
months has very many of these. Where the master has executors, they rewrite them to files of TARGET_BYTES, some at a
time, and nobody waits but for the commit: appends go on meanwhile, and are no conflict. The commit is Delta's own
transaction, begun between two batches; it fails when one of the files was removed since they were listed, and when
another driver has taken over.

Tables of current rows are left alone: a merge rewrites each file that it touches.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from customer_activity import unforeseen
from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import TABLES
from customer_activity.engine import executors, placement, reach
from customer_activity.engine.logs import log
from customer_activity.engine.queries import RunningQuery, paused
from customer_activity.errors import TransientError
from customer_activity.lake import commits, jvm
from customer_activity.lake.datafiles import DataFile
from customer_activity.lake.failpoints import FailPoint, nowhere
from customer_activity.lake.feeds import Added
from customer_activity.lake.microbatch import Place
from customer_activity.maintenance import tasks
from customer_activity.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET_BYTES = 128 << 20  # what Spark reads in a task, and a thousand of which are a table of 128 GB
# Of what is rewritten more than half of a file comes out, so that nothing is rewritten over and over.
SMALL_BYTES = TARGET_BYTES // 2
# Of small files in a table: eight new files or more. A thousand files are opened in a second or two by whoever reads
# the whole table; below that a job and a commit are not worth it.
LARGE_BYTES = 1 << 30
AT_ONCE = 0.5  # of the executors' cores: a batch of a stream that comes meanwhile finds some free
# For the table's writers to come between two batches. Only this thread waits, with work that was not small: one batch
# of a backlog may take minutes.
COMMIT_SECONDS = 900.0
RETRY_SECONDS = 600.0  # after a failure: its work is lost, and was not small
ALONE_SECONDS = 300.0  # without an executor, after which what waits for one is ended
STOP_LOOK_SECONDS = 0.2
JOBS = "maintenance"


class NotNow(TransientError):
    """The table's writers were at work all the time, or the driver stops: what was rewritten belongs to nobody."""


def small_files(lake: str, table: Table) -> list[Added]:
    """Return a table's small files in the order in which they were added; those of unknown content are none."""
    listed = _listed(lake, table).sort_by("modification_time")
    columns = (listed.column(name).to_pylist() for name in ("path", "size_bytes", "num_records"))
    return [Added(-1, unquote(path), size, rows) for path, size, rows in zip(*columns, strict=True)]


def _listed(lake: str, table: Table) -> pa.Table:
    listed = pa.table(DeltaTable(table_path(lake, table)).get_add_actions())
    return listed.filter((pc.field("size_bytes") < SMALL_BYTES) & (pc.field("num_records") > 0))


def shares(files: Sequence[Added]) -> list[list[Added]]:
    """Divide files into groups of neighbours, each of which becomes a file of at most TARGET_BYTES or so.

    A last group that would come to a small file is left for another time.
    """
    groups: list[list[Added]] = [[]]
    room = TARGET_BYTES
    for file in files:
        if file.size > room:
            groups.append([])
            room = TARGET_BYTES
        groups[-1].append(file)
        room -= file.size
    return [group for group in groups if len(group) > 1 and sum(file.size for file in group) >= SMALL_BYTES]


def is_due(spark: SparkSession, settings: Settings, table: Table) -> bool:
    """Whether a table has so many small files that executors are to rewrite them, and there are executors."""
    if TABLES[table].is_current:
        return False
    found = partial(placement.executors_of, spark)
    if placement.decide(settings, "small files", found, is_small=False).place is not Place.EXECUTORS:
        return False
    return (pc.sum(_listed(settings.lake, table).column("size_bytes")).as_py() or 0) >= LARGE_BYTES


def rewrite(
    spark: SparkSession,
    settings: Settings,
    table: Table,
    writers: Sequence[RunningQuery],
    *,
    stopping: threading.Event,
    failpoint: Callable[[FailPoint], None] = nowhere,
) -> int:
    """Rewrite some of a table's small files on executors and commit it between two batches; return how many went.

    Raises:
        NotNow: there was no moment for the commit.
        LeaseLost: another driver writes the table.
        SettingsError: an executor does not see the lake.
        InputGone: a file is gone.
        TransientError: somebody else has removed one of the files.
        Exception: Spark's, or Delta's where somebody else has committed in the moment of the commit.
    """
    lake = settings.lake
    most = max(1, int(executors.parallelism(spark) * AT_ONCE))
    groups = shares(small_files(lake, table))[:most]
    if not groups:
        return 0
    work = tasks.Work(lake, table, [[file.path for file in group] for group in groups])
    reports = executors.run(spark, len(groups), partial(tasks.rewrite, work), lambda _: None)
    files = [DataFile(*report["file"]) for report in sorted(reports, key=lambda report: report["share"])]
    reach.require_here(settings, {table: files})
    removed = [file for group in groups for file in group]
    if [file.rows for file in files] != [sum(file.rows for file in group) for group in groups]:
        raise AssertionError(f"{table.label}: executors have not written the rows that the log says were there")
    with _between_batches(writers, stopping):
        commits.rewrite(
            spark,
            lake,
            table,
            removed,
            files,
            fencing_epochs={query.query: query.fencing_epoch for query in writers},
            metadata=json.dumps({"query": "maintenance", "placement": {"place": Place.EXECUTORS}}, sort_keys=True),
            failpoint=failpoint,
        )
        failpoint(FailPoint.COMPACTED)
    return len(removed)


@contextmanager
def _between_batches(writers: Sequence[RunningQuery], stopping: threading.Event) -> Iterator[None]:
    """Wait until none of a table's writers is at work, and keep them so.

    Their appends note the same epochs as the commit, which makes them a conflict. And what delta-rs commits here (a
    replay, `activity maintain`) holds the writers, too: on a local disk its commits and the JVM's are not safe from
    each other (ADR 4).
    """
    deadline = time.monotonic() + COMMIT_SECONDS
    while not stopping.is_set() and time.monotonic() < deadline:
        # Those at work first: the others are not held while one of these is waited for.
        with paused(sorted(writers, key=lambda query: not query.at_work.locked())) as are_paused:
            if are_paused:
                yield
                return
    raise NotNow("its writers were at work all the time, or the driver stops")


class Rewriting:
    """Has executors compact one table after the other, in a thread, as long as this driver runs."""

    def __init__(
        self, spark: SparkSession | None, settings: Settings, failpoint: Callable[[FailPoint], None] = nowhere
    ) -> None:
        """Begin nothing yet; without a session nothing ever is."""
        self.spark = spark
        self.settings = settings
        self.failpoint = failpoint
        self.stopping = threading.Event()
        self.thread = ThreadPoolExecutor(1, JOBS)
        self.table: Table | None = None  # that is at work
        self.at_work: Future[int] | None = None
        self.rests_until = 0.0
        self.alone_since: float | None = None  # from when on a cluster has had no executor for what is at work

    def begin(self, table: Table, writers: Sequence[RunningQuery]) -> bool:
        """Begin with a table if it is due and nothing is at work; say whether it was begun."""
        is_resting = time.monotonic() < self.rests_until
        if self.spark is None or self.table is not None or is_resting or not is_due(self.spark, self.settings, table):
            return False
        self.table = table
        self.at_work = self.thread.submit(self._work, self.spark, table, writers)
        return True

    def _work(self, spark: SparkSession, table: Table, writers: Sequence[RunningQuery]) -> int:
        spark.sparkContext.setJobGroup(JOBS, f"compaction of {table.label}", interruptOnCancel=True)  # this thread's
        return rewrite(spark, self.settings, table, writers, stopping=self.stopping, failpoint=self.failpoint)

    def look(self) -> None:
        """See whether what is at work is through; what failed is tried again later, and is no reason to end.

        What waits for executors that have gone is ended: nothing else is done to its table meanwhile.
        """
        if self.at_work is None or self.table is None:
            return
        if not self.at_work.done():
            self._end_where_executors_have_gone()
            return
        self.alone_since = None
        table, done = self.table, self.at_work
        self.table = self.at_work = None
        if (error := done.exception()) is None:
            extra = {"table": table.label, "files": done.result()}
            log.info("%s: compacted on executors, %d files", table.label, done.result(), extra=extra)
            return
        self.rests_until = time.monotonic() + RETRY_SECONDS
        said = unforeseen.brief(error)
        extra = {"table": table.label}
        log.warning("%s: compaction on executors failed, tried again later: %s", table.label, said, extra=extra)

    def _end_where_executors_have_gone(self) -> None:
        if self.spark is None or not jvm.lacks_executors(self.spark):
            self.alone_since = None
        elif self.alone_since is None:
            self.alone_since = time.monotonic()
        elif time.monotonic() - self.alone_since > ALONE_SECONDS:
            self.spark.sparkContext.cancelJobGroup(JOBS)

    def close(self) -> None:
        """End what is at work: what it has written belongs to nobody."""
        self.stopping.set()
        while self.spark is not None and self.at_work is not None and not self.at_work.done():
            if jvm.is_alive(self.spark):
                self.spark.sparkContext.cancelJobGroup(JOBS)
            wait([self.at_work], STOP_LOOK_SECONDS)
        self.thread.shutdown()
