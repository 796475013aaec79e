"""Who does the tasks of a job: Spark's executors, or this process, which waits for no plan and no shuffle.

A task is a function of files either way (`executors.py`), so what comes of a job is the same.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile, gettempdir
from typing import IO, TYPE_CHECKING, Any, Protocol

from customer_activity.engine import executors, placement
from customer_activity.engine.executors import ByLane, InputGone, OnProgress, Parcel, Reports, Task
from customer_activity.errors import TransientError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HELD_BYTES = 64 << 20  # that this process holds of what tasks pass on
LENGTH = struct.Struct(">Q")


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
    """This process, which runs one task after the other: small batches, and large ones where there is no executor.

    Up to 64 MB of what tasks pass on is in memory; the rest is spilled to temporary files.
    """

    def are_there(self) -> bool:
        """Whether anybody would begin with a task now."""
        return True

    def at_once(self) -> int:
        """Return how many tasks run at once."""
        return 1

    def run(self, shares: int, task: Task, progress: OnProgress) -> Reports:
        """Run a task for each share."""
        with _as_spark_tells_it():
            return _told(_one_by_one(task, ([number] for number in range(shares)), shares, progress))

    def run_by_lane(self, shares: int, work: ByLane, progress: OnProgress) -> Reports:
        """Bring rows together by their lane."""
        with _as_spark_tells_it(), ExitStack() as files:
            found = _one_by_one(work.pack, ([number] for number in range(shares)), shares, progress)
            for stage in work.stages:
                of_lanes = _together(found, stage.lanes, files)
                found = _one_by_one(stage.task, of_lanes, stage.lanes, progress)
            return _told(found)


def _one_by_one(
    task: Callable[[Any], Iterable[Any]], given: Iterable[Any], tasks: int, progress: OnProgress
) -> Iterator[Any]:
    for number, one in enumerate(given, start=1):
        yield from task(one)
        progress(f"{number:,} of {tasks:,} tasks are through")


def _together(parcels: Iterable[Parcel], lanes: int, files: ExitStack) -> list[Iterator[bytes]]:
    """Bring parcels together by their lane; return those of each, to be read once."""
    of_lanes = [files.enter_context(SpooledTemporaryFile(HELD_BYTES // lanes)) for _ in range(lanes)]  # noqa: SIM115
    for lane, rows in parcels:
        try:
            of_lanes[lane].write(LENGTH.pack(len(rows)))
            of_lanes[lane].write(rows)
        except FileNotFoundError as error:  # of the first one that is spilled: no input is gone
            raise TransientError(
                f"the folder of temporary files, {gettempdir()}, is gone",
                remedy="see that nothing removes it while the driver runs; at its next start the driver takes another",
            ) from error
    return [_read_back(file) for file in of_lanes]


def _read_back(file: IO[bytes]) -> Iterator[bytes]:
    with file:  # closed, it takes neither memory nor disk
        file.seek(0)
        while length := file.read(LENGTH.size):
            yield file.read(*LENGTH.unpack(length))


@contextmanager
def _as_spark_tells_it() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise InputGone from error


def _told(reports: Iterable[Mapping[str, Any]]) -> Reports:
    """Return reports as Spark's driver has them."""
    return [json.loads(json.dumps(told)) for told in reports]
