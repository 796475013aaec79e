"""Work on Spark's executors: tasks that are functions of files, and reports of a few bytes that come back.

A job has shares; a task is given the numbers of its shares, reads what they stand for, writes files and reports them.
Where rows have to come together by key, tasks of a first stage pack them by lane, and one task of the next unpacks all
parcels of a lane: Spark brings some large values from here to there, and needs to know nothing of rows. It may run
a task twice, or again where its executor was lost: only one report comes back, and files that are in none belong to
nobody.

Executors import this module and need little for it.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple
from zipimport import zipimporter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from customer_activity import unforeseen
from customer_activity.lake import jvm
from customer_activity.state.sorted_runs import StateGone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Reports = list[dict[str, Any]]
OnProgress = Callable[[str], None]

REPORT = pa.schema([("report", pa.string())])
REPORT_DDL = "report string"
PARCELS = pa.schema([("lane", pa.int32()), ("kind", pa.int32()), ("rows", pa.binary())])
PARCELS_DDL = "lane int, kind int, rows binary"
TRIED_A_LANE = 32  # numbers that are hashed for each task to get one
LOOK_SECONDS = 2.0  # between two looks at how far a job is
PARCELS_AT_A_TIME = "spark.sql.execution.arrow.maxRecordsPerBatch", "8"  # each may have some megabytes


# What tasks import besides pyarrow and numpy; an executor's Python may be of another release.
LIBRARIES = ("confluent_kafka", "msgspec", "pandas", "pydantic_settings", "tenacity")


class KeyMissing(Exception):
    """Raised by a task whose changes have no value in a column of their key."""


class InputGone(Exception):
    """Raised where a file that a task is to read is gone."""


class Stage(NamedTuple):
    """What is done with parcels that were brought together.

    Attributes:
        lanes: as `lanes` returns them.
        task: is given all parcels of a lane.
    """

    lanes: Sequence[int]
    task: Task


class ByLane(NamedTuple):
    """Work of two stages or more.

    Attributes:
        pack: the first one's task: it yields what `parcels` returns.
        lanes: as `lanes` returns them.
        task: the second one's: it is given all parcels of a lane.
        then: further stages; the task of one that has another after it yields parcels, too.
    """

    pack: Task
    lanes: Sequence[int]
    task: Task
    then: tuple[Stage, ...] = ()

    @property
    def stages(self) -> list[Stage]:
        """All of them but the first."""
        return [Stage(self.lanes, self.task), *self.then]


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks run at once."""
    return spark.sparkContext.defaultParallelism


def run(spark: SparkSession, shares: int, task: Task, progress: OnProgress) -> Reports:
    """Run a task for each share; return what they report.

    Raises:
        InputGone: a task met a file of its input that is gone.
        StateGone: it met a sorted run that is gone.
    """
    return _read(_mapped(spark, shares, task, REPORT_DDL), progress)


def run_by_lane(spark: SparkSession, shares: int, work: ByLane, progress: OnProgress) -> Reports:
    """Bring rows together by their lane, and run a task for each lane; return what those of the last stage report.

    Args:
        spark: the session.
        shares: of the first stage's work.
        work: what is done.
        progress: told, in words, when tasks are through.

    Raises:
        InputGone: a task met a file of its input that is gone.
        StateGone: it met a sorted run that is gone.
    """
    planned = _mapped(spark, shares, work.pack, PARCELS_DDL)
    *before, last = work.stages
    for stage, ddl in [*((stage, PARCELS_DDL) for stage in before), (last, REPORT_DDL)]:
        together = planned.repartition(len(stage.lanes), "lane")
        planned = together.mapInArrow(_sent(stage.task), ddl)
    return _read(planned, progress)


def report(told: Mapping[str, Any]) -> pa.RecordBatch:
    """Return what a task yields to report something."""
    return pa.RecordBatch.from_pylist([{"report": json.dumps(told)}], REPORT)


def parcels(lanes: npt.NDArray[np.int32], rows: pa.Table, kind: int = 0) -> pa.RecordBatch:
    """Pack rows by the lane of each; rows of several kinds, with columns of their own, may go the same way."""
    order = np.argsort(lanes, kind="stable")
    found, begins = np.unique(lanes[order], return_index=True)
    sorted_rows = rows.take(pa.array(order))
    ends = [*begins.tolist(), rows.num_rows][1:]
    packed = [_packed(sorted_rows.slice(begin, end - begin)) for begin, end in zip(begins.tolist(), ends, strict=True)]
    kinds = pa.array([kind] * len(packed), pa.int32())
    return pa.RecordBatch.from_arrays(
        [pa.array(found, pa.int32()), kinds, pa.array(packed, pa.binary())], schema=PARCELS
    )


