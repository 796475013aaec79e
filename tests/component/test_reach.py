"""Executors elsewhere: who does not see the lake is told from who could not look, and nothing of theirs is lost."""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PythonException

from customer_activity.catalog import Table, table_path
from customer_activity.engine import exchange, executors, reach, runtime
from customer_activity.engine.executors import InputGone
from customer_activity.errors import (
    EXIT_TERMINAL,
    ActivityError,
    EnvironmentFault,
    LeaseLost,
    OtherRuntime,
    SettingsError,
    TransientError,
)
from customer_activity.lake.datafiles import DataFile
from customer_activity.settings import Settings
from customer_activity.storage import marker

BERLIN = "Europe/Berlin"
WRITTEN = {Table.PURCHASE_EVENTS: [DataFile("a.parquet", 3, 1, "{}"), DataFile("b.parquet", 5, 1, "{}")]}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Settings:
    return Settings(lake=str(tmp_path / "lake"), spark_master="spark://master:7077")


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        pytest.param({"a.parquet": 3, "b.parquet": 5}, None, id="all of them, whole"),
        pytest.param({"a.parquet": 3}, "b.parquet", id="one is on another disk"),
        pytest.param({"a.parquet": 2, "b.parquet": 5}, "a.parquet", id="one is another file"),
        pytest.param({}, "a.parquet", id="nothing is here"),
    ],
)
def test_a_file_that_the_driver_does_not_see_is_not_committed(
    elsewhere: Settings, there: dict[str, int], missing: str | None
) -> None:
    folder = Path(table_path(elsewhere.lake, Table.PURCHASE_EVENTS))
    folder.mkdir(parents=True)
    for name, size in there.items():
        (folder / name).write_bytes(b"x" * size)
    if missing is None:
        reach.require_here(elsewhere, WRITTEN)
        return
    with pytest.raises(SettingsError, match=f"an executor has written {missing}, .*\\n.*in a bucket"):
        reach.require_here(elsewhere, WRITTEN)
    reach.require_here(elsewhere.model_copy(update={"spark_master": "local[2]"}), WRITTEN)  # threads of the driver


class Context:
    """Stands for a Spark context whose executors answer as they are told to, or never."""

    defaultParallelism = 1  # noqa: N815 - as Spark calls it

    def __init__(self, answer: Any, others: dict[str, str]) -> None:
        self.answer, self.cancelled, self.exchanged = answer, threading.Event(), 0
        self.others = others
        self.environment: dict[str, str] = {}

    def setJobGroup(self, *_: object, **__: object) -> None:  # noqa: N802
        pass

    def cancelJobGroup(self, _: str) -> None:  # noqa: N802
        self.cancelled.set()

    def parallelize(self, *_: object) -> Context:
        return self

    def mapPartitionsWithIndex(self, _: object) -> Context:  # noqa: N802
        return self

    def collect(self) -> list[dict[str, str]]:
        if self.answer is None:
            assert self.cancelled.wait(30)
            raise PythonException("cancelled")
        if isinstance(self.answer, Exception):
            raise self.answer
        there = {**runtime.of_text(self.environment[runtime.VARIABLE]), **self.others}
        return [{"executor": "h 1", "host": "h", "found": self.answer, "runtime": there}]


def session(
    answer: Any, monkeypatch: pytest.MonkeyPatch, others: dict[str, str] | None = None, exchanged: Any = 1
) -> Any:
    context = Context(answer, others or {})

    def exchange_run(*_: object) -> int:
        context.exchanged += 1
        if exchanged is None:
            assert context.cancelled.wait(30)
            raise PythonException("cancelled")
        if isinstance(exchanged, Exception):
            raise exchanged
        return int(exchanged)

    monkeypatch.setattr("customer_activity.lake.jvm.executors", lambda _: 1)
    monkeypatch.setattr(exchange, "run", exchange_run)
    return SimpleNamespace(sparkContext=context)


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        pytest.param(marker.SEES, None, "", id="it sees the lake"),
        pytest.param(marker.BLIND, SettingsError, "executors on h do not see the lake", id="it sees another one"),
        pytest.param(
            marker.READS, SettingsError, "on h may read the lake .* and not write to it", id="it may not write"
        ),
        pytest.param("TimeoutError", TransientError, "could not look at the lake .*TimeoutError", id="storage is away"),
        pytest.param(PythonException("No module named 'deltalake'"), EnvironmentFault, "cannot run", id="no package"),
        pytest.param(PythonException("[PYTHON_VERSION_MISMATCH]"), EnvironmentFault, "cannot run", id="other Python"),
        pytest.param(PythonException("executor lost"), TransientError, "could not ask", id="it was lost"),
    ],
)
def test_what_an_executor_answers_is_told(
    elsewhere: Settings, monkeypatch: pytest.MonkeyPatch, answer: Any, error: type[ActivityError] | None, words: str
) -> None:
    spark = session(answer, monkeypatch)
    if error is None:
        reach.check(spark, elsewhere, BERLIN, threading.Event(), lambda: None)
        assert spark.sparkContext.exchanged == 1
    else:
        with pytest.raises(error, match=words):
            reach.check(spark, elsewhere, BERLIN, threading.Event(), lambda: None)
    assert not left(elsewhere.lake)


