"""All optional streams of one deployment, side by side: killed among them, each is right and doubles nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import ROUTES
from customer_activity.commands.verify import others, published
from customer_activity.engine.stream import Resyncable
from customer_activity.kafka import topics
from customer_activity.kafka.marker import of_stream
from customer_activity.settings import Settings
from customer_activity.streams.publish.transaction import Publisher
from customer_activity.streams.registry import STREAMS
from customer_activity.verification.verify import verify
from support import weeks
from support.broker import consumed, rows, send
from support.records import PURCHASES, Record, payment
from support.weeks import drain, killed

MINUTE = 60_000
KEYED = {"masked"}  # its key switches it on
ON_REQUEST = {"ops.reprocessed_purchases", "reference.products", "ops.outdated_alerts"}  # by commands alone
LARGE = {"rule": "large", "when": [{"column": "amount", "is": ">=", "value": 5}], "route": ROUTES[0]}
LATER = {"publish_sessions", "publish_sessions_final"}
nightly = pytest.mark.nightly
PLACES = [
    "publish_daily_final:published",
    pytest.param("alerts:committed", marks=nightly),
    pytest.param("payments:staged", marks=nightly),
    pytest.param("publish_routed:sending", marks=nightly),
]


@pytest.fixture(autouse=True)
def nothing_optional_afterwards() -> Iterator[None]:
    yield
    topology.switch_on([])


@pytest.fixture
def everything(settings: Settings, tmp_path: Path) -> Settings:
    """Return settings with all optional streams on that need no key, their topics, and rules of the test's own."""
    names = [spec.name for spec in topology.optional() if spec.name not in KEYED]
    topology.switch_on(names)
    topics.check(settings, create=True)
    rules = tmp_path / "rules.yaml"
    rules.write_text(json.dumps({"rules": [LARGE], "default": ROUTES[1]}), encoding="utf-8")
    return settings.model_copy(
        update={
            "streams": ",".join(names),
            "routing_rules": rules,
            "fail_points": True,
            "merge_seconds": 1.0,
            "grace_hours": 6.0,
            "max_bad_share": 1.0,
            "alert_window_amount": 7,
            "alert_grace_minutes": 600.0,
        }
    )


def paid(bought: Record) -> Iterator[Record]:
    """Yield a purchase, and for most of them its payment, now and then of another amount."""
    yield bought
    if bought.topic != PURCHASES:
        return
    said = bought.fields()
    number = int(said["purchaseId"].rpartition("-")[2])
    if number % 5:
        amount = said["amount"] + (number % 7 == 0)
        yield payment(said["purchaseId"], str(amount), said["occurredAtEpochMillis"] + number % 40 * MINUTE)


@pytest.mark.parametrize("place", PLACES)
def test_a_driver_that_is_killed_harms_none_of_them(spark: SparkSession, everything: Settings, place: str) -> None:
    """Two of the topics are switched on between; afterwards what a topic says otherwise is found, and put right."""
    records = [record for bought in weeks.world(len(place)) for record in paid(bought)]
    half = len(records) // 2
    send(everything, *records[:half])
    topology.switch_on([name for name in topology.switched_on() if name not in LATER])
    drain(spark, everything)
    send(everything, *records[half:])
    topology.switch_on(everything.streams.split(","))
    killed(everything, place, side_by_side=True)
    drain(spark, everything)
    assert differences(everything) == {}
    assert {each.table.label for each in others() if not rows(everything, each.table)} == ON_REQUEST
    topic = everything.topics["daily"]
    with Publisher(everything, outlet=of_stream(everything, "publish_daily", [topic])) as publisher:
        publisher.publish([(consumed(everything, topic)[0][0], None)], publisher.marker)
    assert differences(everything, only=frozenset({topic})) == {topic: 1}
    stream = STREAMS["publish_daily"]
    assert isinstance(stream, Resyncable)
    assert stream.resync(everything, "a test")[:2] == (1, 0)
    assert differences(everything) == {}


def differences(settings: Settings, only: frozenset[str] | None = None) -> dict[str, int]:
    """Verify every table and topic, or some; return how many differences there are, where there are some."""
    of_tables, of_topics = others(), published(settings)
    found = verify(settings, settle_seconds=0, only=only, others=of_tables, published=of_topics)
    compared = {check.name for check in found.checks}
    assert compared >= (only or {each.topic for each in of_topics} | {each.table.label for each in of_tables})
    assert [check for check in found.checks if check.impossible] == []
    return {check.name: check.differences for check in found.checks if not check.ok}
