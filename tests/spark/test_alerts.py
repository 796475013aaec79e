"""Alerts: each is raised once, whatever the batches, the crashes and what is corrected afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import REPLAY, Table
from customer_activity.errors import SettingsError
from customer_activity.inspection import show
from customer_activity.lake import delta
from customer_activity.lake.failpoints import FailPoint
from customer_activity.operations import current_rows, recomputing
from customer_activity.rebuild.building import Choice
from customer_activity.rebuild.repair import apply_in
from customer_activity.rebuild.run import rebuild_in
from customer_activity.settings import Settings
from support import tables
from support.alerts import Rules, as_alerts, expected
from support.frauds import LOW, LOW_RULES, world
from support.pipeline import Pipeline
from support.proof import proof
from support.quick_pipeline import QuickPipeline
from support.records import Record

CHAIN = ("event_time", "alerts")
nightly = pytest.mark.nightly


class Killed(Exception):
    """Raised at a fail point, as if the process had ended there."""


@pytest.fixture
def alerting(spark: SparkSession, settings: Settings) -> Iterator[Pipeline]:
    """Return the queries with that of alerts switched on."""
    topology.switch_on(["alerts"])
    delta.ensure_tables(settings.lake)
    yield QuickPipeline(spark, settings.model_copy(update=LOW))
    topology.switch_on([])


def land(pipeline: Pipeline, records: Sequence[Record], batches: int = 1) -> None:
    """Let bronze and silver take records in so many batches."""
    size = -(-len(records) // batches)
    for begin in range(0, len(records), size):
        pipeline.send(*records[begin : begin + size])
        for hop in ("bronze", "silver"):
            pipeline.hop(hop)


def follow(pipeline: Pipeline) -> None:
    for hop in CHAIN:
        pipeline.hop(hop)


def assert_right(pipeline: Pipeline, rules: Rules = LOW_RULES) -> None:
    """Hold the alerts against the rules, in Python and by the query that the stream declares."""
    found = as_alerts(pipeline.rows(Table.FRAUD_ALERTS))
    assert found == expected(pipeline.rows(Table.TIMED_PURCHASES), rules)
    assert {alert.rule for alert in found} == {"velocity", "risky_session"}
    check = proof(pipeline, Table.FRAUD_ALERTS)
    assert check.ok, check


@pytest.mark.parametrize("cuts", [1, 7, pytest.param(200, marks=nightly)])
def test_alerts_are_those_of_the_rules_whatever_the_batches(alerting: Pipeline, cuts: int) -> None:
    records = world(1)
    size = -(-len(records) // cuts)
    for begin in range(0, len(records), size):
        land(alerting, records[begin : begin + size])
        follow(alerting)
    assert_right(alerting)


@nightly
def test_executors_come_to_the_same(alerting: Pipeline) -> None:
    records = world(8)
    for begin in range(0, len(records), 100):
        land(alerting, records[begin : begin + 100], batches=3)
        alerting.hop("event_time")
        alerting.settings = alerting.settings.model_copy(update={"placement": "executors"})
        alerting.restart()
        placed = alerting.hop("alerts").placement
        assert placed is not None
        assert str(placed.place) == "executors"
    assert_right(alerting)


@pytest.mark.parametrize("stream", CHAIN)
@pytest.mark.parametrize(
    "place", [pytest.param(FailPoint.STAGED, marks=nightly), FailPoint.COMMITTED], ids=["staged", "committed"]
)
def test_a_driver_that_is_killed_raises_none_twice(alerting: Pipeline, stream: str, place: FailPoint) -> None:
    def killed(point: FailPoint) -> None:
        if point is place:
            raise Killed

    records = world(2)
    land(alerting, records[:100], batches=3)
    follow(alerting)
    land(alerting, records[100:], batches=3)
    for hop in CHAIN[: CHAIN.index(stream)]:
        alerting.hop(hop)
    with pytest.raises(Killed):
        alerting.hop(stream, killed)
    alerting.repeat(stream, loses_indexes=True)
    for hop in CHAIN[CHAIN.index(stream) + 1 :]:
        alerting.hop(hop)
    assert_right(alerting)


def test_computed_again_the_alerts_are_the_same(alerting: Pipeline) -> None:
    land(alerting, world(3), batches=8)
    follow(alerting)
    before = alerting.rows(Table.FRAUD_ALERTS)
    current_rows.make(alerting.settings.lake, "alerts", 1)
    assert alerting.rows(Table.FRAUD_ALERTS) == before
    assert rebuild_in(alerting.spark, alerting.settings, Choice()).differences == 0


def test_other_limits_are_refused_and_computed_on_purpose(alerting: Pipeline) -> None:
    land(alerting, world(4), batches=2)
    follow(alerting)
    alerting.settings = alerting.settings.model_copy(update={"alert_window_purchases": 4, "alert_gap_minutes": 2})
    alerting.restart()
    with pytest.raises(SettingsError, match=r"ACTIVITY_ALERT_WINDOW_PURCHASES=3, .*PURCHASES=4, ") as refused:
        alerting.hop("alerts")
    assert "activity rebuild --stream alerts" in (refused.value.remedy or "")
    assert recomputing.recompute(alerting.settings, "alerts", "other limits") == ["alerts"]
    assert_right(alerting, LOW_RULES._replace(window_purchases=4, gap=timedelta(minutes=2)))


def test_alerts_follow_a_correction(alerting: Pipeline) -> None:
    land(alerting, world(5), batches=2)
    follow(alerting)
    row = max(alerting.rows(Table.PURCHASES), key=lambda row: row["occurred_at"])
    wrong = {"purchase_id": "P-X", "customer_id": "C-9", "amount": Decimal("99.00"), "offset": row["offset"] + 1_000}
    tables.append(alerting.settings.lake, Table.PURCHASES, row | wrong, query=REPLAY)
    follow(alerting)
    assert not proof(alerting, Table.FRAUD_ALERTS).ok
    assert apply_in(alerting.spark, alerting.settings, read=lambda *_: {}).correction is not None
    assert_right(alerting)


def test_a_customer_is_shown_with_alerts(alerting: Pipeline) -> None:
    land(alerting, world(6))
    follow(alerting)
    alerts = alerting.rows(Table.FRAUD_ALERTS)
    shown = show.customer(alerting.settings.lake, alerts[0]["customer_id"]).windows
    assert list(shown) == [Table.FRAUD_ALERTS.label]
    assert all(row in alerts for row in shown[Table.FRAUD_ALERTS.label])
