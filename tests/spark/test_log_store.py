"""The log store of local lakes (infra/spark): it lists what Delta's own lists, and looks at nothing before that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from customer_activity.engine.session import LOCAL_DISK
from customer_activity.lake import jvm

OURS, DELTA = LOCAL_DISK["spark.delta.logStore.file.impl"], "io.delta.storage.LocalLogStore"


def listing(spark: SparkSession, store: str, start: Path) -> Iterator[Any]:
    """List a folder from a name on, as Delta asks for it."""
    configuration = jvm.hadoop_settings(spark)
    view = jvm.jvm(spark)
    found = getattr(view, store)(configuration).listFrom(view.org.apache.hadoop.fs.Path(f"file:{start}"), configuration)
    while found.hasNext():
        yield found.next()


def told(spark: SparkSession, store: str, start: Path) -> list[tuple[str, int, bool, int]]:
    """Return what Delta reads of each file."""
    return [
        (file.getPath().toString(), 0 if file.isDirectory() else file.getLen(), file.isDirectory(), modified)
        for file in listing(spark, store, start)
        if (modified := file.getModificationTime()) > 0
    ]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a folder as a table's log has grown, its name one that has to be escaped."""
    folder = tmp_path / "lake of a day+%20" / "_delta_log"
    folder.mkdir(parents=True)
    for version in range(12):
        (folder / f"{version:020}.json").write_text("x" * version, encoding="utf-8")
        (folder / f"{version:020}.crc").write_text("{}", encoding="utf-8")
    (folder / f"{10:020}.checkpoint.parquet").write_bytes(b"PAR1")
    (folder / "_last_checkpoint").write_text("{}", encoding="utf-8")
    (folder / "_sidecars").mkdir()
    (folder / f"{0:020}.json:Zone.Identifier").write_text("copied through another system", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("start", "files"),
    [
        pytest.param(f"{0:020}.", 28, id="all of it"),
        pytest.param(f"{0:020}.json", 27, id="from the first entry"),
        pytest.param(f"{10:020}.checkpoint.parquet", 7, id="from a checkpoint"),
        pytest.param(f"{11:020}.json", 3, id="the last entry, and what is no entry"),
        pytest.param(f"{12:020}.", 2, id="what comes next: nothing yet"),
        pytest.param("a", 0, id="nothing at all"),
    ],
)
def test_it_lists_what_delta_s_own_does(spark: SparkSession, log: Path, start: str, files: int) -> None:
    assert told(spark, OURS, log / start) == told(spark, DELTA, log / start)
    assert len(told(spark, OURS, log / start)) == files


def test_an_entry_that_goes_while_it_lists_is_left_out(spark: SparkSession, log: Path) -> None:
    found = listing(spark, OURS, log / f"{8:020}.json")
    assert next(found).getPath().getName() == f"{8:020}.json"
    for entry in log.glob("*9.*"):
        entry.unlink()
    assert next(found).getPath().getName() == f"{10:020}.checkpoint.parquet"


@pytest.mark.parametrize("store", [OURS, DELTA], ids=["ours", "Delta's"])
def test_no_folder_is_no_empty_log(spark: SparkSession, tmp_path: Path, store: str) -> None:
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        next(listing(spark, store, tmp_path / "none" / f"{0:020}."))


def test_a_folder_that_cannot_be_read_is_no_missing_one(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file in its place", encoding="utf-8")
    with pytest.raises(Py4JJavaError, match="NotDirectoryException"):
        next(listing(spark, OURS, tmp_path / "log" / f"{0:020}."))
