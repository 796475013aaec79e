"""A correction that is killed half way, on a disk and on S3, is finished by the same command; `verify` is equal."""

from __future__ import annotations

import os
import selectors
from pathlib import Path
from typing import Any

import pytest

from customer_activity.errors import EXIT_TRY_AGAIN
from customer_activity.lake import corrections
from customer_activity.settings import Settings
from support.broker import send, view
from support.corrections import count_wrongly
from support.records import profile, purchase
from support.s3_server import KEYS
from support.shell import Shell
from support.waiting import until

CUSTOMERS = 5

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.fixture(params=["a disk", "S3"])
def lake_settings(request: pytest.FixtureRequest) -> Settings:
    """Return settings of a lake on a disk or on S3, with the topics of a broker."""
    found: Settings = request.getfixturevalue("settings" if request.param == "a disk" else "on_s3")
    return found


@pytest.fixture
def shell(tmp_path: Path, lake_settings: Settings) -> Any:
    """Return what begins a process for commands."""
    return lambda name: Shell(lake_settings, KEYS, tmp_path / name)


def killed(activity: Shell, lake: str, *arguments: str) -> None:
    """Kill the process of a command as soon as its correction has begun."""
    activity.begin(*arguments)
    assert activity.process.stdout is not None
    os.setpriority(os.PRIO_PROCESS, activity.process.pid, 19)  # who watches it must not come too late
    with selectors.DefaultSelector() as said:
        said.register(activity.process.stdout, selectors.EVENT_READ)
        while corrections.at_work(lake) is None:  # on a disk it is there for some tenths of a second
            if said.select(0):
                pytest.fail(f"it came to its end unseen, or failed: {activity.end()}")
    activity.process.kill()
    activity.process.wait(60)
    activity.errors.close()


def finished(activity: Shell, *arguments: str) -> None:
    """Run a command until the lease of the process that was killed is over."""
    ended: list[tuple[int, str]] = []

    def is_through() -> bool:
        ended[:] = [activity.run(*arguments)]
        return ended[0][0] != EXIT_TRY_AGAIN

    until(is_through, 120)
    assert ended[0][0] == 0, ended[0][1]


@pytest.mark.parametrize("undoes", [False, True], ids=["applied", "undone"])
def test_it_is_finished_by_the_next(shell: Any, lake_settings: Settings, *, undoes: bool) -> None:
    settings, lake = lake_settings, lake_settings.lake
    with shell("before") as activity:
        if "://" in lake:
            activity.report("lake", "create")
    send(settings, *(profile(f"C-{n}") for n in range(CUSTOMERS)), *(purchase(f"P-{n}", f"C-{n}") for n in range(5)))
    activity = shell("killed")
    assert activity.run("stream", "--available-now")[0] == 0
    count_wrongly(lake, "P-1")
    assert activity.run("stream", "--available-now")[0] == 0
    sent = len(view(settings))
    assert sent == CUSTOMERS + 1
    if undoes:
        run = activity.report("rebuild", "--apply")["correction"]["run"]
        killed(activity, lake, "rebuild", "--undo", run)
    else:
        killed(activity, lake, "rebuild", "--apply")

    with shell("after") as activity:
        assert activity.run("verify")[0] == 2  # it is not through
        finished(activity, "rebuild", "--apply")
        if undoes:
            (*_, last) = activity.report("rebuild", "--list")
            assert last["undoes"] == run
            finished(activity, "rebuild", "--undo", last["run"])
        assert activity.run("stream", "--available-now")[0] == 0
        activity.report("verify")
        activity.report("rebuild")
    assert len(view(settings)) == sent + 1, "consumers see the row that differs, once"
