"""The rules about windows: an intact lake passes them, and each finds the damage that it is about."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.lake import delta
from customer_activity.quality import rules
from customer_activity.quality.run import run
from customer_activity.settings import Settings
from support.pipeline import copied_lake
from support.quality import Rows, failing, rewrite
from support.quick_pipeline import QuickPipeline
from support.records import purchase
from support.without_jvm import NoSpark

CHAIN = ("event_time", "late_events", "daily", "weekly", "sessions")
HOUR = 3_600_000
START = int(datetime(2026, 3, 26, tzinfo=UTC).timestamp() * 1000)
Change = Callable[[Rows], Rows | None]


@pytest.fixture
def on() -> Iterator[None]:
    """Switch windows on."""
    topology.switch_on(CHAIN)
    yield
    topology.switch_on([])


@pytest.fixture(scope="module")
def windowed(nobody: NoSpark, empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Make a lake with purchases of some weeks, some too late for windows; nobody changes it."""
    topology.switch_on(CHAIN)
    settings = copied_lake(empty_lake, tmp_path_factory.mktemp("windowed"))
    delta.ensure_tables(settings.lake)
    chance = random.Random(1)
    times = sorted(chance.randrange(14 * 24) for _ in range(120))
    arriving = sorted(enumerate(times), key=lambda each: each[1] + chance.random() ** 6 * 60)
    records = [
        purchase(f"P-{n}", f"C-{n % 4}", f"{n % 7}.25", START + at * HOUR, sent=START + 20 * 24 * HOUR)
        for n, at in arriving
    ]
    pipeline = QuickPipeline(nobody, settings)  # type: ignore[arg-type]
    for begin in range(0, len(records), 30):
        pipeline.send(*records[begin : begin + 30])
        for hop in ("bronze", "silver", *CHAIN):
            pipeline.hop(hop)
    assert len(pipeline.rows(Table.LATE_EVENTS)) > 3
    pipeline.close()
    topology.switch_on([])
    return settings


def judged(settings: Settings) -> set[str]:
    """Return the rules about windows that fail."""
    tables = {table.label for spec in topology.optional() for table in spec.tables if table in topology.tables()}
    return failing(run(settings, sorted(tables)))


def first(**values: Any) -> Change:
    """Change the first row."""
    return lambda rows: [rows[0] | values, *rows[1:]]


def again(rows: Rows) -> Rows:
    return [*rows, rows[0]]


def fewer(rows: Rows) -> Rows:
    return rows[1:]


def running(rows: Rows) -> Rows:
    return [row | {"is_final": False} for row in rows]


def split(rows: Rows) -> Rows:
    """Make two sessions of one."""
    row = next(row for row in rows if row["purchase_count"] == 1)
    other = row | {"session_start": row["session_start"] + timedelta(minutes=5), "purchase_count": 0}
    return [*rows, other | {"total_amount": Decimal("0.00")}]


def backwards(rows: Rows) -> Rows:
    return [row | {"landing": -row["landing"]} for row in rows]


DAMAGES = [
    pytest.param(
        Table.DAILY, again, {"one_row_a_customer_and_day", "days_and_late_purchases_add_up"}, id="a day twice"
    ),
    pytest.param(Table.DAILY, first(purchase_count=99), {"days_and_late_purchases_add_up"}, id="another count"),
    pytest.param(
        Table.DAILY, first(total_amount=Decimal("0.01")), {"days_and_late_purchases_add_up"}, id="another total"
    ),
    pytest.param(Table.DAILY, running, {"days_are_final_when_they_are_closed"}, id="no day is final"),
    pytest.param(Table.WEEKLY, fewer, {"weeks_and_late_purchases_add_up"}, id="a week is gone"),
    pytest.param(Table.SESSIONS, fewer, {"sessions_and_late_purchases_add_up"}, id="a session is gone"),
    pytest.param(Table.SESSIONS, split, {"sessions_are_a_gap_apart"}, id="a session is two"),
    pytest.param(Table.LATE_EVENTS, first(reason="mood"), {"late_events_have_a_reason"}, id="another reason"),
    pytest.param(Table.LATE_EVENTS, first(purchase_id="P-X"), {"late_events_were_bought"}, id="nobody bought it"),
    pytest.param(Table.WATERMARKS, again, {"one_watermark_a_landing", "watermarks_grow"}, id="a watermark twice"),
    pytest.param(
        Table.WATERMARKS, backwards, {"watermarks_grow", "stamps_are_those_of_the_watermarks"}, id="it goes back"
    ),
    pytest.param(
        Table.TIMED_PURCHASES,
        first(next_watermark=datetime(2020, 1, 1, tzinfo=UTC)),
        {"stamps_are_those_of_the_watermarks"},
        id="another stamp",
    ),
    pytest.param(Table.TIMED_PURCHASES, again, {"purchases_are_stamped_once"}, id="stamped twice"),
]


def test_an_intact_lake_passes(windowed: Settings, on: None, tmp_path: Path) -> None:
    settings = copied_lake(Path(windowed.lake), tmp_path, quality_docs=str(tmp_path / "docs"))
    assert judged(settings) <= {"few_purchases_are_late"}


@pytest.mark.parametrize(("table", "change", "found"), DAMAGES)
def test_a_rule_finds_what_it_is_about(
    windowed: Settings, on: None, tmp_path: Path, table: Table, change: Change, found: set[str]
) -> None:
    settings = copied_lake(Path(windowed.lake), tmp_path, quality_docs=str(tmp_path / "docs"))
    rewrite(settings.lake, table, change)
    assert found <= judged(settings)


def test_a_rule_about_a_table_that_is_off_is_not_judged() -> None:
    assert not [suite.name for suite in rules.load() if suite.name.startswith("ops/")]
    topology.switch_on(["daily"])
    try:
        of_days = next(suite for suite in rules.load() if suite.name == "gold/daily_customer_purchases")
    finally:
        topology.switch_on([])
    assert "days_and_late_purchases_add_up" not in {rule.rule for rule in of_days.rules}
