"""Windows through the broker: a driver that is killed anywhere in them, and what verify says afterwards."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from customer_activity import application, topology
from customer_activity.catalog import Table
from customer_activity.commands.verify import others
from customer_activity.lake.failpoints import ORDER, REACHED
from customer_activity.settings import Settings
from customer_activity.verification.verify import verify
from support.broker import rows, send
from support.records import Record, profile, purchase
from support.shell import environment

HOUR, DAYS = 3_600_000, 20
START = int(datetime(2026, 3, 20, tzinfo=UTC).timestamp() * 1000)
STREAMS = ("event_time", "late_events", "daily", "weekly")
nightly = pytest.mark.nightly
PLACES = [
    pytest.param(f"{stream}:{point}", marks=() if (stream, point) == ("event_time", "committed") else nightly)
    for stream in STREAMS
    for point in ("staged", "committed", "written")
]


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


def world(seed: int) -> list[Record]:
    """Return purchases of some weeks, up to two days late, and a few profiles."""
    chance = random.Random(seed)
    times = [chance.randrange(DAYS * 24 * HOUR) for _ in range(300)]
    arriving = sorted(enumerate(times), key=lambda each: each[1] + chance.random() ** 8 * 48 * HOUR)
    return [
        *(profile(f"C-{number}") for number in range(3)),
        *(purchase(f"P-{seed}-{number}", f"C-{number % 5}", f"{number % 9}.25", START + at) for number, at in arriving),
    ]


def drain(spark: SparkSession, settings: Settings) -> None:
    application.host(spark, settings, topology.names(), threading.Event(), available_now=True)


def killed(settings: Settings, place: str) -> None:
    """Run the streams as a process of its own until it comes to a place, where it ends as by kill -9."""
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    Path(settings.run_dir, ORDER).write_text(place, encoding="utf-8")
    command = [sys.executable, "-m", "customer_activity", "stream", "--available-now"]
    ended = subprocess.run(command, env=environment(settings), start_new_session=True, capture_output=True, check=False)
    assert (ended.returncode, Path(settings.run_dir, REACHED).exists()) == (-signal.SIGKILL, True), ended.stderr[-2000:]


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
