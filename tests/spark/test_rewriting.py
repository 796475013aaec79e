"""A compaction on executors, committed by Delta: what is a conflict, and what readers see of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.queries import RunningQuery
from customer_activity.errors import LeaseLost, TransientError
from customer_activity.lake import commits
from customer_activity.lake.datafiles import DataFile, FileWriter
from customer_activity.lake.failpoints import FailPoint, nowhere
from customer_activity.lake.feeds import Added
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.maintenance import maintenance, spread, tending
from customer_activity.settings import Settings
from support import tables
from support.streams import Query

TABLE = Table.PURCHASES
FILES = 4


@pytest.fixture
def lake(spark: SparkSession, settings: Settings) -> str:
    """Return a lake whose silver.purchases was appended to four times."""
    for number in range(FILES):
        append(spark, settings.lake, number)
    return settings.lake


def rows_of(*numbers: int) -> pa.Table:
    return pa.Table.from_pylist([{"purchase_id": f"P-{number}"} for number in numbers], arrow_schema(TABLE))


def append(spark: SparkSession, lake: str, number: int, epoch: int = 1) -> int | None:
    batch = MicroBatch(Query.SILVER, "g", number, fencing_epoch=lambda: epoch)
    return commits.append(spark, lake, TABLE, rows_of(number), batch)


class Begun:
    """A compaction of all small files, of which the commit is left to do."""

    def __init__(self, spark: SparkSession, lake: str) -> None:
        self.spark, self.lake = spark, lake
        self.removed: list[Added] = spread.small_files(lake, TABLE)
        writer = FileWriter(lake, TABLE)
        writer.write(rows_of(*range(FILES)))
        self.made: list[DataFile | None] = [writer.close()]

    def commit(self, failpoint: Callable[[FailPoint], None] = nowhere, epoch: int = 1) -> int:
        return commits.rewrite(
            self.spark,
            self.lake,
            TABLE,
            self.removed,
            [file for file in self.made if file is not None],
            fencing_epochs={Query.SILVER: lambda: epoch},
            metadata='{"query": "maintenance"}',
            failpoint=failpoint,
        )


def ids(spark: SparkSession, lake: str) -> list[str]:
    """Return the rows as Spark and delta-rs have them."""
    found = sorted(row.purchase_id for row in spark.read.format("delta").load(table_path(lake, TABLE)).collect())
    here = tables.opened(lake, TABLE).to_pyarrow_table().column("purchase_id").to_pylist()
    assert sorted(here) == found
    return found


def changes(spark: SparkSession, lake: str, first: int, last: int) -> list[tuple[Any, ...]]:
    """Return what the change feed of some versions has, as Spark and delta-rs have it."""
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    read = reader.option("startingVersion", first).option("endingVersion", last).load(table_path(lake, TABLE))
    found = [(row.purchase_id, row._change_type) for row in read.collect()]
    here = pa.table(tables.opened(lake, TABLE).load_cdf(first, last)).select(["purchase_id", "_change_type"])
    assert sorted(tuple(row.values()) for row in here.to_pylist()) == sorted(found)
    return found


ALL = [f"P-{number}" for number in range(FILES)]


def test_no_row_changes_and_the_feed_is_empty(spark: SparkSession, lake: str) -> None:
    version = Begun(spark, lake).commit()
    assert ids(spark, lake) == ALL
    assert len(tables.opened(lake, TABLE).file_uris()) == 1
    assert changes(spark, lake, version, version) == []
    append(spark, lake, FILES)
    assert changes(spark, lake, version, version + 1) == [(f"P-{FILES}", "insert")]


def test_the_checksum_that_delta_writes_is_right(spark: SparkSession, lake: str) -> None:
    version = Begun(spark, lake).commit()
    checksum = json.loads(Path(table_path(lake, TABLE), "_delta_log", f"{version:020}.crc").read_text())
    assert checksum["numFiles"] == 1
    assert checksum["tableSizeBytes"] == tending.size(lake, TABLE)[1]


def test_an_append_meanwhile_is_no_conflict(spark: SparkSession, lake: str) -> None:
    begun = Begun(spark, lake)
    versions = [append(spark, lake, FILES), append(spark, lake, FILES + 1), begun.commit()]
    assert versions == [FILES + 1, FILES + 2, FILES + 3]
    assert ids(spark, lake) == [*ALL, f"P-{FILES}", f"P-{FILES + 1}"]
    assert append(spark, lake, FILES + 1) is None, "what batches are in the table is known as before"


def test_a_successors_compaction_refuses_an_append(spark: SparkSession, lake: str) -> None:
    begun = Begun(spark, lake)
    batch = MicroBatch(Query.SILVER, "g", FILES, fencing_epoch=lambda: 1)

    def meanwhile(point: FailPoint) -> None:
        if point is FailPoint.STAGED:
            begun.commit(epoch=2)

    batch.failpoint = meanwhile
    with pytest.raises(Py4JJavaError, match="ConcurrentTransaction"):
        commits.append(spark, lake, TABLE, rows_of(FILES), batch)
    assert ids(spark, lake) == ALL


def test_a_successor_that_has_committed_refuses_it(spark: SparkSession, lake: str) -> None:
    """Its VACUUM may have removed what was written here and is not committed yet."""
    begun = Begun(spark, lake)
    version = append(spark, lake, FILES, epoch=2)
    with pytest.raises(LeaseLost):
        begun.commit()
    assert tables.newest(lake, TABLE) == version


def test_a_successor_that_commits_in_the_moment_of_its_commit_refuses_it(spark: SparkSession, lake: str) -> None:
    begun = Begun(spark, lake)

    def meanwhile(_: FailPoint) -> None:
        append(spark, lake, FILES, epoch=2)

    with pytest.raises(Py4JJavaError, match="ConcurrentTransaction"):
        begun.commit(meanwhile)
    assert tables.newest(lake, TABLE) == FILES + 1
    assert ids(spark, lake) == [*ALL, f"P-{FILES}"]


@pytest.mark.parametrize("by", ["executors", "delta-rs"])
def test_another_compaction_of_the_same_files_is_a_conflict(spark: SparkSession, lake: str, by: str) -> None:
    begun = Begun(spark, lake)
    if by == "executors":
        Begun(spark, lake).commit()
    else:
        maintenance.compact(lake, TABLE)
    version = tables.newest(lake, TABLE)
    with pytest.raises(TransientError, match=f"removed {FILES} of {FILES} files"):
        begun.commit()
    assert tables.newest(lake, TABLE) == version
    assert ids(spark, lake) == ALL


def test_so_is_one_in_the_moment_of_the_commit(spark: SparkSession, lake: str) -> None:
    begun = Begun(spark, lake)

    def meanwhile(_: FailPoint) -> None:
        maintenance.compact(lake, TABLE)

    with pytest.raises(Py4JJavaError, match=r"Concurrent(Append|DeleteDelete)"):
        begun.commit(meanwhile)
    assert tables.newest(lake, TABLE) == FILES + 1
    assert ids(spark, lake) == ALL


def test_executors_compact_a_table_beside_the_streams(
    spark: SparkSession, settings: Settings, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spread, "SMALL_BYTES", 3 * spread.small_files(lake, TABLE)[0].size // 2)
    monkeypatch.setattr(spread, "LARGE_BYTES", 1)
    rewriting = spread.Rewriting(spark, settings.model_copy(update={"placement": "executors"}))
    silver = RunningQuery(
        Query.SILVER, lambda: pytest.fail("nothing starts here"), settings, threading.Event(), fencing_epoch=lambda: 1
    )
    assert rewriting.begin(TABLE, [silver])
    assert rewriting.at_work is not None
    wait([rewriting.at_work], 60)
    assert rewriting.at_work.result() == FILES
    rewriting.look()
    rewriting.close()
    assert ids(spark, lake) == ALL
    assert len(tables.opened(lake, TABLE).file_uris()) == 1
