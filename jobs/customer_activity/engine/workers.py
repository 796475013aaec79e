"""Who does the tasks of a job: Spark's executors, or this process, which waits for no plan and no shuffle.

A task is a function of files either way (`executors.py`), so what comes of a job is the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from customer_activity.engine import executors, placement
from customer_activity.engine.executors import ByLane, InputGone, OnProgress, Reports, Task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Workers(Protocol):
    """Who does a job's tasks."""

    def are_there(self) -> bool:
        """Whether anybody would begin with one now."""

    def at_once(self) -> int:
        """Return how many tasks run at once."""

    def lanes(self, count: int) -> Sequence[int]:
        """Return a number for each of so many tasks, which brings a row to it."""

    def run(self, shares: int, task: Task, progress: OnProgress) -> Reports:
        """Run a task for each share; return what they report.

        Raises:
            InputGone: a task met a file of its input that is gone.
            StateGone: it met a sorted run that is gone.
        """

    def run_by_lane(self, shares: int, work: ByLane, progress: OnProgress) -> Reports:
        """Bring rows together by their lane, and run a task for each lane; return what they report; raises as `run`."""


@dataclass(frozen=True)
class Executors:
    """Spark's executors."""

    spark: SparkSession

    def are_there(self) -> bool:
        """Whether there is an executor, or one that comes with the work."""
        master = self.spark.sparkContext.master or ""
        return master.startswith("local") or placement.executors_of(self.spark) > 0

    def at_once(self) -> int:
        """Return how many tasks run at once."""
        return executors.parallelism(self.spark)

    def lanes(self, count: int) -> Sequence[int]:
        """Return a number for each of so many tasks."""
        return executors.lanes(self.spark, count)

    def run(self, shares: int, task: Task, progress: OnProgress) -> Reports:
        """Run a task for each share."""
        return executors.run(self.spark, shares, task, progress)

    def run_by_lane(self, shares: int, work: ByLane, progress: OnProgress) -> Reports:
        """Bring rows together by their lane."""
        return executors.run_by_lane(self.spark, shares, work, progress)


class Here:
    """This process, which does one task after the other and holds all that they pass on: for what is small."""

    def are_there(self) -> bool:
        """Whether anybody would begin with a task now."""
        return True

    def at_once(self) -> int:
        """Return how many tasks run at once."""
        return 1

    def lanes(self, count: int) -> Sequence[int]:
        """Return a number for each of so many tasks."""
        return range(count)

    def run(self, shares: int, task: Task, _progress: OnProgress) -> Reports:
        """Run a task for each share."""
        with _as_spark_tells_it():
            return [told for number in range(shares) for told in _told(task(_share(number)))]

    def run_by_lane(self, shares: int, work: ByLane, _progress: OnProgress) -> Reports:
        """Bring rows together by their lane."""
        with _as_spark_tells_it():
            found = chain.from_iterable(work.pack(_share(number)) for number in range(shares))
            for stage in work.stages:
                of_lane: dict[int, list[pa.RecordBatch]] = {lane: [] for lane in stage.lanes}
                for batch in found:
                    for at, lane in enumerate(batch.column("lane").to_pylist()):
                        of_lane[lane].append(batch.slice(at, 1))
                found = chain.from_iterable(map(stage.task, of_lane.values()))
            return list(_told(found))


@contextmanager
def _as_spark_tells_it() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise InputGone from error


def _share(number: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"id": pa.array([number], pa.int64())})]


def _told(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    return (json.loads(text) for batch in batches for text in batch.column("report").to_pylist())
