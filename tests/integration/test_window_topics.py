"""Topics of windows: every figure as the tables have it, and each final one exactly once, whatever ends a driver."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.commands.verify import others
from customer_activity.commands.verify import published as declared
from customer_activity.engine.stream import Resyncable
from customer_activity.errors import TerminalError
from customer_activity.kafka import clients, topics
from customer_activity.kafka.marker import of_stream
from customer_activity.operations import recomputing
from customer_activity.settings import Settings
from customer_activity.streams.publish import parts
from customer_activity.streams.publish.transaction import Publisher
from customer_activity.streams.registry import STREAMS
from customer_activity.verification import expiry, kafka_input
from customer_activity.verification.records import RawRecord
from customer_activity.verification.verify import verify
from support.broker import consumed, rows, send
from support.weeks import drain, killed, world

pytestmark = pytest.mark.nightly

TOPICS = ("publish_daily", "publish_daily_final", "publish_sessions", "publish_sessions_final")
PLACES = [f"{stream}:{point}" for stream in TOPICS for point in ("planned", "sending", "published", "written")]


@pytest.fixture
def published(settings: Settings) -> Iterator[Settings]:
    """Return settings with windows on, and their topics."""
    topology.switch_on(TOPICS)
    topics.check(settings, create=True)
    yield settings.model_copy(update={"streams": ",".join(TOPICS), "grace_hours": 6.0, "fail_points": True})
    topology.switch_on([])


def on_topic(settings: Settings, role: str) -> dict[str, list[dict[str, Any] | None]]:
    """Return the committed records of a topic by their keys, in their order; None for a delete."""
    found: dict[str, list[dict[str, Any] | None]] = defaultdict(list)
    for key, value in consumed(settings, settings.topics[role]):
        found[key.decode()].append(None if value is None else json.loads(value, parse_float=Decimal))
    return dict(found)


def as_record(row: dict[str, Any]) -> dict[str, Any]:
    """Return the day of a customer as its topic has it."""
    return {
        "customerId": row["customer_id"],
        "day": row["day"].isoformat(),
        "windowStartEpochMillis": round(row["window_start"].timestamp() * 1000),
        "windowEndEpochMillis": round(row["window_end"].timestamp() * 1000),
        "purchaseCount": row["purchase_count"],
        "totalAmount": row["total_amount"],
        "firstPurchaseAtEpochMillis": round(row["first_purchase_at"].timestamp() * 1000),
        "lastPurchaseAtEpochMillis": round(row["last_purchase_at"].timestamp() * 1000),
        "isFinal": row["is_final"],
    }


def assert_as_the_tables_say(settings: Settings) -> None:
    days = {
        json.dumps([row["customer_id"], row["day"].isoformat()], separators=(",", ":")): as_record(row)
        for row in rows(settings, Table.DAILY)
    }
    assert {key: found[-1] for key, found in on_topic(settings, "daily").items()} == days
    final = {key: [day] for key, day in days.items() if day["isFinal"]}
    assert len(final) > 3
    assert on_topic(settings, "daily_final") == final
    sessions = Counter(row["is_final"] for row in rows(settings, Table.SESSIONS))
    last = [found[-1] for found in on_topic(settings, "sessions").values()]
    assert Counter(session["isFinal"] for session in last if session is not None) == sessions
    assert {len(found) for found in on_topic(settings, "sessions_final").values()} == {1}
    assert len(on_topic(settings, "sessions_final")) == sessions[True]


def falsified(settings: Settings) -> None:
    """Publish as the pipeline would not: one figure is another one, one is gone, one is of nobody."""
    first, second, *_ = on_topic(settings, "daily")
    wrong = [(first, b'{"customerId": "C-1"}'), (second, None), ('["C-99","2026-01-01"]', b"{}")]
    with Publisher(settings, outlet=of_stream(settings, "publish_daily", [settings.topics["daily"]])) as publisher:
        publisher.publish([(key.encode(), value) for key, value in wrong], publisher.marker)


@pytest.mark.parametrize("place", PLACES)
def test_a_driver_that_is_killed_while_it_publishes_doubles_nothing(
    spark: SparkSession, published: Settings, place: str
) -> None:
    records = world(len(place))
    send(published, *records[:150])
    drain(spark, published)
    send(published, *records[150:])
    killed(published, place)
    drain(spark, published)
    assert_as_the_tables_say(published)
    topics_of_it = declared(published)
    found = verify(published, settle_seconds=0, others=others(), published=topics_of_it)
    assert [check.name for check in found.checks if not check.ok] == []
    assert {each.topic for each in topics_of_it} <= {check.name for check in found.checks}


def test_a_topic_that_is_switched_on_later_begins_with_all_rows(
    spark: SparkSession, published: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PART_RECORDS", 7)
    records = world(1)
    topology.switch_on(["daily", "sessions"])
    send(published, *records[:200])
    drain(spark, published)
    topology.switch_on(TOPICS)
    drain(spark, published)
    assert_as_the_tables_say(published)
    send(published, *records[200:])
    drain(spark, published)
    assert_as_the_tables_say(published)


def test_verify_finds_what_a_topic_says_otherwise_and_resync_puts_it_right(
    spark: SparkSession, published: Settings
) -> None:
    send(published, *world(3))
    drain(spark, published)
    falsified(published)
    found = verify(published, settle_seconds=0, others=others(), published=declared(published))
    differences = {check.name: check.differences for check in found.checks if not check.ok}
    assert differences == {published.topics["daily"]: 3}
    stream = STREAMS["publish_daily"]
    assert isinstance(stream, Resyncable)
    assert stream.resync(published, "a test")[:2] == (2, 1)
    drain(spark, published)
    found = verify(published, settle_seconds=0, others=others(), published=declared(published))
    assert [check.name for check in found.checks if not check.ok] == []


def test_records_that_expire_are_no_difference_and_what_came_after_them_is_there(
    spark: SparkSession, published: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker itself removes the first record of each partition; one that is then gone from its end is missed."""
    records = world(3)
    send(published, *records[:150])
    drain(spark, published)
    final = published.topics["daily_final"]
    ranges = clients.offset_range(published, final)
    beginnings = [TopicPartition(final, partition, low + 1) for partition, (low, high) in ranges.items() if high > low]
    admin = clients.admin(published)  # held until the answers are there
    for outcome in admin.delete_records(beginnings).values():
        outcome.result(20)
    send(published, *records[150:])
    drain(spark, published)
    monkeypatch.setattr(expiry, "CLOCK_MILLIS", 0)  # one clock, and seconds between the two drains
    found = verify(published, settle_seconds=0, others=others(), published=declared(published))
    assert [check.name for check in found.checks if not check.ok] == []
    read = kafka_input.read

    def without_the_last(settings: Settings, topic: str, start: Any, end: Any) -> Iterator[RawRecord]:
        found = list(read(settings, topic, start, end))
        last = {raw.partition: raw.offset for raw in found} if topic == final else {}
        yield from (raw for raw in found if last.get(raw.partition) != raw.offset)

    monkeypatch.setattr(kafka_input, "read", without_the_last)
    found = verify(published, settle_seconds=0, others=others(), published=declared(published))
    assert [check.name for check in found.checks if not check.ok] == [final]


