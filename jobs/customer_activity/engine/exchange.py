"""Whether executors on other machines reach one another: at a driver's start each sends a parcel to every other.

The parcels of a large batch go from executor to executor, and a driver sees nothing of that: it reaches each of them by
the connection that the executor has opened. Where they do not resolve each other's names, or a firewall is between
them, small batches are processed for days, and the first large one fails again and again.

It is also the first time that JVMs and Python workers of executors do what tasks of a large batch do, which takes each
of them a second of processor time. That is spent before the first batch waits for it.

Spark's executors import this module and need little for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from customer_activity.engine.executors import ByLane, Parcel, parcel, run_by_lane, unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOLD_SECONDS = 0.2  # of a task: no executor takes another one's
FAILED = "FetchFailed"  # in what Spark says where a task did not get another executor's parcels


def run(spark: SparkSession, tasks: int) -> int:
    """Have tasks of a first stage send a parcel to each of a second one; return how many have arrived.

    Args:
        spark: the session.
        tasks: as many as run at once on all executors.

    Raises:
        PySparkException or Py4JJavaError: Spark gave up; with FAILED in its words if executors do not reach one
            another.
        RuntimeError: parcels are missing.
    """
    told = run_by_lane(spark, tasks, ByLane(partial(send, tasks), tasks, receive), lambda _: None)
    if (arrived := [report["parcels"] for report in told]) != [tasks] * tasks:
        raise RuntimeError(f"{tasks} tasks sent {tasks} others a parcel each, and these have arrived: {arrived}")
    return sum(arrived)


def send(lanes: int, numbers: Iterable[int]) -> Iterator[Parcel]:
    """Yield a parcel for every lane from each task."""
    for number in numbers:
        time.sleep(HOLD_SECONDS)
        yield from (parcel(lane, pa.table({"sender": [number]})) for lane in range(lanes))


def receive(packed: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield how many parcels have come to a lane."""
    time.sleep(HOLD_SECONDS)
    yield {"parcels": sum(rows.num_rows for rows in unpacked(packed).values())}
