"""Executors on other machines exchange data at a driver's start, as they will in a large batch.

The rows of a large batch go from executor to executor, and the driver takes no part in that: it reaches each of them by
the connection that the executor has opened. Where they do not resolve each other's names, or a firewall is between
them, everything works until a batch is large.

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
LEAST_TASKS = 3  # with fewer, Spark would write what is sent in another way than in a large batch (`session.py`)
MOST_TASKS = 200  # each sends every other a parcel


def run(spark: SparkSession, at_once: int) -> int:
    """Have tasks of one stage send parcels to those of a second one, each to each; return how many have arrived.

    Args:
        spark: the session.
        at_once: how many tasks run at once on all executors.

    Raises:
        PySparkException or Py4JJavaError: Spark gave up.
    """
    tasks = min(max(at_once, LEAST_TASKS), MOST_TASKS)
    told = run_by_lane(spark, tasks, ByLane(partial(send, tasks), tasks, receive), lambda _: None)
    return sum(report["parcels"] for report in told)


def send(lanes: int, numbers: Iterable[int]) -> Iterator[Parcel]:
    """Yield a parcel for every lane from each task."""
    for number in numbers:
        time.sleep(HOLD_SECONDS)
        yield from (parcel(lane, pa.table({"sender": [number]})) for lane in range(lanes))


def receive(packed: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield how many parcels have come to a lane."""
    time.sleep(HOLD_SECONDS)
    yield {"parcels": sum(rows.num_rows for rows in unpacked(packed).values())}
