"""A driver's status files while it looks after its tables: nothing is written meanwhile, and ten seconds are silent."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from customer_activity import application
from customer_activity.engine import observability
from customer_activity.engine.queries import RunningQuery
from customer_activity.engine.stream import Opened
from customer_activity.errors import TerminalError
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