@pytest.mark.parametrize(
    ("others", "said"),
    [
        pytest.param({runtime.RELEASE: "a1b2"}, "another release of the pipeline", id="another release"),
        pytest.param({"msgspec": "0.1.0"}, "msgspec 0.1.0 instead of", id="another version"),
        pytest.param({"pyarrow": runtime.MISSING}, "no pyarrow", id="a library is missing"),
        pytest.param({BERLIN: runtime.MISSING}, f"no time zone {BERLIN}", id="the time zone is missing"),
        pytest.param({BERLIN: "a1b2"}, f"other offsets of the time zone {BERLIN}", id="another time-zone database"),
    ],
)
def test_an_executor_that_could_write_other_rows_is_refused(
    elsewhere: Settings, monkeypatch: pytest.MonkeyPatch, others: dict[str, str], said: str
) -> None:
    spark = session(marker.SEES, monkeypatch, others)
    with pytest.raises(OtherRuntime, match=rf"on h {said}.*\n.*ACTIVITY_EXECUTOR_PYTHON") as refused:
        reach.check(spark, elsewhere, BERLIN, threading.Event(), lambda: None)
    assert refused.value.exit_code == EXIT_TERMINAL


APART = r"executors of spark://master:7077 did not exchange data \({}.*\), as large batches do: .* names"


@pytest.mark.parametrize(
    ("exchanged", "why"),
    [
        pytest.param(PythonException("FetchFailedException: Failed to connect"), "PythonException", id="Spark gave up"),
        pytest.param(InputGone(), "InputGone", id="a folder of theirs is gone"),
        pytest.param(None, r"not within \d+ s", id="not in time"),
    ],
)
def test_executors_that_do_not_reach_one_another_end_no_driver(
    elsewhere: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    exchanged: Any,
    why: str,
) -> None:
    monkeypatch.setattr(reach, "EXCHANGE_SECONDS", 0.3)
    spark = session(marker.SEES, monkeypatch, exchanged=exchanged)
    reach.check(spark, elsewhere, None, threading.Event(), lambda: None)
    assert re.search(APART.format(why), caplog.text)


