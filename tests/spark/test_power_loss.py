"""A commit outlasts a loss of power before anything relies on it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import commits, delta
from customer_activity.lake.failpoints import FailPoint
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.settings import Settings
from support.streams import Query


def test_an_entry_is_on_the_disk_before_the_commit_counts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(lake=str(tmp_path / "lake"), run_dir=tmp_path / "run")
    delta.ensure_tables(settings.lake)
    settled: list[str] = []
    at_point: dict[FailPoint, set[str]] = {}
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        settled.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    batch = MicroBatch(Query.GOLD, "g", 0, failpoint=lambda point: at_point.update({point: set(settled)}))
    rows = arrow_schema(Table.ACTIVITY_CHANGES).empty_table()
    assert commits.append(spark, settings.lake, Table.ACTIVITY_CHANGES, rows, batch) == 1
    entry = f"{1:020}.json"
    assert entry not in at_point[FailPoint.STAGED]
    assert {entry, "_delta_log"} <= at_point[FailPoint.COMMITTED]
