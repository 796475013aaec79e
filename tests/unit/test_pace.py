"""The hot path is paced by what arrives, and what is behind it by settings and by what a batch costs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from customer_activity import topology
from customer_activity.engine import pace
from customer_activity.settings import Settings

SETTINGS = Settings(linger_seconds=0.9, merge_seconds=10.0, gold_seconds=2.0, alert_seconds=2.0)


@pytest.fixture(autouse=True)
def off() -> Iterator[None]:
    """Leave the streams as they are."""
    yield
    topology.switch_on([])


@pytest.mark.parametrize(
    ("on", "stream", "looks", "period"),
    [
        pytest.param([], "bronze", 0, 0.9, id="the first of the hot path"),
        pytest.param([], "gold", 0, 0, id="one that follows it on the path"),
        pytest.param([], "summaries", 1, 10, id="behind it"),
        pytest.param([], "activity", 0.5, 2, id="gold's current rows"),
        pytest.param(["daily"], "event_time", 1, 10, id="nobody is in a hurry"),
        pytest.param(["daily", "alerts"], "event_time", 0.5, 2, id="alerts wait for it"),
        pytest.param(["daily", "publish_alerts"], "publish_alerts", 0.5, 2, id="their topic"),
        pytest.param(["daily", "alerts"], "daily", 1, 10, id="windows do not work more often for alerts"),
    ],
)
def test_how_often_a_stream_looks_and_works(on: list[str], stream: str, looks: float, period: float) -> None:
    topology.switch_on(on)
    assert pace.look(SETTINGS, stream) == looks
    assert pace.period(SETTINGS, stream, seconds=0.01, records=0, since=1.0) == period


@pytest.mark.parametrize(
    ("records", "since", "period"),
    [
        pytest.param(1, 3_600.0, 0.9, id="the first after a quiet hour"),
        pytest.param(9, 0.9, 0.88, id="10 a second"),
        pytest.param(50, 0.5, 0.72, id="100 a second, as a short round tells"),
        pytest.param(90, 0.9, 0.72, id="100 a second"),
        pytest.param(360, 0.9, 0.45, id="400 a second"),
        pytest.param(200, 0.4, 0.4, id="500 a second"),
        pytest.param(10_000, 0.5, 0.018, id="20,000 a second"),
        pytest.param(2_000_000, 0.9, 0.0, id="a backlog"),
    ],
)
def test_the_hot_path_waits_less_the_more_arrives(records: int, since: float, period: float) -> None:
    assert pace.period(SETTINGS, "bronze", 0.1, records, since) == pytest.approx(period, abs=0.005)


@pytest.mark.parametrize("records", [0, 1, 500])
def test_without_lingering_the_next_round_begins_at_once(records: int) -> None:
    assert pace.period(Settings(linger_seconds=0), "bronze", 0.1, records, since=0.0) == 0


@pytest.mark.parametrize(
    ("seconds", "period"), [(0.1, 2), (0.4, 2), (1.0, 5), (6.0, 30), pytest.param(600.0, 30, id="a backlog")]
)
def test_a_merge_that_takes_long_comes_less_often(seconds: float, period: float) -> None:
    assert pace.period(SETTINGS, "activity", seconds, records=1, since=10.0) == pytest.approx(period)
