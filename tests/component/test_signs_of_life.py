"""A driver's status files while it looks after its tables: nothing is written meanwhile, and ten seconds are silent."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence

import pytest

from customer_activity import application
from customer_activity.engine import observability
from customer_activity.engine.queries import RunningQuery
from customer_activity.engine.stream import Opened
from customer_activity.errors import (
    EXIT_CHECK_FAILED,
    EXIT_TERMINAL,
    EXIT_TRY_AGAIN,
    ActivityError,
    LeaseLost,
    TerminalError,
)
from customer_activity.inspection import query_status
from customer_activity.maintenance import scheduler
from customer_activity.maintenance.scheduler import Scheduler
from customer_activity.settings import Settings
from support.streams import Query

LOOKS = 3


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0, [len(Query)] * LOOKS), (3600.0, [len(Query), *[0] * (LOOKS - 1)])],
    ids=["work may be due", "no work is due"],
)
def test_statuses_are_written_right_before_what_may_take_long(
    seconds: float, expected: list[int], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping, looks, written = threading.Event(), [], list[int]()

    def look(_: Scheduler) -> None:
        looks.append(len(written))
        if len(looks) == LOOKS:
            stopping.set()

    def write_status(running: Sequence[RunningQuery], _: Settings) -> None:
        written.append(len(running))

    monkeypatch.setattr(RunningQuery, "start", lambda *_, **__: None)
    monkeypatch.setattr(RunningQuery, "ended", lambda _: False)
    monkeypatch.setattr(Scheduler, "look", look)
    monkeypatch.setattr(application, "write_status", write_status)
    monkeypatch.setattr(application, "WATCH_SECONDS", 0.0)
    monkeypatch.setattr(observability, "QUIET_SECONDS", 3600.0)
    monkeypatch.setattr(scheduler, "LOOK_SECONDS", seconds)
    queries = [RunningQuery(name, lambda: pytest.fail("nothing starts here"), settings, stopping) for name in Query]
    application.supervise(queries, settings, stopping, available_now=False)
    assert written[:LOOKS] == expected
    assert looks == [1, 2, 3]  # each after the statuses


def test_a_stream_that_cannot_be_opened_says_why(settings: Settings) -> None:
    def refuse() -> Opened:
        raise TerminalError("the topic is another's", remedy="give it one of its own")

    stopping = threading.Event()
    queries = [
        RunningQuery(Query.PUBLISH, refuse, settings, stopping),
        RunningQuery(Query.ACTIVITY, lambda: pytest.fail("it is stopped before its turn"), settings, stopping),
    ]
    with pytest.raises(TerminalError):
        application.supervise(queries, settings, stopping, available_now=False)
    refused, other = (query_status.read(settings, query) for query in (Query.PUBLISH, Query.ACTIVITY))
    assert (refused.state, other.state) == ("failed", "stopped")
    assert "give it one of its own" in refused.message
    assert (refused.exit_code, other.exit_code) == (EXIT_TERMINAL, None)


LOST = LeaseLost("silver: another driver has taken over", remedy="leave it to that driver")
NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("fault", "words", "exit_code"),
    [
        pytest.param(LOST, "leave it to that driver", EXIT_TRY_AGAIN, id="the lease is lost"),
        pytest.param(TerminalError("the lake is another's"), "another's", EXIT_TERMINAL, id="a person is needed"),
        pytest.param(NO_SPACE, "no space left on the disk of", EXIT_TRY_AGAIN, id="the disk is full"),
        pytest.param(OSError(errno.EIO, "gone"), "OSError: [Errno 5] gone", EXIT_CHECK_FAILED, id="unforeseen"),
        pytest.param(ValueError("a name"), "ValueError in", EXIT_CHECK_FAILED, id="without what may be a record's"),
    ],
)
@pytest.mark.parametrize("part", ["check", "maintenance"])
def test_what_ends_all_streams_is_why_each_failed(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    fault: Exception,
    words: str,
    exit_code: int,
) -> None:
    def fail(*_: object) -> None:
        raise fault

    if part == "maintenance":
        monkeypatch.setattr(Scheduler, "look", fail)
    monkeypatch.setattr(RunningQuery, "start", lambda *_, **__: None)
    monkeypatch.setattr(RunningQuery, "ended", lambda _: False)
    monkeypatch.setattr(application, "is_full", lambda _: fault is NO_SPACE)
    stopping = threading.Event()
    queries = [RunningQuery(name, lambda: pytest.fail("nothing starts here"), settings, stopping) for name in Query]
    check = fail if part == "check" else None
    with pytest.raises(ActivityError if exit_code != EXIT_CHECK_FAILED else type(fault)):
        application.supervise(queries, settings, stopping, available_now=False, check=check)
    assert stopping.is_set()
    told = [query_status.read(settings, query) for query in Query]
    assert {(found.state, found.exit_code) for found in told} == {("failed", exit_code)}
    assert all(words in found.message and "a name" not in found.message for found in told)


def test_streams_that_were_told_to_stop_have_not_failed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = threading.Event()
    monkeypatch.setattr(RunningQuery, "start", lambda *_, **__: None)
    monkeypatch.setattr(RunningQuery, "ended", lambda _: False)
    queries = [RunningQuery(name, lambda: pytest.fail("nothing starts here"), settings, stopping) for name in Query]
    application.supervise(queries, settings, stopping, available_now=False, check=stopping.set)
    told = [query_status.read(settings, query) for query in Query]
    assert {(found.state, found.exit_code) for found in told} == {("stopped", None)}
