"""Windows through the broker: a driver that is killed anywhere in them, and what verify says afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.commands.verify import others
from customer_activity.settings import Settings
from customer_activity.verification.verify import verify
from support.broker import rows, send
from support.weeks import drain, killed, world

STREAMS = ("event_time", "late_events", "daily", "weekly")
PLACES = [f"{stream}:{point}" for stream in STREAMS for point in ("staged", "committed", "written")]


@pytest.fixture
def windowed(settings: Settings) -> Iterator[Settings]:
    """Return settings with windows on."""
    topology.switch_on(STREAMS[1:])
    yield settings.model_copy(
        update={
            "streams": ",".join(STREAMS[1:]),
            "time_zone": "Europe/Berlin",
            "grace_hours": 6.0,
            "fail_points": True,
        }
    )
    topology.switch_on([])


@pytest.mark.nightly
@pytest.mark.parametrize("place", PLACES)
def test_a_driver_that_is_killed_in_a_window_harms_nothing(spark: SparkSession, windowed: Settings, place: str) -> None:
    records = world(len(place))
    send(windowed, *records[:150])
    drain(spark, windowed)
    send(windowed, *records[150:])
    killed(windowed, place)
    drain(spark, windowed)
    assert len(rows(windowed, Table.LATE_EVENTS)) > 3
    assert any(row["is_final"] for row in rows(windowed, Table.DAILY))
    found = verify(windowed, settle_seconds=0, others=others())
    assert [check.name for check in found.checks if not check.ok] == []
    assert {"gold.daily_customer_purchases", "ops.late_events"} <= {check.name for check in found.checks}
