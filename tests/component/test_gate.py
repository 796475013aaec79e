"""The gate of publishing: what shuts it, what opens it, and who is noted for it."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from customer_activity.engine import gate
from customer_activity.engine.gate import Failure
from customer_activity.engine.queries import RunningQuery
from customer_activity.errors import PublishingHeld, SettingsError, Stopping
from customer_activity.inspection import status
from customer_activity.settings import Settings
from support.dying import Died, dies
from support.streams import Query

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def failed(run: str = "run-1", suite: str = "gold/customer_activity") -> Failure:
    return Failure(suite, "1 rows", f"since {run}", run)


def test_a_lake_that_was_never_judged_holds_nothing(settings: Settings) -> None:
    assert gate.holding(settings.lake) == {}
    gate.require_open(settings.lake)


def test_a_failed_rule_holds_until_it_has_passed(settings: Settings) -> None:
    assert set(gate.update(settings.lake, [], {"a": failed(), "b": failed()})) == {"a", "b"}
    assert set(gate.update(settings.lake, ["a"], {})) == {"b"}, "what was not judged stays"
    with pytest.raises(PublishingHeld, match="b \\(1 rows\\)") as held:
        gate.require_open(settings.lake)
    assert held.value.exit_code == 1
    assert gate.update(settings.lake, ["b"], {}) == {}
    gate.require_open(settings.lake)


def test_a_rule_that_goes_on_failing_keeps_its_begin(settings: Settings) -> None:
    gate.update(settings.lake, [], {"a": failed("run-1")})
    held = gate.update(settings.lake, [], {"a": failed("run-2")})
    assert (held["a"].since, held["a"].run) == ("since run-1", "run-2")


def test_what_was_released_is_overridden_until_it_has_passed_once(settings: Settings) -> None:
    gate.update(settings.lake, [], {"a": failed()})
    assert gate.release(settings.lake, "known, ticket 7", NOW) == ["a"]
    assert gate.update(settings.lake, [], {"a": failed("run-2")}) == {}, "it fails again: somebody knows"
    assert set(gate.update(settings.lake, [], {"a": failed("run-3"), "b": failed()})) == {"b"}, "not so another one"
    gate.update(settings.lake, ["a", "b"], {})
    assert set(gate.update(settings.lake, [], {"a": failed("run-4")})) == {"a"}, "it had passed: this is a new failure"
    (note,) = (Path(settings.lake) / "_audit").iterdir()
    deed = json.loads(note.read_text(encoding="utf-8"))
    assert (deed["what"], deed["reason"], deed["rules"]) == ("release", "known, ticket 7", ["a"])


def test_who_opens_the_gate_is_noted_before_it_is_open(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.update(settings.lake, [], {"a": failed()})
    monkeypatch.setattr(gate, "_write", lambda *_: dies()("noted"))
    with pytest.raises(Died):
        gate.release(settings.lake, "known, ticket 7", NOW)
    assert set(gate.holding(settings.lake)) == {"a"}
    assert len([*(Path(settings.lake) / "_audit").iterdir()]) == 1


def test_there_must_be_something_to_release(settings: Settings) -> None:
    with pytest.raises(SettingsError, match="nothing holds publishing"):
        gate.release(settings.lake, "by mistake", NOW)


def test_rules_about_the_topic_do_not_keep_it_from_being_mended(settings: Settings) -> None:
    gate.update(settings.lake, [], {"a": failed(suite="across/view")})
    gate.require_open(settings.lake, but_for=["across/view"])
    gate.update(settings.lake, [], {"b": failed()})
    with pytest.raises(PublishingHeld):
        gate.require_open(settings.lake, but_for=["across/view"])


def test_status_tells_what_holds_publishing(settings: Settings) -> None:
    gate.update(settings.lake, [], {"a": failed()})
    assert "publishing is held by quality: a (1 rows)" in status.report(settings).notes


def publisher(settings: Settings, stopping: threading.Event) -> RunningQuery:
    return RunningQuery(Query.PUBLISH, lambda: pytest.fail("no plan is made here"), settings, stopping)


class Opens(threading.Event):
    """Told to wait, it opens the gate; it counts how often it was asked."""

    def __init__(self, lake: str) -> None:
        super().__init__()
        self.lake = lake
        self.waits: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        gate.update(self.lake, ["a"], {})
        return False


def test_an_always_on_publisher_waits_and_says_so(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.update(settings.lake, [], {"a": failed()})
    stopping = Opens(settings.lake)
    query = publisher(settings, stopping)
    states: list[str] = []
    monkeypatch.setattr(gate, "held", lambda rules: states.append(f"held by {', '.join(rules)}"))
    query.status.progress_at = before = "2026-01-02T12:00:00+00:00"
    query._pass_gate()
    assert (states, stopping.waits) == (["held by a"], [1.0])
    assert (query.status.state, query.status.message) == ("running", "")
    assert (query.status.progress_at or "") > before, "supervision counts from when it goes on"


def test_a_publisher_that_waits_stops_when_told_to(settings: Settings) -> None:
    gate.update(settings.lake, [], {"a": failed()})
    stopping = threading.Event()
    stopping.set()
    query = publisher(settings, stopping)
    with pytest.raises(Stopping):
        query._pass_gate()
    assert query.status.state == "held"
    assert "publishing is held: a (1 rows)" in query.status.message


def test_a_drain_does_not_wait(settings: Settings) -> None:
    gate.update(settings.lake, [], {"a": failed()})
    query = publisher(settings, threading.Event())
    query.is_draining = True
    with pytest.raises(PublishingHeld):
        query._pass_gate()
