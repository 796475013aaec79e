"""`activity lateness`: the grace is chosen by how late purchases were."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import typer
from typer.testing import CliRunner, Result

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.commands import lateness as command
from customer_activity.errors import SettingsError
from customer_activity.inspection.lateness import said
from customer_activity.inspection.show import customer
from customer_activity.lake import delta
from customer_activity.settings import Settings
from support import tables

NOON = datetime(2026, 3, 26, 12, tzinfo=UTC)
SECONDS_LATE = [None, -5, 0, 30, 90, 7_200, 200_000]  # None: the first of its partition


@pytest.fixture
def on() -> Iterator[None]:
    """Switch windows on."""
    topology.switch_on(["daily"])
    yield
    topology.switch_on([])


@pytest.fixture
def lake(settings: Settings, on: None) -> Settings:
    """Return settings of a lake with purchases that were so late."""
    delta.ensure_tables(settings.lake)
    for number, seconds in enumerate(SECONDS_LATE):
        row = {
            "purchase_id": f"P-{number}",
            "customer_id": "C-1",
            "amount": Decimal("1.00"),
            "currency": "EUR",
            "occurred_at": NOON,
            "partition": 0,
            "offset": number,
            "kafka_timestamp": NOON,
            "landing": 0,
            "partition_time": None if seconds is None else NOON + timedelta(seconds=seconds),
        }
        tables.append(settings.lake, Table.TIMED_PURCHASES, row, query="event_time")
    return settings


def run(settings: Settings, *arguments: str) -> Result:
    app = typer.Typer()
    app.command()(command.lateness)
    return CliRunner().invoke(app, arguments, obj=settings)


def test_each_grace_tells_what_it_would_have_left_out(lake: Settings) -> None:
    found = json.loads(run(lake, "--json", "--grace", "100").stdout)
    assert (found["purchases"], found["late"]) == (7, 4)
    later = {round(each["hours"] * 3600): each["purchases"] for each in found["graces"]}
    assert later[0] == 4
    assert later[60] == 3
    assert later[3_600] == 2
    assert later[24 * 3_600] == 1
    assert later[100 * 3_600] == 0
    assert found["percentiles"] == {"50": 90.0, "90": 200_000.0, "99": 200_000.0, "99.9": 200_000.0, "100": 200_000.0}


def test_it_says_so_in_words_and_marks_the_configured_one(lake: Settings) -> None:
    words = run(lake).stdout
    assert "7 purchases; 4 (57.14%) are older than the latest before them" in " ".join(words.split())
    assert "1 d (configured)" in words


def test_without_the_streams_it_says_how_to_get_them(settings: Settings) -> None:
    delta.ensure_tables(settings.lake)
    refused = run(settings).exception
    assert isinstance(refused, SettingsError)
    assert "ACTIVITY_STREAMS" in (refused.remedy or "")


@pytest.mark.parametrize(
    ("hours", "words"), [(0, "0 s"), (1 / 60, "1 min"), (0.25, "15 min"), (6, "6 h"), (24, "1 d"), (0.01, "36 s")]
)
def test_a_grace_is_said_as_people_do(hours: float, words: str) -> None:
    assert said(hours) == words


def test_show_has_the_windows_of_a_customer(lake: Settings) -> None:
    for number in range(9):
        start = NOON + timedelta(days=number)
        row = {
            "customer_id": "C-1",
            "day": start.date(),
            "window_start": start,
            "window_end": start + timedelta(days=1),
            "purchase_count": number,
            "total_amount": Decimal("1.00"),
            "is_final": number < 5,
        }
        tables.append(lake.lake, Table.DAILY, row, query="daily")
    found = customer(lake.lake, "C-1").windows
    assert [row["purchase_count"] for row in found["gold.daily_customer_purchases"]] == [8, 7, 6, 5, 4, 3, 2]
    topology.switch_on([])
    assert customer(lake.lake, "C-1").windows == {}
