"""A table of current rows that executors have written anew: its commit, who it loses against, and its change feed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import merge_spread
from customer_activity.engine.stream import Rewrite, Writer
from customer_activity.errors import LeaseLost, TransientError
from customer_activity.lake import commits, deltalog, feeds, merging
from customer_activity.lake.datafiles import FileWriter
from customer_activity.lake.failpoints import FailPoint, nowhere
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.settings import Settings
from customer_activity.streams.current import profiles
from support import histories, tables
from support.pipeline import Pipeline
from support.streams import CURRENT, Query

TABLE = Table.PROFILES
Rows = list[dict[str, Any]]


def differing(before: Rows, after: Rows) -> Rows:
    """Return what a change feed has to say of two states of a table."""
    held, wanted = ({row["customer_id"]: row for row in rows} for rows in (before, after))
    found = []
    for key in held.keys() | wanted.keys():
        if key not in wanted:
            found.append({**held[key], "_change_type": "delete"})
        elif key not in held:
            found.append({**wanted[key], "_change_type": "insert"})
        elif held[key] != wanted[key]:
            found += [
                {**held[key], "_change_type": "update_preimage"},
                {**wanted[key], "_change_type": "update_postimage"},
            ]
    return sorted(found, key=str)


def rows_of(lake: str, table: Table) -> Rows:
    found: Rows = tables.opened(lake, table).to_pyarrow_table().to_pylist()
    return found


def feed_of_delta_rs(lake: str, table: Table, version: int) -> Rows:
    feed = tables.opened(lake, table).load_cdf(starting_version=version, ending_version=version)
    return _as_rows(pa.table(feed), table)


def feed_of_spark(spark: SparkSession, lake: str, table: Table, version: int) -> Rows:
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version)
    return _as_rows(reader.option("endingVersion", version).load(table_path(lake, table)).toArrow(), table)


def _as_rows(feed: pa.Table, table: Table) -> Rows:
    names = [*arrow_schema(table).names, "_change_type"]
    schema = pa.schema([*arrow_schema(table), ("_change_type", pa.string())])
    found: Rows = feed.select(names).cast(schema).to_pylist()
    return sorted(found, key=str)


def test_the_change_feed_has_the_rows_that_differ(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch fills empty tables; the second changes some rows of them, and ends some."""
    monkeypatch.setattr(merge_spread, "LEAST_ROWS", 1)  # so that some tasks share them
    lake = pipeline.settings.lake
    pipeline.settings = pipeline.settings.model_copy(update={"placement": "executors"})
    pipeline.restart()
    before: dict[Table, Rows] = {table: [] for table in CURRENT}
    for number, records in enumerate(histories.REPEATS):
        pipeline.send(*records)
        pipeline.run()
        for table in CURRENT:
            rows, version = rows_of(lake, table), tables.newest(lake, table)
            found = differing(before[table], rows)
            assert version == number + 1
            assert feed_of_spark(spark, lake, table, version) == found
            assert feed_of_delta_rs(lake, table, version) == found
            assert 0 < len(found) < 2 * len(rows)
            before[table] = rows
    (entry,) = deltalog.entries(lake, Table.ACTIVITY, range(2, 3))
    assert entry is not None
    kinds = {name for action in entry.actions for name in action}
    assert {"add", "remove", "cdc", "txn", "commitInfo"} <= kinds


