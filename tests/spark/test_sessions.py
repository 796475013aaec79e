"""Sessions: what is joined, what is left out and when they are final, whatever the batches and the crashes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import REPLAY, Table
from customer_activity.errors import SettingsError
from customer_activity.lake import delta
from customer_activity.lake.failpoints import FailPoint
from customer_activity.operations import current_rows, recomputing
from customer_activity.rebuild.building import Choice
from customer_activity.rebuild.repair import apply_in
from customer_activity.rebuild.run import rebuild_in
from customer_activity.settings import Settings
from support import event_time, tables
from support.pipeline import Pipeline
from support.proof import proof
from support.quick_pipeline import QuickPipeline
from support.records import Record, purchase

MINUTE, HOUR = 60_000, 3_600_000
START = int(datetime(2026, 3, 26, tzinfo=UTC).timestamp() * 1000)
CHAIN = ("event_time", "late_events", "sessions")
Rows = dict[tuple[str, datetime], tuple[datetime, int, Any, bool]]
nightly = pytest.mark.nightly


class Killed(Exception):
    """Raised at a fail point, as if the process had ended there."""


@pytest.fixture
def sessions(spark: SparkSession, settings: Settings) -> Iterator[Pipeline]:
    """Return the queries with that of sessions switched on."""
    topology.switch_on(CHAIN[1:])
    wanted = settings.model_copy(update={"grace_hours": 1.0})
    delta.ensure_tables(wanted.lake)
    yield QuickPipeline(spark, wanted)
    topology.switch_on([])


def bought(number: int, minute: float, customer: str = "C-1", amount: str = "1.25") -> Record:
    at = START + round(minute * MINUTE)
    return purchase(f"P-{number}", customer, amount, at, sent=at)


def world(seed: int, purchases: int = 150, late_minutes: float = 100.0, hours: int = 16) -> list[Record]:
    """Return purchases of some hours in the order in which they arrive: some late, some duplicates."""
    chance = random.Random(seed)
    times = sorted(chance.randrange(hours * 60 * MINUTE) for _ in range(purchases))
    arrivals = sorted(
        (at + chance.choice([0.0, 1.0]) * chance.random() * late_minutes * MINUTE, number)
        for number, at in enumerate(times)
    )
    records = [
        purchase(
            f"P-{number}",
            f"C-{number % 4}",
            f"{number % 7}.{number % 10}5",
            START + times[number],
            sent=START + int(arrival),
        )
        for arrival, number in arrivals
    ]
    return [each for number, each in enumerate(records) for _ in range(2 if number % 17 == 0 else 1)]


def land(pipeline: Pipeline, *records: Record, partition: int | None = None) -> None:
    """Let bronze and silver take records as one landing."""
    if partition is None:
        pipeline.send(*records)
    else:
        pipeline.sent += [pipeline.log.append(record, partition) for record in records]
    for hop in ("bronze", "silver"):
        pipeline.hop(hop)


def land_all(pipeline: Pipeline, records: Sequence[Record], landings: int) -> None:
    size = -(-len(records) // landings)
    for begin in range(0, len(records), size):
        land(pipeline, *records[begin : begin + size])


def follow(pipeline: Pipeline) -> None:
    for hop in CHAIN:
        pipeline.hop(hop)


def found(pipeline: Pipeline) -> Rows:
    return {
        (row["customer_id"], row["session_start"]): (
            row["session_end"],
            row["purchase_count"],
            row["total_amount"],
            row["is_final"],
        )
        for row in pipeline.rows(Table.SESSIONS)
    }


def figures(pipeline: Pipeline) -> list[tuple[float, float, int, bool]]:
    """Return start and end in minutes, purchases, and whether it is final, of each session of C-1."""
    start = datetime.fromtimestamp(START / 1000, UTC)
    minute = timedelta(minutes=1)
    return sorted(
        ((begin - start) / minute, (end - start) / minute, count, is_final)
        for (customer, begin), (end, count, _, is_final) in found(pipeline).items()
        if customer == "C-1"
    )


def assert_right(pipeline: Pipeline) -> None:
    """Hold both tables against the rules, in Python and by the queries that the streams declare."""
    settings = pipeline.settings
    grace, gap = timedelta(hours=settings.grace_hours), timedelta(minutes=settings.session_gap_minutes)
    right = event_time.expected(
        event_time.as_bought(pipeline.rows(Table.PURCHASES)),
        days=1,
        zone="UTC",
        grace=grace,
        idle=timedelta(minutes=settings.idle_partition_minutes),
    )
    wanted: Rows = {
        (customer, each.start): (
            each.end,
            each.count,
            each.total,
            right.watermark is not None and right.watermark >= each.end + gap + grace,
        )
        for customer, of_customer in event_time.sessions(right.in_sessions, gap).items()
        for each in of_customer
    }
    rows = pipeline.rows(Table.SESSIONS)
    assert found(pipeline) == wanted
    assert len(rows) == len(wanted)
    assert all(row["window_end"] == row["session_end"] + gap for row in rows)
    left_out = {
        row["purchase_id"]
        for row in pipeline.rows(Table.LATE_EVENTS)
        if row["excluded_from"] == Table.SESSIONS.label and row["reason"] == "window_closed"
    }
    assert left_out == right.without_session
    for table in (Table.LATE_EVENTS, Table.SESSIONS):
        check = proof(pipeline, table)
        assert check.ok, check


@pytest.mark.parametrize(
    ("landings", "expected"),
    [
        pytest.param([[0, 30]], [(0, 30, 2, False)], id="exactly the gap joins"),
        pytest.param([[0, 30.001]], [(0, 0, 1, False), (30.001, 30.001, 1, False)], id="more than the gap does not"),
        pytest.param([[0], [20], [40]], [(0, 40, 3, False)], id="a session is widened"),
        pytest.param([[20], [0]], [(0, 20, 2, False)], id="a late one begins it earlier"),
        pytest.param([[0], [50], [25]], [(0, 50, 3, False)], id="a late one joins two"),
        pytest.param([[0], [31], [62], [15, 46]], [(0, 62, 5, False)], id="late ones join three"),
        pytest.param([[0], [0]], [(0, 0, 2, False)], id="two at once"),
        pytest.param([[0], [90], [91]], [(0, 0, 1, True), (90, 91, 2, False)], id="final at gap and grace"),
        pytest.param([[0], [89], [89.9]], [(0, 0, 1, False), (89, 89.9, 2, False)], id="not yet final"),
        pytest.param([[0, 95], [20]], [(0, 0, 1, True), (95, 95, 1, False)], id="what comes for a final one is left"),
    ],
)
@pytest.mark.parametrize(
    "at_once", [pytest.param(True, id="one batch", marks=nightly), pytest.param(False, id="a batch a landing")]
)
def test_which_purchases_are_a_session(
    sessions: Pipeline, landings: list[list[float]], expected: list[tuple[float, float, int, bool]], at_once: bool
) -> None:
    number = 0
    for minutes in landings:
        records = [bought(number + index, minute) for index, minute in enumerate(minutes)]
        number += len(records)
        land(sessions, *records, partition=0)
        if not at_once:
            follow(sessions)
    if at_once:
        follow(sessions)
    assert figures(sessions) == [pytest.approx(each) for each in expected]
    assert_right(sessions)


def test_what_a_slow_partition_brings_for_a_closed_session_is_listed(sessions: Pipeline) -> None:
    land(sessions, bought(1, 0), partition=0)
    for number in range(10):
        land(sessions, bought(10 + number, 20 * number, "C-2"), partition=1)
    follow(sessions)
    assert figures(sessions) == [(0, 0, 1, True)]
    late = purchase("P-90", "C-1", "1.25", START + 10 * MINUTE, sent=START + 200 * MINUTE)
    land(sessions, late, partition=0)  # in order within its partition
    follow(sessions)
    assert figures(sessions) == [(0, 0, 1, True)]
    (listed,) = (row for row in sessions.rows(Table.LATE_EVENTS) if row["excluded_from"] == Table.SESSIONS.label)
    assert (listed["purchase_id"], listed["reason"], listed["window_end"]) == ("P-90", "window_closed", None)
    assert listed["late_by_ms"] == 170 * MINUTE
    assert_right(sessions)


@pytest.mark.parametrize("cuts", [1, 4, pytest.param(25, marks=nightly)])
def test_a_final_session_stays_whatever_the_batches(sessions: Pipeline, cuts: int) -> None:
    records = world(11)
    size = -(-len(records) // cuts)
    final: Rows = {}
    for begin in range(0, len(records), size):
        land_all(sessions, records[begin : begin + size], 1 if cuts > 4 else 6)
        follow(sessions)
        rows = found(sessions)
        assert {key: rows.get(key) for key in final} == final
        final = {key: row for key, row in rows.items() if row[-1]}
    assert len(final) > 5
    assert_right(sessions)


@pytest.mark.parametrize("stream", ["sessions", pytest.param("late_events", marks=nightly)])
@pytest.mark.parametrize("place", [FailPoint.STAGED, FailPoint.COMMITTED], ids=str)
@pytest.mark.parametrize("placement", ["driver", pytest.param("executors", marks=nightly)])
def test_a_driver_that_is_killed_adds_nothing_twice(
    sessions: Pipeline, stream: str, place: FailPoint, placement: str
) -> None:
    def killed(point: FailPoint) -> None:
        if point is place:
            raise Killed

    sessions.settings = sessions.settings.model_copy(update={"placement": placement})
    sessions.restart()
    records = world(3)
    land_all(sessions, records[:80], 3)
    follow(sessions)
    land_all(sessions, records[80:], 3)
    for hop in CHAIN[: CHAIN.index(stream)]:
        sessions.hop(hop)
    with pytest.raises(Killed):
        sessions.hop(stream, killed)
    sessions.repeat(stream)
    for hop in CHAIN[CHAIN.index(stream) + 1 :]:
        sessions.hop(hop)
    assert_right(sessions)


@pytest.mark.nightly
def test_executors_come_to_the_same(sessions: Pipeline) -> None:
    sessions.settings = sessions.settings.model_copy(update={"placement": "executors"})
    sessions.restart()
    records = world(5)
    for begin in range(0, len(records), 30):
        land_all(sessions, records[begin : begin + 30], 2)
        follow(sessions)
    placed = sessions.batches["sessions"][-1].placement
    assert placed is not None
    assert str(placed.place) == "executors"
    assert_right(sessions)


def test_computed_again_the_table_is_the_same_and_goes_on(sessions: Pipeline) -> None:
    records = world(13)
    land_all(sessions, records[:100], 8)
    follow(sessions)
    before = found(sessions)
    current_rows.make(sessions.settings.lake, "sessions", 1)
    assert found(sessions) == before
    sessions.restart()
    land_all(sessions, records[100:], 3)
    follow(sessions)
    assert_right(sessions)


def test_another_gap_is_refused_and_recomputed_on_request(sessions: Pipeline) -> None:
    land_all(sessions, world(13), 6)
    follow(sessions)
    sessions.settings = sessions.settings.model_copy(update={"session_gap_minutes": 12.5})
    sessions.restart()
    with pytest.raises(SettingsError, match=r"ACTIVITY_SESSION_GAP_MINUTES=30, and .*MINUTES=12\.5") as refused:
        sessions.hop("sessions")
    assert "activity rebuild --stream sessions" in (refused.value.remedy or "")
    for stream in CHAIN[1:]:
        recomputing.recompute(sessions.settings, stream, "another gap")
    assert_right(sessions)


def test_a_session_takes_a_late_purchase_in_on_purpose(sessions: Pipeline) -> None:
    land(sessions, bought(1, 0), bought(2, 50), partition=0)
    land(sessions, bought(3, 200, "C-2"), partition=0)
    land(sessions, bought(4, 25), partition=0)
    follow(sessions)
    assert figures(sessions) == [(0, 0, 1, True), (50, 50, 1, True)]
    assert {row["purchase_id"] for row in sessions.rows(Table.TIMED_PURCHASES)} == {"P-1", "P-2", "P-3", "P-4"}
    assert {row["purchase_id"] for row in sessions.rows(Table.LATE_EVENTS)} == {"P-4"}
    day = datetime.fromtimestamp(START / 1000, UTC).date()
    assert recomputing.reprocess(sessions.settings, day, "the till was offline").purchases == 1
    assert figures(sessions) == [(0, 50, 3, True)]
    assert proof(sessions, Table.SESSIONS).ok


def test_it_follows_a_correction(sessions: Pipeline) -> None:
    land_all(sessions, world(17), 6)
    follow(sessions)
    newest = max(sessions.rows(Table.PURCHASES), key=lambda row: row["occurred_at"])
    tables.append(sessions.settings.lake, Table.PURCHASES, newest | {"purchase_id": "P-X"}, query=REPLAY)
    follow(sessions)
    assert not proof(sessions, Table.SESSIONS).ok
    assert apply_in(sessions.spark, sessions.settings, read=lambda *_: {}).correction is not None
    assert rebuild_in(sessions.spark, sessions.settings, Choice()).differences == 0
    assert_right(sessions)
