"""Where a batch is worked on: in the driver while it is small, else on executors that have cores of their own.

The rules are the same in both places, and so are the rows that come of them. A plan, two jobs and a shuffle take longer
than a small batch does; a large one would have the driver hold what the past of all keys is, and leave a cluster idle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from customer_activity.lake import jvm
from customer_activity.lake.microbatch import Place, Placement
from customer_activity.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def executors_of(spark: SparkSession) -> int:
    """Return how many executors there are; where they come with the work, as many as one."""
    return jvm.executors(spark) or int(spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true")


def has_choice(settings: Settings, spark: SparkSession) -> bool:
    """Whether a small batch that turns out to need much of the past can be worked on by executors instead."""
    return settings.placement == "auto" and settings.is_on_cluster and executors_of(spark) > 0


def can_spread(settings: Settings, spark: SparkSession) -> bool:
    """Whether executors can do what is too much for the driver: others than its threads are not always there."""
    return settings.placement == "auto" and (not settings.is_on_cluster or executors_of(spark) > 0)


def decide(
    settings: Settings,
    size: str,
    executors: Callable[[], int],
    *,
    is_small: bool,
    uses_threads: bool = False,
) -> Placement:
    """Return where a batch of a stream that can be spread is worked on.

    Args:
        settings: what was asked for, and which master.
        size: what the batch has, in words: `60,000 rows`.
        executors: tells how many there are: another application may have taken all that a cluster has.
        is_small: whether they are few and short.
        uses_threads: whether executors that are threads of the driver serve a large batch, too: they do where the
            driver by itself has one core's work, or keeps no local state.
    """
    if settings.placement != "auto":
        return Placement(Place(settings.placement), f"ACTIVITY_PLACEMENT is {settings.placement}")
    if is_small:
        return Placement(Place.DRIVER, f"{size} are few")
    if not settings.is_on_cluster:
        if not uses_threads:
            return Placement(Place.DRIVER, f"{settings.spark_master} has no executors but threads of the driver")
    elif not executors():
        return Placement(Place.DRIVER, f"{settings.spark_master} has given no executor")
    return Placement(Place.EXECUTORS, f"{size} are many")
