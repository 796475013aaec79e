"""Executors elsewhere that do not see the lake are refused; those that have not the code are sent it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from customer_activity.errors import EXIT_TERMINAL
from customer_activity.inspection import status
from customer_activity.settings import PACKAGE, Settings
from support import cluster, executors_python
from support.broker import assert_verified, send
from support.records import profile, purchase
from support.waiting import until

ZONES = Path("/usr/share/zoneinfo")  # where Arrow looks


def drained(settings: Settings, address: str, *streams: str, **more: object) -> subprocess.CompletedProcess[str]:
    """Run the streams, or some of them, in a driver of its own, on a cluster, until they have read all."""
    here = settings.model_copy(update={"spark_master": address, **more})
    return subprocess.run(
        [sys.executable, "-m", "customer_activity", "stream", *streams, "--available-now"],
        env={**cluster.environment(), **here.environment()},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.nightly
def test_executors_that_do_not_see_the_lake_are_refused_at_start(settings: Settings, tmp_path: Path) -> None:
    send(settings, profile("C-1"), purchase("P-1", "C-1"))
    Path(settings.lake).mkdir(parents=True, exist_ok=True)
    with cluster.running(tmp_path, hidden=[Path(settings.lake)]) as found:
        done = drained(settings, found.address)
    assert done.returncode == EXIT_TERMINAL, done.stderr[-2_000:]
    assert re.search(r"the executors on \S+ do not see the lake .*\n.*in a bucket, or", done.stderr), done.stderr[
        -2_000:
    ]
    assert "Traceback" not in done.stderr
    assert not list(Path(settings.lake).glob("_reach/*"))


@pytest.mark.nightly
def test_executors_without_the_code_are_refused_at_start(settings: Settings, tmp_path: Path) -> None:
    python = executors_python.made(tmp_path)
    with cluster.running(tmp_path, hidden=[PACKAGE.parent]) as found:
        done = drained(settings, found.address, executor_python=str(python), ship_release=False)
    assert done.returncode == EXIT_TERMINAL, done.stderr[-2_000:]
    assert "executors cannot run the pipeline's code" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.nightly
def test_executors_without_a_python_are_refused_at_start(settings: Settings, tmp_path: Path) -> None:
    with cluster.running(tmp_path) as found:
        done = drained(settings, found.address, executor_python=str(tmp_path / "none" / "python"))
    assert done.returncode == EXIT_TERMINAL, done.stderr[-2_000:]
    assert "executors cannot run the pipeline's code" in done.stderr
    assert "ACTIVITY_EXECUTOR_PYTHON" in done.stderr


@pytest.mark.nightly
def test_executors_without_the_libraries_are_refused_at_start(settings: Settings, tmp_path: Path) -> None:
    """As with an environment of a release before: small batches would go on until a large one comes."""
    python = executors_python.made(tmp_path, without="confluent_kafka")
    send(settings, profile("C-1"), purchase("P-1", "C-1"))
    with cluster.running(tmp_path, hidden=[PACKAGE.parent]) as found:
        done = drained(settings, found.address, executor_python=str(python))
    assert done.returncode == EXIT_TERMINAL, done.stderr[-2_000:]
    assert "executors cannot run the pipeline's code" in done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("has", "said"),
    [
        pytest.param("no time zones", r"no time zone Europe/Berlin\n", id="no time-zone database"),
        pytest.param("other time zones", r"other offsets of the time zone Europe/Berlin\n", id="another one"),
        pytest.param("another release", r"another release of the pipeline\n", id="another release"),
        pytest.param("another msgspec", r"msgspec 0\.0\.1 instead of [\d.]+\n", id="another version of a library"),
    ],
)
def test_executors_that_could_write_other_rows_are_refused_at_start(
    settings: Settings, tmp_path: Path, has: str, said: str
) -> None:
    python = executors_python.made(tmp_path, without="msgspec" if has == "another msgspec" else None)
    replaced = {}
    if has == "other time zones":
        replaced[ZONES] = Path(shutil.copytree(ZONES, tmp_path / "zones", symlinks=True))
        shutil.copy(ZONES / "Europe" / "London", tmp_path / "zones" / "Europe" / "Berlin")
    elif has == "another msgspec":
        executors_python.with_version(python, "msgspec", "0.0.1")
    elif has == "another release":
        replaced[PACKAGE.parent] = Path(shutil.copytree(PACKAGE.parent, tmp_path / "jobs"))
        rules = tmp_path / "jobs" / PACKAGE.name / "streams" / "silver" / "purchases.py"
        rules.write_text(rules.read_text(encoding="utf-8").replace('"\\x1f"', '"\\x1e"'), encoding="utf-8")
    is_sent = has != "another release"
    more = {
        "executor_python": str(python),
        "streams": "daily",
        "time_zone": "Europe/Berlin",
        "ship_release": is_sent,
    }
    with cluster.running(tmp_path, hidden=[ZONES] if has == "no time zones" else [], replaced=replaced) as found:
        done = drained(settings, found.address, **more)
    assert done.returncode == EXIT_TERMINAL, done.stderr[-2_000:]
    assert re.search(rf"executors have another release, other libraries .*: on \S+ {said}", done.stderr), done.stderr[
        -2_000:
    ]
    assert "Traceback" not in done.stderr


@pytest.mark.nightly
def test_executors_that_do_not_reach_one_another_are_told_of_at_start(settings: Settings, tmp_path: Path) -> None:
    """None resolves the other's name, and all see the driver and the lake: what is small goes on.

    What becomes of a large batch is left to chance: Spark may do again all that is lost on one and the same executor.
    """
    send(settings, profile("C-1"), purchase("P-1", "C-1"))
    with cluster.running(tmp_path, workers=2, are_apart=True) as found:
        done = drained(settings, found.address)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert re.search(r"executors of \S+ did not exchange data \(not within \d+ s\).* each other's names", done.stderr)
    assert_verified(settings)


@pytest.mark.nightly
def test_two_drivers_of_one_lake_start_at_the_same_time(settings: Settings, tmp_path: Path) -> None:
    """Each with streams of its own; neither takes the other's check of executors for a lake that they do not see."""
    send(settings, profile("C-1"), purchase("P-1", "C-1"))
    with cluster.running(tmp_path, workers=2) as found, ThreadPoolExecutor(2) as drivers:
        assert drained(settings, found.address).returncode == 0  # so that there are tables
        properties = tmp_path / "spark.conf"
        properties.write_text("spark.cores.max 1\n", encoding="utf-8")  # or the first one has all executors
        started = [
            drivers.submit(
                drained,
                *(settings, found.address, stream),
                run_dir=tmp_path / stream,
                spark_properties_file=properties,
            )
            for stream in ("bronze", "silver")
        ]
        done = [driver.result() for driver in started]
    assert [driver.returncode for driver in done] == [0, 0], [driver.stderr[-2_000:] for driver in done]