class Rewriting:
    """Writes a table of one row anew, in a batch of a driver's."""

    def __init__(self, spark: SparkSession, lake: str) -> None:
        """Merge a row, and write what takes its place: a file that nobody knows yet."""
        self.spark = spark
        self.lake = lake
        self.merge("C-1", 0)
        self.version = tables.newest(lake, TABLE)
        self.held = feeds.snapshot(lake, TABLE, self.version)
        writer = FileWriter(lake, TABLE)
        writer.write(rows("C-1", "C-2"))
        self.file = writer.close()
        assert self.file is not None

    def commit(self, failpoint: Callable[[FailPoint], None] = nowhere, number: int = 1, epoch: int = 4) -> int | None:
        assert self.file is not None
        rewrite = Rewrite(TABLE, self.version, self.held, [self.file])
        batch = MicroBatch(Query.PROFILES, "g", number, fencing_epoch=lambda: epoch, failpoint=failpoint)
        return Writer(profiles.SPEC, self.spark, self.lake).make(rewrite, batch)

    def merge(self, customer: str, number: int, epoch: int | None = None, generation: str = "g") -> None:
        batch = MicroBatch(Query.PROFILES, generation, number, fencing_epoch=lambda: epoch)
        merging.merge(rows(customer), self.lake, TABLE, batch, key=["customer_id"])

    def append(self) -> None:
        write_deltalake(table_path(self.lake, TABLE), rows("C-9"), mode="append")

    def append_as_spark(self) -> None:
        batch = MicroBatch(Query.SILVER, "h", 0)
        commits.append(self.spark, self.lake, TABLE, rows("C-9"), batch)

    def customers(self) -> list[str]:
        return sorted(row["customer_id"] for row in rows_of(self.lake, TABLE))


def rows(*customers: str) -> pa.Table:
    return pa.Table.from_pylist([{"customer_id": customer} for customer in customers], arrow_schema(TABLE))


@pytest.fixture
def rewriting(spark: SparkSession, settings: Settings) -> Rewriting:
    return Rewriting(spark, settings.lake)


def test_a_batch_is_in_the_table_once(rewriting: Rewriting) -> None:
    assert rewriting.commit() == 2
    assert rewriting.commit() is None
    assert rewriting.customers() == ["C-1", "C-2"]
    assert tables.opened(rewriting.lake, TABLE).history(1)[0]["operationParameters"]["mode"] == "Overwrite"


def test_small_batches_are_merged_into_what_was_written(rewriting: Rewriting) -> None:
    rewriting.commit()
    rewriting.merge("C-2", 2)
    rewriting.merge("C-3", 3)
    assert rewriting.customers() == ["C-1", "C-2", "C-3"]


MEANWHILE = {
    "an append of somebody's": Rewriting.append,
    "an append of Delta's": Rewriting.append_as_spark,
    "a merge": lambda at: at.merge("C-9", 0, generation="h"),
    "a merge of the row that was read": lambda at: at.merge("C-1", 0, generation="h"),
    "a compaction": lambda at: tables.opened(at.lake, TABLE).optimize.z_order(["customer_id"]),
}


@pytest.mark.parametrize("meanwhile", MEANWHILE.values(), ids=MEANWHILE)
def test_what_is_committed_between_look_and_commit_is_not_lost(
    rewriting: Rewriting, meanwhile: Callable[[Rewriting], object]
) -> None:
    def failpoint(point: FailPoint) -> None:
        if point is FailPoint.STAGED:
            meanwhile(rewriting)

    with pytest.raises(Py4JJavaError, match=r"DELTA_CONCURRENT"):
        rewriting.commit(failpoint)
    assert tables.newest(rewriting.lake, TABLE) == 2
    assert set(rewriting.customers()) <= {"C-1", "C-9"}


@pytest.mark.parametrize("meanwhile", MEANWHILE.values(), ids=MEANWHILE)
def test_what_is_committed_before_the_look_is_not_lost(
    rewriting: Rewriting, meanwhile: Callable[[Rewriting], object]
) -> None:
    meanwhile(rewriting)
    with pytest.raises(TransientError, match=r"silver.customer_profiles is at version 2, and .* made from 1"):
        rewriting.commit()
    assert tables.newest(rewriting.lake, TABLE) == 2


def test_an_older_epoch_is_refused(rewriting: Rewriting) -> None:
    rewriting.merge("C-9", 0, epoch=5, generation="h")
    with pytest.raises(LeaseLost):
        rewriting.commit()


def test_files_of_a_driver_that_died_belong_to_nobody(rewriting: Rewriting) -> None:
    class Died(Exception):
        pass

    def failpoint(point: FailPoint) -> None:
        if point is FailPoint.STAGED:
            raise Died

    with pytest.raises(Died):
        rewriting.commit(failpoint)
    assert rewriting.customers() == ["C-1"]
    assert rewriting.file is not None
    assert Path(table_path(rewriting.lake, TABLE), rewriting.file.path).exists()
    assert rewriting.commit() == 2
