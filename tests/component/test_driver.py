"""The driver as a supervisor sees it: how it is judged, who starts it, and that it stops when nobody is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from customer_activity import application, topology
from customer_activity.commands import driver as driver_command
from customer_activity.engine import heartbeat
from customer_activity.engine.observability import QueryStatus
from customer_activity.errors import TransientError
from customer_activity.inspection import status
from customer_activity.inspection.query_status import QueryReport
from customer_activity.inspection.status import Report
from customer_activity.settings import Settings
from customer_activity.supervision import driver, processes, running
from customer_activity.supervision.driver import Driver, State
from support.command import call
from support.inspected import NO_PROCESS, write_status
from support.streams import Query

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
PID = 4_711


def report(*queries: QueryReport) -> Report:
    return Report(NOW, "lake", list(queries), [], {}, [])


def query(name: Query = Query.BRONZE, state: str = "running", *, ago: float | None = 1.0, **more: Any) -> QueryReport:
    at = None if ago is None else {"id": 7, "at": (NOW - timedelta(seconds=ago)).isoformat()}
    return QueryReport(name, state, **{"pid": PID, "batch": at} | more)


def told(ago: float) -> str:
    return (NOW - timedelta(seconds=ago)).isoformat()


def everything(state: str) -> Report:
    """Report all queries in one state."""
    return report(*(query(name, state) for name in Query))


def behind(name: Query = Query.BRONZE, state: str = "running", **more: Any) -> QueryReport:
    """Report a query that has something to read and has had no batch for long."""
    lag = {"lag_records": 5} if name == Query.BRONZE else {"lag_versions": 2}
    return query(name, state, **{"ago": 900.0} | lag | more)


LONG = 1_000.0  # seconds
LIMITS = Settings()


@pytest.mark.parametrize(
    ("seen", "seconds", "state"),
    [
        pytest.param(query(), 500.0, State.RUNNING, id="at work"),
        pytest.param(behind(lag_records=0), LONG, State.RUNNING, id="nothing to read"),
        pytest.param(behind(), 60.0, State.RUNNING, id="started again just now"),
        pytest.param(behind(progress_at=told(3.0)), LONG, State.RUNNING, id="a long batch moves on"),
        pytest.param(behind(ago=None, progress_at=told(3.0)), LONG, State.RUNNING, id="a long first batch moves on"),
        pytest.param(behind(idle_at=told(9.0)), LONG, State.RUNNING, id="had nothing to read until just now"),
        pytest.param(
            behind(Query.SILVER, idle_at=told(9.0), unread_since=told(3.0)),
            LONG,
            State.RUNNING,
            id="what it has not read came after its last look",
        ),
        pytest.param(behind(Query.PUBLISH, "held"), LONG, State.RUNNING, id="held by quality"),
        pytest.param(query(state="silent", ago=20.0), LONG, State.RUNNING, id="busy"),
        pytest.param(query(state="starting", ago=None), 20.0, State.STARTING, id="starting"),
        pytest.param(query(pid=1), 20.0, State.STARTING, id="files of the one before"),
    ],
)
def test_a_driver_that_goes_on_is_well(seen: QueryReport, seconds: float, state: State) -> None:
    assert driver.judged(report(seen), PID, seconds, LIMITS) == (state, "")


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        pytest.param(behind(), "bronze has something to read and no batch for 900 s", id="stuck"),
        pytest.param(behind(progress_at=told(300.0)), "no batch for 300 s", id="a long batch has stopped moving"),
        pytest.param(
            behind(idle_at=told(200.0)), "no batch for 200 s", id="nothing to read for the last time long ago"
        ),
        pytest.param(
            behind(Query.SILVER, idle_at=told(9.0), unread_since=told(200.0)),
            "silver has something to read and no batch for 200 s",
            id="it looks and does not see what has long been there",
        ),
        pytest.param(query(state="silent", ago=900.0, message="no word"), "no word", id="frozen"),
        pytest.param(query(state="starting", ago=None), "has not started within 120 s", id="does not start"),
        pytest.param(behind(Query.SILVER), "silver has", id="a hop stuck"),
    ],
)
def test_a_driver_that_is_stuck_says_where(seen: QueryReport, words: str) -> None:
    others = [query(ago=900.0)] if seen.query != Query.BRONZE else []
    found, message = driver.judged(report(*others, seen), PID, LONG, LIMITS)
    assert found is State.STALLED
    assert words in message


@pytest.mark.parametrize(
    ("name", "ago", "took", "state"),
    [
        pytest.param(Query.SUMMARIES, 400.0, 1.0, State.RUNNING, id="merges that pause for long"),
        pytest.param(Query.SUMMARIES, 421.0, 1.0, State.STALLED, id="longer than that"),
        pytest.param(Query.ACTIVITY, 121.0, 0.1, State.RUNNING, id="a pace of its own"),
        pytest.param(Query.ACTIVITY, 125.0, 0.1, State.STALLED, id="which is shorter than others'"),
        pytest.param(Query.ACTIVITY, 149.0, 60.0, State.RUNNING, id="the batch before was a long one"),
        pytest.param(Query.ACTIVITY, 151.0, 60.0, State.STALLED, id="longer than the longest pause"),
        pytest.param(Query.SILVER, 121.0, 60.0, State.STALLED, id="the path does not pause"),
    ],
)
def test_a_pause_that_was_asked_for_is_no_silence(name: Query, ago: float, took: float, state: State) -> None:
    batch = {"id": 7, "at": told(ago), "seconds": took}
    seen = query(name, batch=batch, lag_versions=2)
    found, _ = driver.judged(report(seen), PID, 1_000.0, Settings(merge_seconds=300.0, gold_seconds=2.0))
    assert found is state


@pytest.mark.parametrize(
    ("available_now", "merge_seconds", "starts"),
    [
        pytest.param(False, 5.0, 10.0, id="twice its pace"),
        pytest.param(False, 300.0, 20.0, id="a slow pace does not look like a driver that does not start"),
        pytest.param(True, 300.0, 0.0, id="a backfill has no path to wait for"),
    ],
)
def test_what_is_behind_the_path_starts_soon_after_it(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    available_now: bool,
    merge_seconds: float,
    starts: float,
) -> None:
    now, started, stopping = [0.0], dict[Query, float](), threading.Event()

    def wait(seconds: float) -> None:
        now[0] += seconds

    def stub(name: Query) -> Any:
        return SimpleNamespace(
            spec=topology.spec(name),
            start=lambda **_: started.setdefault(name, now[0]),
            ended=lambda: len(started) == 2,
            at_work=threading.Lock(),
            stop=lambda: None,
            last_progress=lambda: None,
            status=QueryStatus(name),
        )

    monkeypatch.setattr(application.time, "monotonic", lambda: now[0])  # type: ignore[attr-defined]
    monkeypatch.setattr(application, "Scheduler", lambda *_, **__: SimpleNamespace(is_due=bool, look=int, close=int))
    monkeypatch.setattr(stopping, "wait", wait)
    slow = settings.model_copy(update={"merge_seconds": merge_seconds})
    application.supervise([stub(Query.SILVER), stub(Query.ACTIVITY)], slow, stopping, available_now=available_now)
    assert started == pytest.approx({Query.SILVER: 0.0, Query.ACTIVITY: starts}, abs=application.WATCH_SECONDS)


@pytest.mark.parametrize(
    ("queries", "state", "words"),
    [
        ([], State.STOPPED, ""),
        ([query(state="stopped")], State.STOPPED, ""),
        ([query(state="dead"), query(Query.SILVER, "dead")], State.DEAD, "ended and left no message"),
        ([query(), query(Query.GOLD, "failed", message="the disk is full")], State.FAILED, "the disk is full"),
    ],
    ids=["never", "stopped", "killed", "failed"],
)
def test_one_that_does_not_run_is_told_from_one_that_was_stopped(
    queries: list[QueryReport], state: State, words: str
) -> None:
    found, message = driver.judged(report(*queries), None, None, LIMITS)
    assert found is state
    assert words in message


def test_a_driver_is_started_once_and_then_found(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    child = object()

    def start(_: Settings, name: str, arguments: list[str]) -> object:
        started.append([name, *arguments])
        return child

    monkeypatch.setattr(processes, "start", start)
    monkeypatch.setattr(running, "is_up", lambda *_: True)
    monkeypatch.setattr(running, "stream_pids", lambda *_: [] if not started else [os.getpid()])
    _, process = driver.start(settings, attended=60.0, wait_seconds=5)
    again, another = driver.start(settings, attended=60.0, wait_seconds=5)
    assert process is child
    assert (another, again.pid) == (None, os.getpid())
    assert started == [["stream", "stream", "--attended", "60.0"]]


def test_a_driver_that_ends_while_it_is_looked_at_does_not_run(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "stream_pids", lambda *_: [2**22 + 1])  # no process has such a number
    assert driver.observe(settings).pid is None


def test_one_that_ended_by_itself_leaves_its_last_words(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "report", lambda _, **_more: everything("failed"))
    processes.log_path(settings, "stream").parent.mkdir(parents=True)
    processes.log_path(settings, "stream").write_text("INFO up\nerror: the disk is full\n", encoding="utf-8")
    assert driver.observe(settings).last_words == "error: the disk is full"
    monkeypatch.setattr(status, "report", lambda _, **_more: everything("stopped"))
    assert driver.observe(settings).last_words == ""


@pytest.mark.parametrize("host", [{}, {"host": "another-host"}], ids=["on this host", "on another"])
@pytest.mark.parametrize(
    ("written", "state", "exit_code"),
    [
        pytest.param({"state": "failed", "exit_code": 2}, State.FAILED, 2, id="failed"),
        pytest.param({"state": "failed"}, State.FAILED, None, id="failed, of an older release"),
        pytest.param({"state": "stopped", "exit_code": None}, State.STOPPED, None, id="stopped"),
    ],
)
def test_one_that_failed_leaves_its_exit_code(
    settings: Settings, host: dict[str, str], written: dict[str, Any], state: State, exit_code: int | None
) -> None:
    for query in Query:
        write_status(settings, query, pid=NO_PROCESS, state="stopped", **host)
    write_status(settings, Query.SILVER, pid=NO_PROCESS, **written, **host)
    found = driver.observe(settings)
    assert (found.state, found.exit_code) == (state, exit_code)
    assert found.as_json()["exit_code"] == exit_code


def test_a_start_that_takes_too_long_says_where_to_look(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "start", lambda *_: None)
    monkeypatch.setattr(running, "is_up", lambda *_: False)
    monkeypatch.setattr(running, "check_stream", lambda *_: None)
    with pytest.raises(TransientError, match="has not started within 0 s"):
        driver.start(settings, attended=None, wait_seconds=0)


def test_a_watch_ends_when_the_driver_is_not_well_and_pays_attention_till_then(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: Iterator[Driver] = iter(
        [Driver(State.STARTING), Driver(State.RUNNING), Driver(State.DEAD), Driver(State.RUNNING)]
    )
    monkeypatch.setattr(driver, "observe", lambda _: next(states))
    assert [found.state for found in driver.watch(settings, 0.0)] == [State.STARTING, State.RUNNING, State.DEAD]
    assert not heartbeat.is_stale(settings.run_dir, 60)


@pytest.mark.parametrize(("age", "is_stopped"), [(5.0, False), (90.0, True)], ids=["watched", "left alone"])
def test_a_driver_that_nobody_watches_stops(settings: Settings, age: float, is_stopped: bool) -> None:
    heartbeat.touch(settings.run_dir)
    file = settings.run_dir / "attention"
    os.utime(file, (time.time() - age,) * 2)
    stopping = threading.Event()
    application.look_around(settings, stopping, None, 60.0)
    assert stopping.is_set() is is_stopped


def test_without_that_option_nobody_needs_to(settings: Settings) -> None:
    stopping = threading.Event()
    application.look_around(settings, stopping, None, None)
    assert not stopping.is_set()
    assert heartbeat.is_stale(settings.run_dir, 60), "nobody ever did"


def test_stop_ends_what_was_started(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert driver.stop(settings, 1.0) is None
    sleeper = "import time; print('up', flush=True); time.sleep(60)  # customer_activity"
    with subprocess.Popen([sys.executable, "-c", sleeper], stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"  # a process that was made just now has no command line yet
        monkeypatch.setattr(running, "stream_pids", lambda *_, **__: [child.pid])
        assert driver.stop(settings, 5.0) is True
        assert child.wait(5) != 0


@pytest.mark.parametrize(
    ("found", "end"),
    [
        pytest.param(Driver(State.RUNNING, pid=7), "last batch unknown", id="nothing to say"),
        pytest.param(
            Driver(State.RUNNING, pid=7, not_ready="gold: failed"), "; not ready: gold: failed", id="not ready"
        ),
        pytest.param(Driver(State.STALLED, "stuck", 7, not_ready="gold: no batch"), "; stuck", id="what is worse"),
        pytest.param(
            Driver(State.RUNNING, "held", 7, placed="gold on executors: 60,000 rows are many"),
            "; held; gold on executors: 60,000 rows are many",
            id="where batches were worked on",
        ),
    ],
)
def test_a_look_in_a_line_says_what_is_not_well(found: Driver, end: str) -> None:
    assert driver_command.line(found).endswith(end)


def test_a_look_says_where_the_last_batches_of_its_own_streams_were_worked_on(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = {"id": 7, "at": NOW.isoformat()}
    silver = query(Query.SILVER, pid=os.getpid(), batch=at | {"placement": "executors: 60,000 rows are many"})
    gold = query(Query.GOLD, pid=os.getpid(), batch=at | {"placement": "driver: 500 rows are few"})
    others = query(Query.SUMMARIES, pid=1, batch=at | {"placement": "driver: 7 rows are few"})
    rest = (query(name, pid=os.getpid()) for name in Query if name not in (Query.SILVER, Query.GOLD, Query.SUMMARIES))
    monkeypatch.setattr(status, "report", lambda _, **_more: report(silver, gold, others, *rest))
    monkeypatch.setattr(running, "stream_pids", lambda *_: [os.getpid()])
    found = driver.look(settings)[1]
    assert found.placed == "silver on executors: 60,000 rows are many; gold in the driver: 500 rows are few"


def test_a_look_from_outside_says_who_is_not_ready(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "report", lambda _, **_more: report(*(behind(name, pid=os.getpid()) for name in Query)))
    monkeypatch.setattr(running, "stream_pids", lambda *_: [os.getpid()])
    found = driver.look(settings.model_copy(update={"ready_batch_seconds": 0.001}))[1]
    assert found.not_ready.startswith("bronze: bronze has something to read")


@pytest.mark.parametrize("left", [{"state": "failed", "message": "no space left"}, {"state": "stopped"}, {}])
def test_a_driver_that_starts_is_not_its_predecessor(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, left: dict[str, str]
) -> None:
    monkeypatch.setattr(driver, "START_SECONDS", 1e9)  # this process may have run for long
    for query in Query:
        write_status(settings, query, pid=NO_PROCESS, **left)
    assert driver.look(settings)[1].state is not State.STARTING
    _, found = driver.look(settings, os.getpid(), {})
    assert (found.state, found.message, found.pid, found.last_words) == (State.STARTING, "", os.getpid(), "")


@pytest.mark.usefixtures("deployment")
class TestCommand:
    def test_status_of_none(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert call("driver", "status", "--json") == 1
        assert json.loads(capsys.readouterr().out)["state"] == "stopped"
        assert call("driver", "status") == 1
        assert capsys.readouterr().out.startswith("stopped, ")

    def test_stop_of_none(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert call("driver", "stop", "--json") == 0
        assert json.loads(capsys.readouterr().out) == {"ran": False, "graceful": None}

    def test_watch_tells_a_line_a_look(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        seen = iter([Driver(State.RUNNING, pid=7, seconds=9.0, lag_records=3), Driver(State.STALLED, "stuck", pid=7)])
        monkeypatch.setattr(driver, "observe", lambda _: next(seen))
        assert call("driver", "watch", "--every", "0.1", "--json") == 1
        lines = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
        assert [line["state"] for line in lines] == ["running", "stalled"]
        seen = iter([Driver(State.FAILED, "no space left")])
        assert call("driver", "watch") == 1
        assert capsys.readouterr().out.rstrip().endswith("; no space left")
