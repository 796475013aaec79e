"""Fail points: off unless they are asked for, and then where and when they were ordered."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from customer_activity import settings
from customer_activity.errors import SettingsError
from customer_activity.lake import failpoints
from customer_activity.lake.failpoints import ORDER, REACHED, FailPoint
from customer_activity.settings import Settings
from support.streams import Query


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Signals that would have ended this process group."""
    signals: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda _group, number: signals.append(number))
    return signals


def test_they_are_off_by_default(tmp_path: Path, ended: list[int]) -> None:
    (tmp_path / ORDER).write_text("silver:committed")
    failpoints.of(Settings(run_dir=tmp_path), Query.SILVER)(FailPoint.COMMITTED)
    assert ended == []


def test_the_place_ends_the_process_at_the_time_that_was_ordered(tmp_path: Path, ended: list[int]) -> None:
    reach = failpoints.of(Settings(run_dir=tmp_path, fail_points=True), Query.SILVER)
    reach(FailPoint.COMMITTED)  # no order
    (tmp_path / ORDER).write_text("silver:committed 2")
    reach(FailPoint.STAGED)
    failpoints.reach(tmp_path, Query.GOLD, FailPoint.COMMITTED)
    reach(FailPoint.COMMITTED)
    assert ended == []
    reach(FailPoint.COMMITTED)
    assert ended == [signal.SIGKILL]
    assert (tmp_path / REACHED).exists()
    assert not (tmp_path / ORDER).exists()


def test_production_refuses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTIVITY_PRODUCTION", "1")
    monkeypatch.setenv("ACTIVITY_FAIL_POINTS", "1")
    with pytest.raises(SettingsError, match="ACTIVITY_PRODUCTION refuses it"):
        settings.load()
