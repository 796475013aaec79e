"""Streams behind the hot path are paced: by the fastest that waits for them, and none works more often for that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from customer_activity import topology
from customer_activity.engine import pace
from customer_activity.settings import Settings

SETTINGS = Settings(merge_seconds=10.0, alert_seconds=2.0)


@pytest.fixture(autouse=True)
def off() -> Iterator[None]:
    """Leave the streams as they are."""
    yield
    topology.switch_on([])


@pytest.mark.parametrize(
    ("on", "stream", "seconds"),
    [
        pytest.param([], "gold", 0, id="on the hot path"),
        pytest.param([], "summaries", 10, id="behind it"),
        pytest.param(["daily"], "event_time", 10, id="nobody is in a hurry"),
        pytest.param(["daily"], "daily", 2.5, id="one that follows looks more often, and has something as often"),
        pytest.param(["daily", "alerts"], "event_time", 2, id="alerts wait for it"),
        pytest.param(["daily", "alerts"], "alerts", 0.5, id="alerts"),
        pytest.param(["daily", "publish_alerts"], "publish_alerts", 0.5, id="their topic"),
        pytest.param(["daily", "alerts"], "daily", 10, id="windows do not work more often for alerts"),
    ],
)
def test_how_often_a_stream_looks(on: list[str], stream: str, seconds: float) -> None:
    topology.switch_on(on)
    assert pace.pause(SETTINGS, stream) == seconds