def test_an_executor_that_could_write_other_rows_is_refused_by_an_exchange_too(
    elsewhere: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has come since the others were asked."""
    spark = session(marker.SEES, monkeypatch, exchanged=runtime.other({"h": ["another release"]}))
    with pytest.raises(OtherRuntime):
        reach.check(spark, elsewhere, None, threading.Event(), lambda: None)


def test_a_driver_that_uses_no_executors_has_them_exchange_nothing(
    elsewhere: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = session(marker.SEES, monkeypatch)
    here = elsewhere.model_copy(update={"placement": "driver"})
    reach.check(spark, here, None, threading.Event(), lambda: None)
    assert not spark.sparkContext.exchanged


def test_a_driver_that_is_stopped_meanwhile_says_nothing_of_executors(
    elsewhere: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spark, stopping = session(marker.SEES, monkeypatch, exchanged=None), threading.Event()

    def look_around() -> None:
        if spark.sparkContext.exchanged:
            stopping.set()

    reach.check(spark, elsewhere, None, stopping, look_around)
    assert spark.sparkContext.cancelled.is_set()
    assert "did not exchange" not in caplog.text


def test_threads_of_the_driver_are_told_and_asked_nothing(elsewhere: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "found", lambda _: pytest.fail("the driver looked at itself"))
    spark = session(RuntimeError("they were asked"), monkeypatch)
    here = elsewhere.model_copy(update={"spark_master": "local[2]"})
    reach.check(spark, here, BERLIN, threading.Event(), lambda: None)
    assert not spark.sparkContext.environment


def test_a_task_tells_what_is_found_in_its_process() -> None:
    asked = runtime.telling(lambda numbers: ({"number": number} for number in numbers), BERLIN)
    assert list(asked([3])) == [{"number": 3, "runtime": runtime.found(BERLIN)}]


@pytest.mark.parametrize("ends", ["it is told to stop", "the time is over", "its lease is lost"])
def test_a_driver_does_not_wait_for_executors_that_never_come(
    elsewhere: Settings, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    spark, stopping = session(None, monkeypatch), threading.Event()
    monkeypatch.setattr(reach, "ANSWER_SECONDS", 0.3 if ends == "the time is over" else 1e9)
    asked_at = time.monotonic()

    def look_around() -> None:
        if time.monotonic() - asked_at > 0.3:
            if ends == "its lease is lost":
                raise LeaseLost("another driver has taken over")
            stopping.set()

    if ends == "its lease is lost":
        with pytest.raises(LeaseLost):
            reach.check(spark, elsewhere, None, stopping, look_around)
    else:
        reach.check(spark, elsewhere, None, stopping, look_around)
    assert spark.sparkContext.cancelled.is_set()


@pytest.mark.parametrize(
    ("placement", "told"),
    [
        pytest.param("auto", "large batches are the driver's work until one comes", id="auto"),
        pytest.param("executors", "large batches wait for one", id="executors"),
    ],
)
def test_a_driver_without_executors_says_what_becomes_of_large_batches(
    elsewhere: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    placement: str,
    told: str,
) -> None:
    monkeypatch.setattr(reach, "ANSWER_SECONDS", 0.1)
    settings = elsewhere.model_copy(update={"placement": placement})
    reach.check(session(None, monkeypatch), settings, None, threading.Event(), lambda: None)
    assert told in caplog.text


READING, WRITING = "read_whole", "write_whole"


@pytest.mark.parametrize(
    ("at", "error", "found"),
    [
        pytest.param("", OSError(), marker.SEES, id="the marker is there"),
        pytest.param(READING, FileNotFoundError(), marker.BLIND, id="there is none"),
        pytest.param(READING, PermissionError(), marker.BLIND, id="it may not read"),
        pytest.param(READING, OSError("AWS Error ACCESS_DENIED during GetObject"), marker.BLIND, id="S3 keeps it out"),
        pytest.param(READING, OSError("AWS Error SLOW_DOWN"), "OSError", id="S3 is busy"),
        pytest.param(WRITING, PermissionError(), marker.READS, id="it may not write"),
        pytest.param(WRITING, OSError(errno.EROFS, "Read-only file system"), marker.READS, id="a read-only mount"),
        pytest.param(WRITING, OSError("AWS Error ACCESS_DENIED"), marker.READS, id="S3 lets it read alone"),
        pytest.param(WRITING, OSError("AWS Error SLOW_DOWN"), "OSError", id="S3 is busy for writers"),
    ],
)
def test_an_executor_tells_what_it_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, error: OSError, found: str
) -> None:
    monkeypatch.setattr(marker, "HOLD_SECONDS", 0)
    lake = str(tmp_path)
    (tmp_path / marker.WRITTEN).mkdir()
    name = marker.leave(lake)

    def fail(*_: object) -> bytes | None:
        if isinstance(error, FileNotFoundError):
            return None
        raise error

    if at:
        monkeypatch.setattr(marker, at, fail)
    (answer,) = marker.look(lake, name, [])
    assert answer["found"] == found
    marker.take_away(lake, name)
    marker.take_away(lake, name)
    assert not left(lake)


def test_each_driver_leaves_and_removes_markers_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of one lake, each with streams of its own, may start at the same time."""
    monkeypatch.setattr(marker, "HOLD_SECONDS", 0)
    lake = str(tmp_path)
    (tmp_path / marker.WRITTEN).mkdir()
    one, other = marker.leave(lake), marker.leave(lake)
    assert [answer["found"] for name in (one, other) for answer in marker.look(lake, name, [])] == [marker.SEES] * 2
    marker.take_away(lake, other)
    assert [path.startswith((one, f"{marker.FOLDER}-{one}-")) for path in left(lake)] == [True, True]
    assert next(marker.look(lake, one, []))["found"] == marker.SEES


def test_what_a_killed_driver_has_left_of_its_check_goes_after_an_hour(tmp_path: Path) -> None:
    lake = str(tmp_path)
    (tmp_path / marker.WRITTEN).mkdir()
    killed, recent = marker.leave(lake), marker.leave(lake)
    probe = tmp_path / marker.WRITTEN / f"{marker.FOLDER}-{killed}-1"
    probe.touch()
    for path in (tmp_path / marker.FOLDER / killed, probe):
        os.utime(path, (then := path.stat().st_mtime - marker.STALE_SECONDS - 60, then))
    state = tmp_path / marker.WRITTEN / "silver.db"
    state.touch()
    os.utime(state, (0, 0))
    name = marker.leave(lake)
    assert left(lake) == sorted([recent, name, state.name])


def left(lake: str) -> list[str]:
    """Return the names of the files that checks have left in a lake."""
    return sorted(path.name for folder in (marker.FOLDER, marker.WRITTEN) for path in Path(lake, folder).glob("*"))


def test_a_python_without_what_tasks_import_is_found_when_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not by the first large batch, days later."""
    asked = executors.with_libraries(lambda _: iter([{"found": marker.SEES}]))
    assert list(asked([0])) == [{"found": marker.SEES}]
    monkeypatch.setattr(executors, "LIBRARIES", ("pyarrow", "of_another_release"))
    with pytest.raises(ModuleNotFoundError, match="No module named 'of_another_release'"):
        list(asked([0]))
