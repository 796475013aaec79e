"""Alerts through the broker: a driver that is killed anywhere in them raises, and publishes, none twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import ALERTS_ROLE, Table
from customer_activity.commands.verify import others, published
from customer_activity.contracts import FRAUD_ALERT
from customer_activity.engine.stream import Resyncable
from customer_activity.kafka import topics
from customer_activity.kafka.marker import of_stream
from customer_activity.operations import recomputing
from customer_activity.settings import Settings
from customer_activity.streams.publish.transaction import Publisher
from customer_activity.streams.registry import STREAMS
from customer_activity.verification.verify import verify
from support.alerts import as_alerts, expected
from support.broker import consumed, rows, send
from support.contracts import schema_of
from support.frauds import LOW, LOW_RULES, world
from support.weeks import drain, killed

PLACES = [
    *(f"{stream}:{point}" for stream in ("event_time", "alerts") for point in ("staged", "committed", "written")),
    *(f"publish_alerts:{point}" for point in ("planned", "sending", "published", "written")),
]


@pytest.fixture
def alerting(settings: Settings) -> Iterator[Settings]:
    """Return settings with alerts on, and their topic."""
    topology.switch_on(["publish_alerts"])
    topics.check(settings, create=True)
    yield settings.model_copy(update={"streams": "publish_alerts", "fail_points": True, **LOW})
    topology.switch_on([])


def as_record(row: dict[str, Any]) -> dict[str, Any]:
    """Return an alert as its topic has it."""

    def millis(name: str) -> int:
        return int(row[name].timestamp() * 1000)

    return {
        "alertId": row["alert_id"],
        "rule": row["rule"],
        "customerId": row["customer_id"],
        "purchaseId": row["purchase_id"],
        "occurredAtEpochMillis": millis("occurred_at"),
        "windowStartEpochMillis": millis("window_start"),
        "windowEndEpochMillis": millis("window_end"),
        "purchaseCount": row["purchase_count"],
        "totalAmount": row["total_amount"],
        "currency": "EUR",
    }


def assert_right(settings: Settings) -> None:
    """Hold table and topic against the rules, and the table against Kafka."""
    alerts = rows(settings, Table.FRAUD_ALERTS)
    assert as_alerts(alerts) == expected(rows(settings, Table.TIMED_PURCHASES), LOW_RULES)
    assert {alert["rule"] for alert in alerts} == {"velocity", "risky_session"}
    on_topic = [
        (key.decode(), json.loads(value or b"", parse_float=Decimal))
        for key, value in consumed(settings, settings.topics[ALERTS_ROLE])
    ]
    assert sorted(on_topic, key=str) == sorted(((row["customer_id"], as_record(row)) for row in alerts), key=str)
    assert {tuple(record) for _, record in on_topic} == {tuple(schema_of(FRAUD_ALERT)["properties"])}
    found = verify(settings, settle_seconds=0, others=others(), published=published(settings))
    assert [check.name for check in found.checks if not check.ok] == []
    assert {Table.FRAUD_ALERTS.label, settings.topics[ALERTS_ROLE]} <= {check.name for check in found.checks}


@pytest.mark.nightly
def test_with_other_limits_and_back_each_alert_is_on_the_topic_once(spark: SparkSession, alerting: Settings) -> None:
    send(alerting, *world(1))
    drain(spark, alerting)
    assert_right(alerting)
    topic = alerting.topics[ALERTS_ROLE]
    first = consumed(alerting, topic)
    higher = alerting.model_copy(update={"alert_window_purchases": 4, "alert_window_amount": 45})
    for limits in (higher, alerting, higher):
        recomputing.recompute(limits, "alerts", "a test")
        drain(spark, limits)
        found = verify(limits, settle_seconds=0, others=others(), published=published(limits))
        assert [check for check in found.checks if not check.ok] == []
    names = [json.loads(value or b"")["alertId"] for _, value in consumed(alerting, topic)]
    assert len(first) < len(names) == len(set(names))
    assert len(rows(alerting, Table.FRAUD_ALERTS)) < len(first)
    assert rows(alerting, Table.OUTDATED_ALERTS)


@pytest.mark.nightly
@pytest.mark.parametrize("place", PLACES)
def test_a_driver_that_is_killed_raises_and_publishes_none_twice(
    spark: SparkSession, alerting: Settings, place: str
) -> None:
    records = world(len(place))
    send(alerting, *records[:100])
    drain(spark, alerting)
    send(alerting, *records[100:])
    killed(alerting, place)
    drain(spark, alerting)
    assert_right(alerting)
    stream, topic = STREAMS["publish_alerts"], alerting.topics[ALERTS_ROLE]
    assert isinstance(stream, Resyncable)
    before = consumed(alerting, topic)
    assert stream.resync(alerting, "nothing differs")[:2] == (0, 0)
    assert consumed(alerting, topic) == before
    with Publisher(alerting, outlet=of_stream(alerting, "publish_alerts", [topic])) as publisher:
        publisher.publish(before[:1], publisher.marker)
    twice = verify(alerting, settle_seconds=0, published=published(alerting))
    assert {check.name: check.differences for check in twice.checks if not check.ok} == {topic: 1}
