"""Spark's executors do what is asked of them: here threads of the driver, and its Python workers."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any
from zipimport import zipimporter

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from customer_activity.catalog import Table, table_path
from customer_activity.engine import executors
from customer_activity.engine.executors import ByLane, InputGone, Stage
from customer_activity.errors import ChangeFeedLost
from customer_activity.state.sorted_runs import StateGone
from support import histories
from support.pipeline import Pipeline, copied_lake
from support.quick_pipeline import QuickPipeline
from support.streams import Query


def lived(pipeline: Pipeline, place: str) -> dict[str, list[dict[str, Any]]]:
    pipeline.settings = pipeline.settings.model_copy(update={"placement": place})
    pipeline.restart()
    for records in histories.REPEATS:
        pipeline.send(*records)
        pipeline.run()
    return histories.rows(pipeline)


def test_executors_end_in_the_rows_of_the_driver(
    spark: SparkSession, empty_lake: Path, tmp_path: Path, pipeline: Pipeline
) -> None:
    here = lived(pipeline, "driver")
    assert lived(QuickPipeline(spark, copied_lake(empty_lake, tmp_path / "other")), "executors") == here


def test_a_file_that_is_gone_is_data_loss(pipeline: Pipeline) -> None:
    pipeline.settings = pipeline.settings.model_copy(update={"placement": "executors"})
    pipeline.restart()
    pipeline.send(*histories.REPEATS[0])
    pipeline.hop(Query.BRONZE)
    for file in Path(table_path(pipeline.settings.lake, Table.PURCHASE_EVENTS)).glob("*.parquet"):
        file.unlink()
    with pytest.raises(ChangeFeedLost, match=r"bronze.purchase_events: files that versions \d+ to \d+ added are gone"):
        pipeline.hop(Query.SILVER)


# A worker imports no test: what it is to do has to come along, so it is made inside of a function.


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        pytest.param(FileNotFoundError, InputGone, id="a file of the input"),
        pytest.param(StateGone, StateGone, id="a run"),
    ],
)
def test_a_task_tells_what_is_gone(spark: SparkSession, error: type[Exception], raised: type[Exception]) -> None:
    def meet(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            raise error
        yield executors.report({})

    with pytest.raises(raised):
        executors.run(spark, 2, meet, lambda _: None)


@pytest.mark.parametrize("count", [1, 2, 7, 64])
def test_each_task_gets_all_rows_of_a_lane_of_its_own(spark: SparkSession, count: int) -> None:
    lanes = executors.lanes(spark, count)

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in executors.numbers(batches):
            rows = pa.table({"share": [number] * len(lanes), "lane": lanes})
            yield executors.parcels(np.array(lanes, np.int32), rows)

    def tell(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in executors.unpacked(batches).values():
            yield executors.report(rows.to_pydict())

    reports = executors.run_by_lane(spark, 3, ByLane(pack, lanes, tell), lambda _: None)
    assert sorted(report["lane"] for report in reports) == [[lane] * 3 for lane in sorted(lanes)]
    assert all(sorted(report["share"]) == [0, 1, 2] for report in reports)


def test_a_stage_gets_what_the_one_before_it_sends(spark: SparkSession) -> None:
    first, second = executors.lanes(spark, 3), executors.lanes(spark, 2)

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in executors.numbers(batches):
            yield executors.parcels(np.array(first, np.int32), pa.table({"sum": [number, 10 * number, 100 * number]}))

    def add(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in executors.unpacked(batches).values():
            sums = pa.table({"sum": [sum(rows.column("sum").to_pylist())]})
            for kind, lane in enumerate(second):
                yield executors.parcel(lane, sums, kind)

    def tell(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for kind, rows in executors.unpacked(batches).items():
            yield executors.report({"kind": kind, "sums": sorted(rows.column("sum").to_pylist())})

    work = ByLane(pack, first, add, (Stage(second, tell),))
    reports = executors.run_by_lane(spark, 4, work, lambda _: None)
    assert sorted(report["kind"] for report in reports) == [0, 1]
    assert [report["sums"] for report in reports] == [[6, 60, 600]] * 2


def test_workers_are_spared_what_spark_has_them_do_between_tasks(spark: SparkSession) -> None:
    zips: Any = zipimporter

    def count(_: Any) -> None:
        zips.invalidated += 1

    def tell(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in executors.numbers(batches):
            if not hasattr(zips, "invalidated"):
                zips.invalidated, zips.invalidate_caches = 0, count
            told = {"zips": zips.invalidated, "kept_out": gc.get_freeze_count()}
            yield executors.report({"worker": os.getpid(), "number": number, **told})

    later: dict[int, list[dict[str, int]]] = {}
    for report in sorted(executors.run(spark, 16, tell, lambda _: None), key=itemgetter("number")):
        later.setdefault(report["worker"], []).append(report)
    again = [report for reports in later.values() for report in reports[1:]]
    assert again
    assert all(report["zips"] == 0 and report["kept_out"] > 0 for report in again)
