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
import os
import socket
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zipimport import zipimporter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from customer_activity import unforeseen
from customer_activity.engine import runtime
from customer_activity.lake import jvm
from customer_activity.lake.datafiles import ROW_GROUP_BYTES, in_parts
from customer_activity.state.sorted_runs import StateGone

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

Reports = list[dict[str, Any]]
OnProgress = Callable[[str], None]
Task = Callable[[Iterable[int]], Iterator[Mapping[str, Any]]]  # given the numbers of its shares, it yields reports

LANE = struct.Struct("!q")  # before a parcel, as the JVM reads it
KIND = b"kind"  # in the schema of a parcel's rows
LOOK_SECONDS = 2.0  # between two looks at how far a job is
ALONE_SECONDS = 600.0  # for which a job waits for the first executor of a standalone master
STANDALONE = "spark://"


# What tasks import besides pyarrow and numpy; an executor's Python may be of another release.
LIBRARIES = ("confluent_kafka", "msgspec", "pandas", "pydantic_settings", "tenacity")


class KeyMissing(Exception):
    """Raised by a task whose changes have no value in a column of their key."""


class InputGone(Exception):
    """Raised where a file that a task is to read is gone."""


class Parcel(NamedTuple):
    """Rows for a lane: an Arrow IPC stream, whose schema metadata has their kind."""

    lane: int
    rows: bytes


Pack = Callable[[Iterable[int]], Iterator[Parcel]]
Unpack = Callable[[Iterable[bytes]], Iterator[Any]]  # it yields reports, or parcels where another stage follows


class Stage(NamedTuple):
    """What is done with parcels that were brought together.

    Attributes:
        lanes: how many there are.
        task: is given all parcels of a lane.
    """

    lanes: int
    task: Unpack


class ByLane(NamedTuple):
    """Work of two stages or more.

    Attributes:
        pack: the first one's task.
        lanes: how many the second one has.
        task: the second one's: it is given all parcels of a lane.
        then: further stages.
    """

    pack: Pack
    lanes: int
    task: Unpack
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
    return _read(spark, shared_out(spark, shares, _sent(partial(_reports, task))), progress)


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
    planned = shared_out(spark, shares, _sent(partial(_framed, work.pack)))
    *before, last = work.stages
    for stage in before:
        together = jvm.shuffled(spark, planned, stage.lanes)
        planned = together.mapPartitions(_sent(partial(_framed, stage.task)))
    together = jvm.shuffled(spark, planned, last.lanes)
    return _read(spark, together.mapPartitions(_sent(partial(_reports, last.task))), progress)


def shared_out(spark: SparkSession, shares: int, work: Callable[[Iterable[int]], Iterator[Any]]) -> RDD[Any]:
    """Return an RDD with a task for each share, which is given its number; without shares it is empty.

    It is lazy, as every RDD: nothing runs before its results are collected.
    """
    if not shares:
        return spark.sparkContext.emptyRDD()

    def begun(number: int, nothing: Iterable[Any]) -> Iterator[Any]:
        def numbers() -> Iterator[int]:
            yield from nothing  # a worker that leaves something unread is not used again
            yield number

        return work(numbers())

    return spark.sparkContext.parallelize([], shares).mapPartitionsWithIndex(begun)


def parcels(lanes: npt.NDArray[np.int64], rows: pa.Table, kind: int = 0) -> Iterator[Parcel]:
    """Pack rows by the lane of each; rows of several kinds, with columns of their own, may go the same way.

    A row group of another writer's may have gigabytes, and Arrow's columns of texts and Spark's parcels end at two.
    """
    done = 0
    for some in in_parts(rows.to_batches(), max(1, rows.num_rows), ROW_GROUP_BYTES):
        of_these = lanes[done : done + some.num_rows]
        done += some.num_rows
        order = np.argsort(of_these, kind="stable")
        found, begins = np.unique(of_these[order], return_index=True)
        sorted_rows = some.take(pa.array(order))
        ends = [*begins.tolist(), some.num_rows][1:]
        for lane, begin, end in zip(found.tolist(), begins.tolist(), ends, strict=True):
            yield parcel(lane, sorted_rows.slice(begin, end - begin), kind)


def parcel(lane: int, rows: pa.Table, kind: int = 0) -> Parcel:
    """Pack rows for one lane, also where there are none."""
    sink = pa.BufferOutputStream()
    marked = rows.replace_schema_metadata({KIND: str(kind)})
    with pa.ipc.new_stream(sink, marked.schema) as writer:
        writer.write_table(marked)
    return Parcel(lane, bytes(sink.getvalue()))


