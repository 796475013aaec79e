"""Who does the tasks of a job: Spark's executors, or this process, which waits for no plan and no shuffle.

A task is a function of files either way (`executors.py`), so what comes of a job is the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

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

    def run(self, shares: int, task: Task, _progress: OnProgress) -> Reports:
        """Run a task for each share."""
        with _as_spark_tells_it():
            return _told(chain.from_iterable(task([number]) for number in range(shares)))

    def run_by_lane(self, shares: int, work: ByLane, _progress: OnProgress) -> Reports:
        """Bring rows together by their lane."""
        with _as_spark_tells_it():
            found: Iterator[Any] = chain.from_iterable(work.pack([number]) for number in range(shares))
            for stage in work.stages:
                of_lane: list[list[bytes]] = [[] for _ in range(stage.lanes)]
                for parcel in found:
                    of_lane[parcel.lane].append(parcel.rows)
                found = chain.from_iterable(map(stage.task, of_lane))
            return _told(found)


@contextmanager
def _as_spark_tells_it() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise InputGone from error


def _told(reports: Iterable[Mapping[str, Any]]) -> Reports:
    """Return reports as Spark's driver has them."""
    return [json.loads(json.dumps(told)) for told in reports]
