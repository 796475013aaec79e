"""Windows of days: what is in them, what is left out and when they are final, whatever the batches and the crashes."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from customer_activity import application, topology
from customer_activity.catalog import REPLAY, Table, table_path
from customer_activity.errors import EnvironmentFault, SettingsError, TerminalError
from customer_activity.lake import delta
from customer_activity.lake.failpoints import FailPoint
from customer_activity.operations import current_rows, recomputing
from customer_activity.rebuild.building import Choice
from customer_activity.rebuild.repair import apply_in
from customer_activity.rebuild.run import rebuild_in
from customer_activity.settings import Settings
from support import event_time, tables
from support.pipeline import Pipeline
from support.proof import proof, proofs
from support.quick_pipeline import QuickPipeline
from support.records import profile
from support.windowed import (
    BERLIN,
    CHAIN,
    DAY,
    HOUR,
    START,
    TABLES,
    assert_right,
    bought,
    follow,
    land,
    land_in,
    take,
    world,
)
from support.without_jvm import NoSpark

nightly = pytest.mark.nightly


class Killed(Exception):
    """Raised at a fail point, as if the process had ended there."""


@pytest.fixture
def windowed(nobody: NoSpark, lake: str, settings: Settings) -> Iterator[Pipeline]:
    """Return the queries with those of windows switched on."""
    topology.switch_on(CHAIN[1:])
    wanted = settings.model_copy(update={"time_zone": BERLIN, "grace_hours": 24.0})
    delta.ensure_tables(wanted.lake)
    yield QuickPipeline(nobody, wanted)  # type: ignore[arg-type]
    topology.switch_on([])


def test_days_are_those_of_the_time_zone_and_clocks_change(windowed: Pipeline) -> None:
    records = [
        bought(1, 3 * DAY - HOUR - 60_000),  # 28 March, 23:59 in Berlin
        bought(2, 3 * DAY - HOUR),  # 29 March, 00:00: this day has 23 hours
        bought(3, 4 * DAY - 2 * HOUR - 60_000),  # 23:59 of that day
        bought(4, 4 * DAY - 2 * HOUR),  # 30 March
    ]
    land(windowed, records)
    follow(windowed)
    counts = {row["day"]: row["purchase_count"] for row in windowed.rows(Table.DAILY)}
    assert counts == {date(2026, 3, 28): 1, date(2026, 3, 29): 2, date(2026, 3, 30): 1}
    lengths = {row["day"]: row["window_end"] - row["window_start"] for row in windowed.rows(Table.DAILY)}
    assert lengths[date(2026, 3, 29)] == timedelta(hours=23)
    assert_right(windowed)


def test_a_purchase_is_in_each_of_seven_windows(windowed: Pipeline) -> None:
    land(windowed, [bought(1, 10 * HOUR)])
    follow(windowed)
    assert [row["first_day"] for row in windowed.rows(Table.WEEKLY, "first_day")] == [
        date(2026, 3, day) for day in range(20, 27)
    ]


def test_a_day_is_final_once_and_nothing_is_added_then(windowed: Pipeline) -> None:
    def states() -> dict[date, tuple[int, bool]]:
        return {row["day"]: (row["purchase_count"], row["is_final"]) for row in windowed.rows(Table.DAILY)}

    land(windowed, [bought(1, 12 * HOUR)])
    follow(windowed)
    assert states() == {date(2026, 3, 26): (1, False)}
    windowed.log.partitions = 1
    land(windowed, [bought(2, 2 * DAY + 12 * HOUR), bought(3, 13 * HOUR + 2 * DAY)])
    follow(windowed)
    # No purchase of 26 March is in this batch: the watermark has passed its end and the grace.
    assert states()[date(2026, 3, 26)] == (1, True)
    land(windowed, [bought(4, 13 * HOUR)])
    follow(windowed)
    assert states()[date(2026, 3, 26)] == (1, True)
    (late,) = windowed.rows(Table.LATE_EVENTS)
    assert (late["purchase_id"], late["reason"], late["late_by_ms"]) == ("P-4", "later_than_grace", 2 * DAY)
    assert_right(windowed)


@pytest.mark.parametrize("table", [Table.DAILY, Table.WEEKLY, Table.LATE_EVENTS])
def test_a_table_that_is_not_computed_is_equal_only_until_a_purchase_arrives(windowed: Pipeline, table: Table) -> None:
    assert proof(windowed, table).ok
    land(windowed, [bought(1, 12 * HOUR)])
    assert not proof(windowed, table).ok
    follow(windowed)
    assert proof(windowed, table).ok
    shutil.rmtree(table_path(windowed.settings.lake, table))
    delta.ensure_tables(windowed.settings.lake)
    assert not proof(windowed, table).ok


@pytest.mark.parametrize("seed", [0, 9, *(pytest.param(each, marks=nightly) for each in range(1, 9))])
def test_whatever_the_order_within_the_grace_the_tables_are_the_same(windowed: Pipeline, seed: int) -> None:
    records = world(7, late_hours=0)
    chance = random.Random(seed)
    shuffled = sorted(records, key=lambda each: each.fields()["occurredAtEpochMillis"] + chance.random() * 11 * HOUR)
    land(windowed, shuffled, batches=1 + seed)
    follow(windowed)
    assert windowed.rows(Table.LATE_EVENTS) == []
    counted = {(row["customer_id"], row["day"]): row["purchase_count"] for row in windowed.rows(Table.DAILY)}
    right = event_time.expected(
        event_time.as_bought(windowed.rows(Table.PURCHASES)), days=1, zone=BERLIN, grace=timedelta(days=9_999)
    )
    assert counted == {key: window.count for key, window in right.windows.items()}
    assert_right(windowed)


@pytest.mark.parametrize("cuts", [1, pytest.param(3, marks=nightly), 10, pytest.param(60, marks=nightly)])
def test_what_is_too_late_is_so_whatever_the_batches(windowed: Pipeline, cuts: int) -> None:
    windowed.settings = windowed.settings.model_copy(update={"grace_hours": 3.0})
    windowed.restart()
    records = world(11)
    size = -(-len(records) // cuts)
    for begin in range(0, len(records), size):
        land(windowed, records[begin : begin + size])
        follow(windowed)
    late = {row["purchase_id"] for row in windowed.rows(Table.LATE_EVENTS)}
    stamps = {row["purchase_id"]: row["partition_time"] for row in windowed.rows(Table.TIMED_PURCHASES)}
    assert len(late) > 10
    assert_right(windowed)
    for sent in windowed.log.entries.values():
        times = [datetime.fromtimestamp(each.fields()["occurredAtEpochMillis"] / 1000, UTC) for each in sent]
        for number, record in enumerate(sent):
            assert stamps[record.fields()["purchaseId"]] == max(times[:number], default=None)


def test_a_silent_partition_holds_no_window_open_and_is_told(windowed: Pipeline) -> None:
    land_in(windowed, 0, bought(1, HOUR))
    for number in range(8):
        land_in(windowed, 1, *(bought(10 * number + hour, (10 * number + hour) * HOUR) for hour in range(2, 12)))
    follow(windowed)
    assert date(2026, 3, 26) in {row["day"] for row in windowed.rows(Table.DAILY) if row["is_final"]}
    last = max(windowed.rows(Table.WATERMARKS), key=lambda row: row["landing"])
    assert [(each["partition"], each["is_idle"]) for each in last["positions"]] == [(0, True), (1, False)]
    land_in(windowed, 0, bought(500, 2 * HOUR, sent=START + 80 * HOUR))
    follow(windowed)
    reasons = {(row["reason"], row["excluded_from"]) for row in windowed.rows(Table.LATE_EVENTS)}
    assert ("window_closed", Table.DAILY.label) in reasons
    assert_right(windowed)


@pytest.mark.parametrize("stream", CHAIN)
@pytest.mark.parametrize(
    "place", [pytest.param(FailPoint.STAGED, marks=nightly), FailPoint.COMMITTED], ids=["staged", "committed"]
)
def test_a_driver_that_is_killed_adds_nothing_twice(windowed: Pipeline, stream: str, place: FailPoint) -> None:
    def killed(point: FailPoint) -> None:
        if point is place:
            raise Killed

    windowed.settings = windowed.settings.model_copy(update={"grace_hours": 3.0})
    windowed.restart()
    records = world(3)
    land(windowed, records[:60], batches=3)
    follow(windowed)
    land(windowed, records[60:], batches=3)
    for hop in CHAIN[: CHAIN.index(stream)]:
        windowed.hop(hop)
    with pytest.raises(Killed):
        windowed.hop(stream, killed)
    windowed.repeat(stream)
    for hop in CHAIN[CHAIN.index(stream) + 1 :]:
        windowed.hop(hop)
    assert_right(windowed)


def test_executors_come_to_the_same(windowed: Pipeline) -> None:
    windowed.settings = windowed.settings.model_copy(update={"placement": "executors", "grace_hours": 3.0})
    windowed.restart()
    records = world(5)
    for begin in range(0, len(records), 40):
        land(windowed, records[begin : begin + 40])
        follow(windowed)
    assert windowed.batches["daily"][-1].placement is not None
    assert str(windowed.batches["daily"][-1].placement.place) == "executors"
    assert_right(windowed)


@pytest.mark.parametrize(
    "table",
    [
        Table.TIMED_PURCHASES,
        *(pytest.param(each, marks=nightly) for each in (Table.LATE_EVENTS, Table.DAILY, Table.WEEKLY)),
    ],
)
def test_computed_again_the_tables_are_the_same(windowed: Pipeline, table: Table) -> None:
    windowed.settings = windowed.settings.model_copy(update={"grace_hours": 3.0})
    windowed.restart()
    records = world(13)
    land(windowed, records, batches=12)
    follow(windowed)
    before = windowed.rows(table)
    (query,) = topology.writers(table)
    current_rows.make(windowed.settings.lake, query, 1)
    assert windowed.rows(table) == before
    assert_right(windowed)


def test_a_late_purchase_is_taken_in_on_purpose(windowed: Pipeline) -> None:
    land(windowed, [bought(1, 12 * HOUR)])
    land(windowed, [bought(10 + number, 4 * DAY + number * HOUR, "C-2") for number in range(8)])
    land(windowed, [bought(2, 13 * HOUR), bought(3, DAY + 13 * HOUR)])
    follow(windowed)
    assert {row["purchase_id"] for row in windowed.rows(Table.LATE_EVENTS)} == {"P-2", "P-3"}
    done = recomputing.reprocess(windowed.settings, date(2026, 3, 26), "the till was offline")
    assert (done.purchases, done.streams) == (1, ["late_events", "daily", "weekly"])
    assert {row["purchase_id"] for row in windowed.rows(Table.LATE_EVENTS)} == {"P-3"}
    figures = {row["day"]: row["purchase_count"] for row in windowed.rows(Table.DAILY) if row["customer_id"] == "C-1"}
    assert figures == {date(2026, 3, 26): 2}
    assert all(check.ok for check in proofs(windowed, *TABLES))
    assert recomputing.reprocess(windowed.settings, date(2026, 3, 26), "once more").purchases == 0
    assert all(check.ok for check in proofs(windowed, *TABLES))


def forgotten(windowed: Pipeline) -> None:
    """Have a late purchase, and table `weekly` without it though it is taken in."""
    land(windowed, [bought(1, 12 * HOUR)])
    land(windowed, [bought(10 + number, 4 * DAY + number * HOUR, "C-2") for number in range(8)])
    land(windowed, [bought(2, 13 * HOUR)])
    follow(windowed)
    assert [row["purchase_id"] for row in windowed.rows(Table.LATE_EVENTS)] == ["P-2"]


def test_windows_that_are_off_do_not_forget_what_is_taken_in(windowed: Pipeline) -> None:
    forgotten(windowed)
    topology.switch_on(["late_events", "daily"])
    assert recomputing.reprocess(windowed.settings, date(2026, 3, 26), "the till was offline").purchases == 1
    topology.switch_on(CHAIN[1:])
    windowed.restart()
    for hop in CHAIN[:-1]:
        windowed.hop(hop)
    with pytest.raises(TerminalError, match=r"with 0 late purchases taken in, and .* has 1") as refused:
        windowed.hop("weekly")
    assert "activity rebuild --stream weekly" in refused.value.remedy
    windowed.restart()
    recomputing.recompute(windowed.settings, "weekly", "as it says")
    windowed.restart()
    follow(windowed)
    assert all(check.ok for check in proofs(windowed, *TABLES))


@pytest.mark.parametrize("mended_by", ["the same command", "a rebuild"])
def test_taking_in_that_is_killed_is_finished(
    windowed: Pipeline, mended_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed_at_daily(lake: str, query: str, *args: Any, **more: Any) -> Table:
        if query == "daily":
            raise Killed
        return made(lake, query, *args, **more)

    forgotten(windowed)
    made = current_rows.make
    monkeypatch.setattr(current_rows, "make", killed_at_daily)
    with pytest.raises(Killed):
        recomputing.reprocess(windowed.settings, date(2026, 3, 26), "the till was offline")
    monkeypatch.setattr(current_rows, "make", made)
    windowed.restart()
    for hop in ("event_time", "late_events"):  # whose table is of now
        windowed.hop(hop)
    for hop in ("daily", "weekly"):
        with pytest.raises(TerminalError, match=r"with 0 late purchases taken in, and .* has 1"):
            windowed.hop(hop)
    if mended_by == "a rebuild":
        recomputing.recompute(windowed.settings, "daily", "as it says")
    else:
        assert recomputing.reprocess(windowed.settings, date(2026, 3, 26), "once more").purchases == 0
    windowed.restart()
    follow(windowed)
    assert all(check.ok for check in proofs(windowed, *TABLES))


def test_other_windows_are_refused_and_recomputed_on_request(windowed: Pipeline) -> None:
    land(windowed, world(13), batches=6)
    follow(windowed)
    windowed.settings = windowed.settings.model_copy(update={"grace_hours": 2.0, "time_zone": "Asia/Tokyo"})
    windowed.restart()
    with pytest.raises(SettingsError, match="was computed with ACTIVITY_TIME_ZONE=Europe/Berlin") as refused:
        windowed.hop("daily")
    assert "activity rebuild --stream daily" in (refused.value.remedy or "")
    assert recomputing.recompute(windowed.settings, "daily", "another grace") == ["late_events", "daily", "weekly"]
    assert len(windowed.rows(Table.LATE_EVENTS)) > 5
    assert_right(windowed)


def test_all_of_them_follow_a_correction(windowed: Pipeline) -> None:
    records = world(17)
    land(windowed, records, batches=6)
    follow(windowed)
    (row,) = (row for row in windowed.rows(Table.PURCHASES) if row["purchase_id"] == "P-119")
    tables.append(windowed.settings.lake, Table.PURCHASES, row | {"purchase_id": "P-X"}, query=REPLAY)
    follow(windowed)
    assert not proof(windowed, Table.DAILY).ok
    assert apply_in(windowed.spark, windowed.settings, read=lambda *_: {}).correction is not None
    assert rebuild_in(windowed.spark, windowed.settings, Choice()).differences == 0
    assert_right(windowed)


@pytest.mark.parametrize(
    ("zone", "around"),
    [
        pytest.param("America/Havana", "2025-11-02T05:00", id="two midnights"),
        pytest.param("Africa/Cairo", "2026-04-23T22:00", id="no midnight"),
        pytest.param("Pacific/Apia", "2011-12-30T10:00", id="a day that is skipped"),
        pytest.param("America/Vancouver", "2026-11-01T09:00", id="rules of this year"),
        pytest.param("Asia/Kathmandu", "2026-01-01T18:15", id="a quarter of an hour"),
    ],
)
def test_days_are_right_in_every_zone(windowed: Pipeline, zone: str, around: str) -> None:
    windowed.settings = windowed.settings.model_copy(update={"time_zone": zone})
    windowed.restart()
    moment = int(datetime.fromisoformat(around).replace(tzinfo=UTC).timestamp() * 1000) - START
    steps = (-25 * HOUR, -HOUR, -60_000, 0, 60_000, HOUR - 1, HOUR, 25 * HOUR)
    land(windowed, [bought(number, moment + step) for number, step in enumerate(steps)])
    follow(windowed)
    assert_right(windowed)


@pytest.mark.parametrize("stream", ["daily", "weekly", "late_events"])
def test_a_driver_does_not_start_where_arrow_lacks_the_time_zone(windowed: Pipeline, stream: str) -> None:
    """Python may have it all the same, from another database."""
    elsewhere = windowed.settings.model_copy(update={"time_zone": "Nowhere/Land"})
    with pytest.raises(EnvironmentFault, match="does not find the time zone Nowhere/Land"):
        application.host(windowed.spark, elsewhere, [stream], threading.Event(), available_now=True)


def test_windows_close_as_well_where_what_waits_is_recomputed(windowed: Pipeline) -> None:
    records = world(23)
    land(windowed, records[:20], batches=2)
    follow(windowed)
    land(windowed, records[20:], batches=10)
    recomputing.recompute(windowed.settings, "event_time", "it was off for a while")
    assert sum(row["is_final"] for row in windowed.rows(Table.DAILY)) > 20
    assert_right(windowed)


def test_a_row_that_moved_the_watermark_can_be_corrected(windowed: Pipeline) -> None:
    land(windowed, world(29), batches=6)
    windowed.send(profile("C-1"))
    take(windowed)  # a landing that has no purchase once it is corrected
    follow(windowed)
    (row,) = (row for row in windowed.rows(Table.PURCHASES) if row["purchase_id"] == "P-119")
    ahead = {"purchase_id": "P-X", "occurred_at": row["occurred_at"] + timedelta(days=3), "landing": row["landing"] + 1}
    others = [
        row | ahead | {"partition": partition, "offset": row["offset"] + 1_000, "purchase_id": f"P-X{partition}"}
        for partition in range(2)
    ]
    tables.append(windowed.settings.lake, Table.PURCHASES, *others, query=REPLAY)
    follow(windowed)
    assert apply_in(windowed.spark, windowed.settings, read=lambda *_: {}).correction is not None
    assert rebuild_in(windowed.spark, windowed.settings, Choice()).differences == 0
    assert all(check.ok for check in proofs(windowed, *TABLES))
    windowed.restart()
    land(windowed, [bought(500 + number, 13 * DAY + number * HOUR) for number in range(4)], batches=2)
    follow(windowed)
    assert all(check.ok for check in proofs(windowed, *TABLES))


@pytest.fixture
def only_daily(nobody: NoSpark, lake: str, settings: Settings) -> Iterator[Pipeline]:
    """Return the queries with that of days alone switched on."""
    topology.switch_on(["daily"])
    delta.ensure_tables(settings.lake)
    yield QuickPipeline(nobody, settings)  # type: ignore[arg-type]
    topology.switch_on([])


def test_one_of_them_needs_no_other(only_daily: Pipeline) -> None:
    land(only_daily, world(31), batches=3)
    for hop in ("event_time", "daily"):
        only_daily.hop(hop)
    of_days = (Table.WATERMARKS, Table.TIMED_PURCHASES, Table.REPROCESSED, Table.DAILY)
    assert all(check.ok for check in proofs(only_daily, *of_days))
    with pytest.raises(SettingsError, match="late_events is off"):
        recomputing.reprocess(only_daily.settings, date(2026, 3, 26), "none")
