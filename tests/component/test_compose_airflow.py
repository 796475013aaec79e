"""What starts and ends Airflow in Compose: shell scripts; stand-ins for commands note how they were called."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from customer_activity.supervision import processes
from support import waiting
from support.images import PROJECT

Calls = Callable[[], list[str]]
SCRIPTS = PROJECT / "infra" / "compose"
WAIT_SECONDS = 20.0
# Notes each call with what it reads; a part of Airflow stays until it is told to stop.
STAND_IN = """#!/usr/bin/env bash
echo "${0##*/} $*" >>"$CALLS"
case "$*" in
  scheduler|triggerer)
    trap 'echo "$1 stopped" >>"$CALLS"; exit 0' TERM
    sleep 600 &
    echo "$$ $!" >"$CALLS.$1"
    while true; do sleep 0.05; done ;;
  users*) while read -r line; do echo "read $line" >>"$CALLS"; done ;;
  "driver stop"*) env | grep ^ACTIVITY_ | sort >"$CALLS.activity.$$" ;;
  "db migrate") exit "${MIGRATE_CODE:-0}" ;;
esac
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which Airflow's command and the product's are stand-ins."""
    (tmp_path / "bin").mkdir()
    for name in ("airflow", "activity"):
        (tmp_path / "bin" / name).write_text(STAND_IN, encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "CALLS": str(tmp_path / "calls"), "PAUSE_SECONDS": "0", "DRIVER_SECONDS": "7"}


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    """Return what tells what was called, in order."""

    def told() -> list[str]:
        return (tmp_path / "calls").read_text(encoding="utf-8").splitlines() if (tmp_path / "calls").exists() else []

    return told


until = partial(waiting.until, seconds=WAIT_SECONDS, every=0.02)


# --- supervise.sh


@pytest.fixture
def supervised(environment: dict[str, str], calls: Calls) -> Iterator[subprocess.Popen[bytes]]:
    """Start both parts."""
    with subprocess.Popen([SCRIPTS / "supervise.sh"], env=environment, start_new_session=True) as process:
        until(lambda: {"airflow scheduler", "airflow triggerer"} <= set(calls()))
        yield process
        process.terminate()  # it ends what it started


def numbers(tmp_path: Path, part: str) -> list[int]:
    """Return the processes of a part: itself and what it started."""
    noted = tmp_path / f"calls.{part}"
    until(lambda: noted.exists() and noted.read_text(encoding="utf-8").endswith("\n"))
    return [int(number) for number in noted.read_text(encoding="utf-8").split()]


@pytest.mark.parametrize("part", ["scheduler", "triggerer"])
def test_a_part_that_was_killed_is_started_again_and_the_other_goes_on(
    part: str, supervised: subprocess.Popen[bytes], calls: Calls, tmp_path: Path
) -> None:
    itself, left = numbers(tmp_path, part)
    worker = psutil.Process(left)
    os.kill(itself, signal.SIGKILL)
    until(lambda: calls().count(f"airflow {part}") == 2)
    assert len(calls()) == 3
    until(lambda: not processes.is_running(worker))  # what it had started is not left behind


def test_told_to_stop_it_stops_airflow_and_then_the_driver(
    supervised: subprocess.Popen[bytes], calls: Calls, tmp_path: Path
) -> None:
    workers = [psutil.Process(numbers(tmp_path, part)[1]) for part in ("scheduler", "triggerer")]
    supervised.terminate()
    assert supervised.wait(WAIT_SECONDS) == 0
    assert set(calls()[2:4]) == {"scheduler stopped", "triggerer stopped"}
    assert calls()[4:] == ["activity driver stop --seconds 7"]
    assert not [worker for worker in workers if processes.is_running(worker)]


def test_told_to_stop_it_stops_the_driver_of_every_pipeline(
    environment: dict[str, str], calls: Calls, tmp_path: Path
) -> None:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    for name in ("orders-eu", "shop"):
        (folder / f"{name}.env").write_text(f"ACTIVITY_PIPELINE={name}\nACTIVITY_LAKE='/of {name}'\n", encoding="utf-8")
    known = {**environment, "CUSTOMER_ACTIVITY_PIPELINES": str(folder), "ACTIVITY_CURRENCY": "of nobody's"}
    with subprocess.Popen([SCRIPTS / "supervise.sh"], env=known, start_new_session=True) as process:
        until(lambda: {"airflow scheduler", "airflow triggerer"} <= set(calls()))
        process.terminate()
        assert process.wait(WAIT_SECONDS) == 0
    assert calls().count("activity driver stop --seconds 7") == 2
    seen = sorted(path.read_text(encoding="utf-8") for path in tmp_path.glob("calls.activity.*"))
    assert seen == [f"ACTIVITY_LAKE=/of {name}\nACTIVITY_PIPELINE={name}\n" for name in ("orders-eu", "shop")]


# --- prepare-airflow.sh


@pytest.fixture
def prepare(environment: dict[str, str], tmp_path: Path) -> Callable[..., int]:
    (tmp_path / "secrets").mkdir()
    for user in ("admin", "watcher"):
        (tmp_path / "secrets" / f"airflow_{user}_password").write_text(f"word-of-{user}", encoding="utf-8")

    def run(**variables: str) -> int:
        known = {**environment, "SECRETS": str(tmp_path / "secrets"), **variables}
        return subprocess.run([SCRIPTS / "prepare-airflow.sh"], env=known, check=False).returncode

    return run


def test_users_are_made_with_passwords_that_no_command_line_shows(prepare: Callable[..., int], calls: Calls) -> None:
    assert prepare() == 0
    commands = [call for call in calls() if call.startswith("airflow")]
    assert [call.split(" --")[0] for call in commands] == [
        "airflow db migrate",
        "airflow users create",
        "airflow users create",
        "airflow users reset-password",
    ]
    assert ["--role Admin" in commands[1], "--role Viewer" in commands[2]] == [True, True]
    assert not [call for call in commands if "word-of" in call]
    # Each is asked for twice; the watcher's is set once more, so that it is its secret's after a change.
    assert [call for call in calls() if call.startswith("read")] == ["read word-of-admin"] * 2 + [
        "read word-of-watcher"
    ] * 4


def test_without_a_database_it_fails_and_makes_nobody(prepare: Callable[..., int], calls: Calls) -> None:
    assert prepare(MIGRATE_CODE="3") == 3
    assert calls() == ["airflow db migrate"]


# --- prepare-kafka.sh


def test_topics_come_first_and_then_rights(environment: dict[str, str], calls: Calls) -> None:
    assert subprocess.run([SCRIPTS / "prepare-kafka.sh"], env=environment, check=False).returncode == 0
    assert calls() == [
        "activity broker topics",
        "activity broker acls pipeline activity",
        "activity broker acls traffic producers",
        "activity broker acls portal portal",
    ]
