"""Spark's executors do what is asked of them: here threads of the driver, and its Python workers."""

from __future__ import annotations

import gc
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, repeat
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipimport import zipimporter

import numpy as np
import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from customer_activity.catalog import Table, table_path
from customer_activity.engine import exchange, executors, runtime
from customer_activity.engine.executors import ByLane, InputGone, Parcel, Stage
from customer_activity.errors import ChangeFeedLost, OtherRuntime
from customer_activity.lake import jvm
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


def told_while(spark: SparkSession, tmp_path: Path, enough: Callable[[list[str]], bool]) -> list[str]:
    """Run a job of one task that ends when enough was told, or after a while; return what was told."""
    told: list[str] = []
    come = str(tmp_path / "come")

    def progress(words: str) -> None:
        told.append(words)
        if enough(told):
            Path(come).touch()

    def waiting() -> Any:
        def task(numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
            import time  # noqa: PLC0415
            from pathlib import Path  # noqa: PLC0415

            gives_up_at = time.monotonic() + 10
            while not Path(come).exists() and time.monotonic() < gives_up_at:
                time.sleep(0.01)
            yield from ({"number": number} for number in numbers)

        return task

    assert executors.run(spark, 1, waiting(), progress) == [{"number": 0}]
    return told


WAITS, AT_WORK = "waits for an executor", "0 of 1 tasks of executors are through"


@pytest.mark.parametrize(
    ("lacks", "expected"),
    [
        pytest.param([True] * 4, [WAITS] * 3, id="until the first one comes"),
        pytest.param([True, True, False], [WAITS, AT_WORK], id="and not when it has come"),
        pytest.param([False] + [True] * 3, [AT_WORK], id="nor when executors go: another driver can do without"),
    ],
)
def test_a_job_that_begins_without_an_executor_says_so_again_and_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: list[bool], expected: list[str]
) -> None:
    """A driver that says nothing for two minutes is taken for stalled, and started anew."""
    asked = chain(lacks, repeat(lacks[-1]))
    monkeypatch.setattr(executors, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(jvm, "tasks_at_work", lambda *_: (0, 1))
    monkeypatch.setattr(jvm, "lacks_executors", lambda _: next(asked))
    told = told_while(spark, tmp_path, lambda told: told[: len(expected)] == expected)
    assert told[: len(expected)] == expected
    assert AT_WORK not in expected or told.count(WAITS) == expected.count(WAITS)


def test_a_standalone_master_is_not_waited_for_without_end(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was restarted knows the application no more: another driver is one that it knows."""
    monkeypatch.setattr(executors, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(executors, "ALONE_SECONDS", 0.0)
    monkeypatch.setattr(executors, "STANDALONE", "local")
    monkeypatch.setattr(jvm, "lacks_executors", lambda _: True)
    assert told_while(spark, tmp_path, lambda _: True) == []


@pytest.mark.parametrize(
    ("master", "count", "expected"),
    [
        pytest.param("spark://master:7077", 0, True, id="none yet"),
        pytest.param("spark://master:7077", 2, False, id="two"),
        pytest.param("local[2]", 0, False, id="threads of the driver"),
        pytest.param("yarn", Py4JError("the JVM is gone"), False, id="no JVM to ask"),
    ],
)
def test_a_cluster_lacks_executors_when_none_has_come(
    monkeypatch: pytest.MonkeyPatch, master: str, count: int | Exception, *, expected: bool
) -> None:
    def executors_of(_: object) -> int:
        if isinstance(count, Exception):
            raise count
        return count

    monkeypatch.setattr(jvm, "executors", executors_of)
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    assert jvm.lacks_executors(session) == expected


# A worker imports no test: what it is to do has to come along, so it is made inside of a function.


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        pytest.param(FileNotFoundError, InputGone, id="a file of the input"),
        pytest.param(StateGone, StateGone, id="a run"),
    ],
)
def test_a_task_tells_what_is_gone(spark: SparkSession, error: type[Exception], raised: type[Exception]) -> None:
    def meet(numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
        for _ in numbers:
            raise error
        yield {}

    with pytest.raises(raised):
        executors.run(spark, 2, meet, lambda _: None)


def test_a_file_of_sparks_own_that_is_gone_is_no_input(spark: SparkSession) -> None:
    """As a broadcast of a large task, which a worker reads from its local directory before the task begins."""

    class Unread:
        def __reduce__(self) -> tuple[Any, ...]:
            return open, ("/nowhere/broadcast_12_python",)

        def __call__(self, _: Iterable[int]) -> Iterator[dict[str, Any]]:
            yield {}

    with pytest.raises(Exception, match=r"FileNotFoundError: .*broadcast_12") as raised:
        executors.run(spark, 1, Unread(), lambda _: None)
    assert not isinstance(raised.value, InputGone)


@pytest.mark.parametrize("is_by_lane", [False, True], ids=["of one stage", "of two stages"])
def test_a_worker_in_another_runtime_begins_no_task(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *, is_by_lane: bool
) -> None:
    """As on an executor that came after the driver had asked all: workers of a variable are a pool of their own."""

    def tell(given: Iterable[Any]) -> Iterator[dict[str, Any]]:
        yield {"given": len(list(given))}

    def pack(numbers: Iterable[int]) -> Iterator[Parcel]:
        yield from (executors.parcel(0, pa.table({"share": [number]})) for number in numbers)

    def work() -> executors.Reports:
        if is_by_lane:
            return executors.run_by_lane(spark, 1, ByLane(pack, 1, tell), lambda _: None)
        return executors.run(spark, 1, tell, lambda _: None)

    environment = spark.sparkContext.environment
    here = runtime.found("Europe/Berlin")
    monkeypatch.setitem(environment, runtime.VARIABLE, runtime.as_text(here))
    assert work() == [{"given": 1}]
    monkeypatch.setitem(environment, runtime.VARIABLE, runtime.as_text({**here, "numpy": "1.0"}))
    with pytest.raises(OtherRuntime, match=r"on \S+ numpy \S+ instead of 1\.0\n.*ACTIVITY_EXECUTOR_PYTHON"):
        work()


@pytest.mark.parametrize("count", [1, 2, 7, 64])
def test_each_task_gets_all_rows_of_a_lane(spark: SparkSession, count: int) -> None:
    def pack(numbers: Iterable[int]) -> Iterator[Parcel]:
        for number in numbers:
            rows = pa.table({"share": [number] * count, "lane": range(count)})
            yield from executors.parcels(np.arange(count), rows)

    def tell(packed: Iterable[bytes]) -> Iterator[dict[str, Any]]:
        for rows in executors.unpacked(packed).values():
            yield rows.to_pydict()

    reports = executors.run_by_lane(spark, 3, ByLane(pack, count, tell), lambda _: None)
    assert sorted(report["lane"] for report in reports) == [[lane] * 3 for lane in range(count)]
    assert all(sorted(report["share"]) == [0, 1, 2] for report in reports)


def test_each_task_sends_every_other_a_parcel(spark: SparkSession) -> None:
    assert exchange.run(spark, 4) == 16
    assert exchange.run(spark, 1) == exchange.LEAST_TASKS**2  # as large batches send them


def test_a_job_without_shares_reports_nothing(spark: SparkSession) -> None:
    """The part of a stream may have commits and no file."""

    def pack(numbers: Iterable[int]) -> Iterator[Parcel]:
        yield from (executors.parcel(0, pa.table({"share": [number]})) for number in numbers)

    def tell(packed: Iterable[bytes]) -> Iterator[dict[str, Any]]:
        yield from (rows.to_pydict() for rows in executors.unpacked(packed).values())

    assert executors.run(spark, 0, lambda numbers: ({"number": number} for number in numbers), lambda _: None) == []
    assert executors.run_by_lane(spark, 0, ByLane(pack, 2, tell), lambda _: None) == []


def test_a_stage_gets_what_the_one_before_it_sends(spark: SparkSession) -> None:
    def pack(numbers: Iterable[int]) -> Iterator[Parcel]:
        for number in numbers:
            yield from executors.parcels(np.arange(3), pa.table({"sum": [number, 10 * number, 100 * number]}))

    def add(packed: Iterable[bytes]) -> Iterator[Parcel]:
        for rows in executors.unpacked(packed).values():
            sums = pa.table({"sum": [sum(rows.column("sum").to_pylist())]})
            yield from (executors.parcel(lane, sums, kind=lane) for lane in range(2))

    def tell(packed: Iterable[bytes]) -> Iterator[dict[str, Any]]:
        for kind, rows in executors.unpacked(packed).items():
            yield {"kind": kind, "sums": sorted(rows.column("sum").to_pylist())}

    work = ByLane(pack, 3, add, (Stage(2, tell),))
    reports = executors.run_by_lane(spark, 4, work, lambda _: None)
    assert sorted(report["kind"] for report in reports) == [0, 1]
    assert [report["sums"] for report in reports] == [[6, 60, 600]] * 2


def test_a_parcel_may_be_larger_than_all_buffers_between_tasks(spark: SparkSession) -> None:
    size = 100 << 20  # Kryo's buffer, which Spark has for bytes, ends at 64 MB

    def pack(numbers: Iterable[int]) -> Iterator[Parcel]:
        for number in numbers:
            yield executors.parcel(number % 3, pa.table({"text": [b"x" * size]}))

    def tell(packed: Iterable[bytes]) -> Iterator[dict[str, Any]]:
        for rows in executors.unpacked(packed).values():
            yield {"size": len(rows.column("text")[0].as_py())}

    reports = executors.run_by_lane(spark, 1, ByLane(pack, 3, tell), lambda _: None)
    assert reports == [{"size": size}]


def test_workers_are_spared_what_spark_has_them_do_between_tasks(spark: SparkSession) -> None:
    zips: Any = zipimporter

    def count(_: Any) -> None:
        zips.invalidated += 1

    def tell(numbers: Iterable[int]) -> Iterator[dict[str, int]]:
        for number in numbers:
            if not hasattr(zips, "invalidated"):
                zips.invalidated, zips.invalidate_caches = 0, count
            told = {"zips": zips.invalidated, "kept_out": gc.get_freeze_count()}
            yield {"worker": os.getpid(), "number": number, **told}

    later: dict[int, list[dict[str, int]]] = {}
    for report in sorted(executors.run(spark, 16, tell, lambda _: None), key=itemgetter("number")):
        later.setdefault(report["worker"], []).append(report)
    again = [report for reports in later.values() for report in reports[1:]]
    assert again
    assert all(report["zips"] == 0 and report["kept_out"] > 0 for report in again)


@pytest.mark.skipif(sys.platform != "linux", reason="the option is Linux's")
def test_a_worker_does_not_wait_with_its_acknowledgements(spark: SparkSession) -> None:
    def tell(numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
        with ExitStack() as stack:
            descriptors = [int(each.name) for each in Path("/proc/self/fd").iterdir() if each.is_socket()]
            found = [stack.enter_context(socket.socket(fileno=os.dup(descriptor))) for descriptor in descriptors]
            connections = [one for one in found if one.proto == socket.IPPROTO_TCP]  # one of them may be there twice
            told = [one.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) for one in connections]
            for one in connections:
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)  # for the task after this one
        yield from ({"number": number, "at_once": told} for number in numbers)

    reports = executors.run(spark, 16, tell, lambda _: None)
    assert len(reports) == 16
    assert all(report["at_once"] and all(report["at_once"]) for report in reports)