@pytest.mark.nightly
def test_executors_without_the_code_are_sent_it(settings: Settings, tmp_path: Path) -> None:
    """Their folder of the source tree is empty, and their Python knows the libraries alone."""
    python = executors_python.made(tmp_path)
    send(settings, profile("C-1"), purchase("P-1", "C-1"))
    with cluster.running(tmp_path, hidden=[PACKAGE.parent]) as found:
        done = drained(settings, found.address, executor_python=str(python), placement="executors")
    assert done.returncode == 0, done.stderr[-2_000:]
    assert_verified(settings)


@pytest.mark.nightly
def test_a_batch_waits_for_an_executor_and_is_no_driver_that_has_stalled(settings: Settings, tmp_path: Path) -> None:
    send(settings, profile("C-1"), purchase("P-1", "C-1"))

    def told() -> str | None:
        """When bronze told that it waits."""
        (bronze,) = (query for query in status.report(settings).queries if query.query == "bronze")
        return bronze.progress_at if "waits for an executor" in bronze.message else None

    with cluster.running(tmp_path) as found, ThreadPoolExecutor(1) as drivers:
        found.workers[0].terminate()
        found.workers[0].wait(30)
        started = drivers.submit(drained, settings, found.address, placement="executors")
        until(lambda: told() is not None, 150, running=started)
        first = told()
        until(lambda: told() not in {None, first}, 30, running=started)
        found.restart(0)
        done = started.result()
    assert done.returncode == 0, done.stderr[-2_000:]
    assert_verified(settings)