def unpacked(packed: Iterable[bytes]) -> dict[int, pa.Table]:
    """Return the rows of all parcels by their kind, in no order."""
    found: dict[int, list[pa.Table]] = {}
    for rows in (pa.ipc.open_stream(of).read_all() for of in packed):
        found.setdefault(int(rows.schema.metadata[KIND]), []).append(rows.replace_schema_metadata())
    return {kind: pa.concat_tables(tables) for kind, tables in found.items()}


def with_libraries(task: Task) -> Task:
    """Have a task fail first where its Python lacks what any task imports."""

    def equipped(numbers: Iterable[int]) -> Iterator[Mapping[str, Any]]:
        for library in LIBRARIES:
            import_module(library)
        yield from task(numbers)

    return equipped


def _reports(task: Callable[[Any], Iterator[Mapping[str, Any]]], given: Any) -> Iterator[bytes]:
    """Yield a task's reports in few bytes: the driver gets those of all tasks."""
    return (zlib.compress(json.dumps(told).encode()) for told in task(given))


def _framed(task: Callable[[Any], Iterator[Parcel]], given: Any) -> Iterator[bytes]:
    """Yield each parcel after its lane as soon as it is packed: a worker never buffers the whole output of a task."""
    for packed in task(given):
        yield LANE.pack(packed.lane)
        yield packed.rows


def _sent(task: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    """Wrap what Python workers run: errors without words from records, and no waiting before and between tasks.

    No task is begun in another runtime than the driver's: an executor may have come after the driver asked them all.
    """

    def spared(given: Iterable[Any]) -> Iterator[Any]:
        acknowledge()
        runtime.require_alike()
        yield from task(given)
        spare_worker()

    return unforeseen.without_words(spared)


def acknowledge() -> None:
    """End the delayed ACK of what the JVM has sent this worker, which Linux would keep back for 40 ms (TCP_QUICKACK).

    The JVM's sockets have Nagle's algorithm on: until the ACK comes, it does not send the last bytes that a task needs.
    """
    if not hasattr(socket, "TCP_QUICKACK"):
        return
    for descriptor in Path("/proc/self/fd").iterdir():
        if descriptor.is_socket():
            with socket.socket(fileno=os.dup(int(descriptor.name))) as found:
                if found.proto == socket.IPPROTO_TCP:
                    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


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


def _read(spark: SparkSession, planned: RDD[bytes], progress: OnProgress) -> Reports:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - executors call none of it

    try:
        with _watched(spark, progress):
            told = planned.collect()
    except (PySparkException, jvm.java_error()) as error:
        if (other := runtime.other_in(str(error))) is not None:
            raise other from error
        for met, raised in ((StateGone, StateGone), (KeyMissing, KeyMissing), (FileNotFoundError, InputGone)):
            if f"RuntimeError: {met.__name__}" in str(error):  # of a task's own, and not of Spark around it
                raise raised from error
        raise
    return [json.loads(zlib.decompress(text)) for text in told]


@contextmanager
def _watched(spark: SparkSession, progress: OnProgress) -> Iterator[None]:
    """Tell when tasks of this stream's jobs are through; a job whose tasks all hang tells nothing.

    A job that starts without an executor reports so until the first one registers: a restarted driver would wait as
    well, and lose its place in the queue of YARN or Kubernetes. A standalone master has no queue, and loses its
    applications when it restarts, so there it is reported for ALONE_SECONDS only.
    """
    ended = threading.Event()
    group = spark.sparkContext.getLocalProperty("spark.jobGroup.id")  # a stream's; jobs without one are together
    begins_alone, begun = jvm.lacks_executors(spark), time.monotonic()
    has_queue = not (spark.sparkContext.master or "").startswith(STANDALONE)

    def watch() -> None:
        is_alone = begins_alone
        told = None if is_alone else (0, 0)
        while not ended.wait(LOOK_SECONDS):
            is_alone = is_alone and jvm.lacks_executors(spark)
            if is_alone:
                if has_queue or time.monotonic() - begun < ALONE_SECONDS:
                    progress("waits for an executor")
            elif (now := jvm.tasks_at_work(spark, group)) != told:
                progress(f"{now[0]:,} of {now[1]:,} tasks of executors are through")
                told = now

    watching = threading.Thread(target=watch, name="executors", daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
