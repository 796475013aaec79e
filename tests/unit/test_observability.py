"""A status file is written when it says something new, and often enough that its driver does not count as silent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from customer_activity.engine import observability
from customer_activity.engine.observability import QueryStatus, Written, is_due
from customer_activity.inspection.query_status import SILENT_SECONDS


def finish(status: QueryStatus) -> None:
    status.finished(8, 1, 0.1, {})


def hold(status: QueryStatus) -> None:
    status.state = observability.HELD


def move(status: QueryStatus) -> None:
    status.moved("half of it")


@pytest.mark.parametrize("happens", [finish, hold, move], ids=["a batch ends", "the gate shuts", "a batch goes on"])
def test_what_is_new_is_written_at_once(happens: Callable[[QueryStatus], None]) -> None:
    status, written = QueryStatus("silver", state="running"), Written()
    assert is_due(status, written)
    assert not is_due(status, written)
    happens(status)
    assert is_due(status, written)
    assert not is_due(status, written)


def test_what_is_not_new_is_written_before_its_driver_counts_as_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(observability.time, "time", lambda: now[0])  # type: ignore[attr-defined]
    status, written = QueryStatus("silver", state="running"), Written()
    times = []
    while now[0] < 130:
        if is_due(status, written):
            times.append(now[0])
        now[0] += 1
    assert times == [100 + observability.QUIET_SECONDS * number for number in range(10)]
    assert observability.QUIET_SECONDS < SILENT_SECONDS / 2


@pytest.mark.parametrize("seconds", [120.0, -3600.0], ids=["the machine was asleep", "the clock was set back"])
def test_a_status_is_due_when_the_clock_of_its_readers_has_jumped(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100_000.0]
    monkeypatch.setattr(observability.time, "time", lambda: now[0])  # type: ignore[attr-defined]
    status, written = QueryStatus("silver", state="running"), Written()
    assert is_due(status, written)
    now[0] += seconds
    assert is_due(status, written)