def parcel(lane: int, rows: pa.Table, kind: int = 0) -> pa.RecordBatch:
    """Pack rows for one lane, also where there are none."""
    return pa.RecordBatch.from_pylist([{"lane": lane, "kind": kind, "rows": _packed(rows)}], PARCELS)


def _packed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def unpacked(batches: Iterable[pa.RecordBatch]) -> dict[int, pa.Table]:
    """Return the rows of all parcels by their kind, in no order."""
    found: dict[int, list[pa.Table]] = {}
    for batch in batches:
        for kind, rows in zip(batch.column("kind").to_pylist(), batch.column("rows"), strict=True):
            found.setdefault(kind, []).append(pa.ipc.open_stream(rows.as_buffer()).read_all())
    return {kind: pa.concat_tables(tables) for kind, tables in found.items()}


def with_libraries(task: Task) -> Task:
    """Have a task fail first where its Python lacks what any task imports."""

    def equipped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for library in LIBRARIES:
            import_module(library)
        yield from task(batches)

    return equipped


def numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """Yield the numbers of the shares that a task is given."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


@cache
def lanes(spark: SparkSession, count: int) -> list[int]:
    """Return a number for each of so many tasks that Spark's `repartition` brings to it and to no other one.

    It hashes them: of a few lanes some tasks would get two or three, and others none.
    """
    from pyspark.sql import functions as F  # noqa: PLC0415 - executors call none of it

    lane = F.col("id").cast("int")  # its hash modulo their number is how `repartition` chooses
    session = spark.newSession()  # with the settings of a small job: its rows come together
    tried = session.range(0, count * TRIED_A_LANE, 1, 1)
    hashed = tried.select(lane, F.pmod(F.hash(lane), F.lit(count)))
    chosen: dict[int, int] = {}
    for number, task in zip(*(column.to_pylist() for column in hashed.toArrow().columns), strict=True):
        chosen.setdefault(task, number)
    return [chosen[task] for task in range(count)]


@cache
def _session(spark: SparkSession) -> SparkSession:
    """Return a session whose rows are parcels: settings are a session's."""
    session = spark.newSession()
    session.conf.set(*PARCELS_AT_A_TIME)
    return session


def _mapped(spark: SparkSession, shares: int, task: Task, ddl: str) -> DataFrame:
    return _session(spark).range(0, shares, 1, shares).mapInArrow(_sent(task), ddl)


def _sent(task: Task) -> Task:
    """Return what workers are sent: they tell nothing of a record where it fails, and are spared what follows it."""

    def spared(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from task(batches)
        spare_worker()

    return unforeseen.without_words(spared)


def spare_worker() -> None:
    """Spare this worker of Spark's what it does between two tasks, which takes longer than many a task.

    Before a task it invalidates the caches of imports, and Python before 3.12 reads the directories of zips then, that
    of pyspark once for each of its packages: 0.1 s (CPython issue 103200). After a task it collects garbage among all
    that was ever imported.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]  # the next import from there makes one, of the directory that was read
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def _read(planned: DataFrame, progress: OnProgress) -> Reports:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - executors call none of it

    try:
        with _watched(planned.sparkSession, progress):
            told = planned.toArrow()
    except PySparkException as error:
        for met, raised in ((StateGone, StateGone), (KeyMissing, KeyMissing), (FileNotFoundError, InputGone)):
            if met.__name__ in str(error):
                raise raised from error
        raise
    return [json.loads(text) for text in told.column(0).to_pylist()]


@contextmanager
def _watched(spark: SparkSession, progress: OnProgress) -> Iterator[None]:
    """Tell when tasks of this stream's jobs are through; a job whose tasks all hang tells nothing."""
    ended = threading.Event()
    group = spark.sparkContext.getLocalProperty("spark.jobGroup.id")  # a stream's; jobs without one are together

    def watch() -> None:
        told = (0, 0)
        while not ended.wait(LOOK_SECONDS):
            if (now := jvm.tasks_at_work(spark, group)) != told:
                progress(f"{now[0]:,} of {now[1]:,} tasks of executors are through")
                told = now

    watching = threading.Thread(target=watch, name="executors", daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
