"""Windows of days on Spark's own executors; all else about them is in tests/component/test_windows.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.lake import delta
from customer_activity.settings import Settings
from support.pipeline import Pipeline
from support.quick_pipeline import QuickPipeline
from support.windowed import BERLIN, CHAIN, assert_right, follow, land, world


@pytest.fixture
def windowed(spark: SparkSession, settings: Settings) -> Iterator[Pipeline]:
    """Return the queries with those of windows switched on, whose batches are worked on by executors."""
    topology.switch_on(CHAIN[1:])
    wanted = {"placement": "executors", "time_zone": BERLIN, "grace_hours": 3.0}
    delta.ensure_tables(settings.lake)
    yield QuickPipeline(spark, settings.model_copy(update=wanted))
    topology.switch_on([])


def test_executors_come_to_the_same(windowed: Pipeline) -> None:
    for records in (world(5)[:60], world(5)[60:]):
        land(windowed, records)
        follow(windowed)
    assert windowed.batches["daily"][-1].placement is not None
    assert str(windowed.batches["daily"][-1].placement.place) == "executors"
    assert_right(windowed)
