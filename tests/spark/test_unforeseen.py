"""What Spark could not take is in no log: its words name the value."""

from __future__ import annotations

import logging
import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from customer_activity import unforeseen
from customer_activity.engine import executors, session

JANE = "Jane Secretname"


def cast(spark: SparkSession) -> None:
    spark.sql("SELECT cast(concat('Jane Secret', ending) AS int) FROM VALUES ('name') AS t(ending)").collect()


def by_a_worker(spark: SparkSession) -> None:
    def fail(rows: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for each in rows:
            pa.array([JANE]).cast(pa.int64())
            yield each

    spark.range(1).mapInArrow(fail, "id long").collect()


def by_an_executor(spark: SparkSession) -> None:
    def fail(_: Iterable[int]) -> Iterator[dict[str, Any]]:
        pa.array([JANE]).cast(pa.int64())
        yield {}

    executors.run(spark, 2, fail, lambda *_: None)


def by_java(spark: SparkSession) -> None:
    spark._jvm.java.lang.Integer.parseInt(JANE)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("fails", "kinds"),
    [
        pytest.param(cast, ["CAST_INVALID_INPUT", "org.apache.spark.SparkNumberFormatException"], id="Spark's cast"),
        pytest.param(by_a_worker, ["org.apache.spark.api.python.PythonException"], id="a Python worker"),
        pytest.param(by_java, ["java.lang.NumberFormatException"], id="Java"),
    ],
)
def test_a_value_that_spark_cannot_take_is_not_told(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, fails: Callable[[SparkSession], None], kinds: list[str]
) -> None:
    said: list[logging.LogRecord] = []
    for logger in session.OWN_LOGS:
        monkeypatch.setattr(logging.getLogger(logger), "handle", said.append)
    with pytest.raises(Exception, match=JANE) as raised:
        fails(spark)
    stack = unforeseen.stack(raised.value)
    assert "Secretname" not in stack
    assert all(kind in stack for kind in kinds)
    assert f"in {fails.__name__}" in stack
    assert said == []


def test_an_executor_tells_the_driver_and_its_own_log_the_kind_alone(spark: SparkSession) -> None:
    with pytest.raises(Exception, match=r"RuntimeError: ArrowInvalid") as raised:
        by_an_executor(spark)
    assert "Secretname" not in str(raised.value)
    assert re.fullmatch(
        r"\w+ in executors\.py, line \d+ \(ArrowInvalid in \w+\.py, line \d+\)", unforeseen.kind(raised.value)
    )


def test_a_python_worker_that_was_killed_is_told_as_such(spark: SparkSession) -> None:
    def end(_: Iterable[int]) -> Iterator[dict[str, Any]]:
        os.kill(os.getpid(), signal.SIGKILL)
        yield {}

    with pytest.raises(Exception, match="Python worker exited") as raised:
        executors.run(spark, 1, end, lambda *_: None)
    assert unforeseen.kind(raised.value).endswith("(Python worker exited unexpectedly)")
