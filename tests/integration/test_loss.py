"""Kafka loses what was never landed: bronze stops, names it, and goes on only when somebody accepts it."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.checkpoints import checkpoint
from customer_activity.checkpoints.offsets import OffsetRange
from customer_activity.engine import loss
from customer_activity.errors import OffsetsLost
from customer_activity.kafka import clients, topics
from customer_activity.lake import delta
from customer_activity.settings import Settings
from support import tables
from support.broker import assert_verified, drain, rows, send
from support.records import profile, purchase
from support.streams import Query
from support.waiting import until
from support.weeks import killed


def remove_all(settings: Settings, topic: str) -> None:
    """Remove every record of a topic, as retention does."""
    ends = [TopicPartition(topic, p, high) for p, (_, high) in clients.offset_range(settings, topic).items()]
    admin = clients.admin(settings)  # held until the answers are there
    for removed in admin.delete_records(ends).values():
        removed.result(30)


def test_lost_offsets_stop_bronze_until_they_are_accepted(spark: SparkSession, settings: Settings) -> None:
    send(settings, profile("C-1"), purchase("P-1"))
    drain(spark, settings)
    send(settings, purchase("P-2"), purchase("P-3"), purchase("P-4"))
    remove_all(settings, settings.purchase_topic)
    send(settings, purchase("P-5"))
    with pytest.raises(
        OffsetsLost, match=rf"no longer has 3 offsets[\s\S]*{settings.purchase_topic}-[\s\S]*accept-loss 3"
    ):
        drain(spark, settings)
    assert len(rows(settings, Table.PURCHASE_EVENTS)) == 1

    lost = loss.accept(settings, 3, "a test removed them")
    drain(spark, settings)

    assert {row["purchase_id"] for row in rows(settings, Table.PURCHASES)} == {"P-1", "P-5"}
    assert_verified(settings)
    (deed,) = (json.loads(path.read_text()) for path in Path(settings.lake, "_audit").iterdir())
    assert deed["lost"] == [part._asdict() for part in lost]


def test_what_a_first_batch_has_lost_is_not_passed_over(spark: SparkSession, settings: Settings) -> None:
    """Its driver was killed before it had landed, and retention goes on."""
    send(settings, profile("C-1"), purchase("P-1"), purchase("P-2"))
    settings = settings.model_copy(update={"fail_points": True})
    killed(settings, "bronze:planned")
    remove_all(settings, settings.purchase_topic)
    send(settings, purchase("P-3"))
    with pytest.raises(OffsetsLost, match=r"no longer has 2 offsets[\s\S]*accept-loss 2"):
        drain(spark, settings)

    loss.accept(settings, 2, "a test removed them")
    drain(spark, settings)

    assert {row["purchase_id"] for row in rows(settings, Table.PURCHASES)} == {"P-3"}
    assert_verified(settings)


def test_a_first_batch_begins_where_it_was_planned_to(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention may come between the plan of a batch and its records."""
    send(settings, profile("C-1"), purchase("P-1"), purchase("P-2"))
    found = checkpoint.cut

    def late(lake: str, query: str, batch_id: int) -> OffsetRange | None:
        remove_all(settings, settings.purchase_topic)
        return found(lake, query, batch_id)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "cut", late)
        with pytest.raises(OffsetsLost, match=r"no longer has 2 offsets[\s\S]* 0 to 1"):
            drain(spark, settings, Query.BRONZE)
    (lost, *_) = loss.find(settings, topology.landing())
    assert (lost.topic, lost.first) == (settings.purchase_topic, 0)


def test_a_topic_that_was_made_anew_is_refused_even_when_it_is_longer(spark: SparkSession, settings: Settings) -> None:
    send(settings, profile("C-1"), purchase("P-1"))
    drain(spark, settings)
    admin = clients.admin(settings)
    for deleted in admin.delete_topics([settings.purchase_topic]).values():
        deleted.result(30)
    until(lambda: settings.purchase_topic not in admin.list_topics(timeout=10).topics, 30)
    # For a moment more its name cannot be given again.
    until(lambda: topics.check(settings, create=True) in ([], [settings.purchase_topic]), 30)
    send(settings, *(purchase(f"P-{number}") for number in range(2, 40)))

    with pytest.raises(OffsetsLost, match="is not the topic that was landed so far"):
        drain(spark, settings)
    assert len(rows(settings, Table.PURCHASE_EVENTS)) == 1


def test_what_kafka_has_is_compared_with_what_landed_last(settings: Settings) -> None:
    delta.ensure_tables(settings.lake)
    send(settings, *(purchase(f"P-{number}") for number in range(40)))
    topic = settings.purchase_topic
    ends = {partition: high for partition, (_, high) in clients.offset_range(settings, topic).items()}
    with closing(clients.reader(settings)) as consumer:
        messages = [
            message
            for partition in ends
            for message in clients.messages(consumer, settings, TopicPartition(topic, partition, 0))
        ]
    assert len(messages) == 40
    landed: list[dict[str, Any]] = [
        {
            "topic": topic,
            "partition": message.partition(),
            "offset": message.offset(),
            "kafka_timestamp": datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC),
            "key": message.key(),
        }
        for message in messages
    ]
    tables.append(settings.lake, Table.PURCHASE_EVENTS, *landed, query="bronze", landing=1)
    cut = OffsetRange(None, [json.dumps({topic: ends})])
    checkpoint.write(settings.lake, "bronze", "g-1", 0, cut, is_committed=True)
    loss.check(settings, topology.landing())

    last = max(landed, key=itemgetter("offset"))
    other = last | {"key": b"of a time before the restore", "reason": "not_json", "quarantined_at": datetime.now(UTC)}
    tables.append(settings.lake, Table.QUARANTINE, other, query="bronze", landing=1)
    where = f"partition {last['partition']} has another record at offset {last['offset']}"
    with pytest.raises(OffsetsLost, match=where):
        loss.check(settings, topology.landing())