def test_topics_follow_when_windows_are_recomputed_and_late_purchases_are_taken_in(
    spark: SparkSession, published: Settings
) -> None:
    """Another grace makes final figures running ones, or others final; what is late counts afterwards."""
    topology.switch_on([*TOPICS, "late_events"])
    send(published, *world(3))
    drain(spark, published)
    longer = published.model_copy(update={"grace_hours": 40.0})
    assert "publish_daily" not in recomputing.recompute(longer, "daily", "longer")
    drain(spark, longer)
    day = min(row["occurred_at"] for row in rows(longer, Table.LATE_EVENTS)).date()
    assert recomputing.reprocess(longer, day, "the till was offline").purchases
    drain(spark, longer)
    found = verify(longer, settle_seconds=0, others=others(), published=declared(longer))
    assert [check.name for check in found.checks if not check.ok] == []


def test_another_topic_is_refused_until_it_has_all_rows(spark: SparkSession, published: Settings) -> None:
    """So under another prefix, or a pipeline's other name: what is out is on the former topics."""
    records = world(1)
    send(published, *records[:250])
    drain(spark, published)
    moved = published.model_copy(update={"window_topic_prefix": f"{published.window_topic_prefix}-moved"})
    topics.check(moved, create=True)
    for _ in range(2):
        with pytest.raises(TerminalError, match=r"has published to .*-daily.* so far, and is to publish to .*-moved-"):
            drain(spark, moved)
        for name in TOPICS:  # as a resync that is interrupted leaves it
            outlet = of_stream(moved, name, [moved.topics[name.removeprefix("publish_")]])
            with Publisher(moved, outlet=outlet) as publisher:
                publisher.publish([], publisher.marker)
    for name in TOPICS:
        stream = STREAMS[name]
        assert isinstance(stream, Resyncable)
        stream.resync(moved, "other topics")
    send(moved, *records[250:])
    drain(spark, moved)
    assert_as_the_tables_say(moved)
