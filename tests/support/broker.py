"""What tests with a real broker do: send, drain, read back, verify."""

from __future__ import annotations

import json
import threading
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from customer_activity import application
from customer_activity.catalog import Table, table_path
from customer_activity.kafka import clients, topics
from customer_activity.settings import Settings
from customer_activity.verification.verify import verify
from support.records import PAYMENTS, PROFILES, Record
from support.streams import Query

INPUTS = ("purchase", "profile", "payment")
SETTLE_SECONDS = 60  # spent only while something differs and the pipeline still runs


def own_topics() -> dict[str, Any]:
    """Return settings that name topics of one's own."""
    test = uuid4().hex[:8]
    names = {f"{name}_topic": f"{name}-{test}" for name in (*INPUTS, "view", "progress", "alert")}
    return names | {"window_topic_prefix": f"windows-{test}", "route_topic_prefix": f"routes-{test}"}


def deployed(kafka: Settings, folder: Path) -> Settings:
    """Return settings with topics of their own, made as infra/kafka/topics.yaml says: 4, 4, 4 and 1 partitions."""
    places = {"lake": str(folder / "lake"), "run_dir": folder / "run"}
    own = kafka.model_copy(update=own_topics() | places | {"driver_memory": "2g"})
    topics.check(own, create=True)
    return own


def create_topic(settings: Settings, name: str, partitions: int, **config: str) -> None:
    """Create a topic with Kafka's defaults and some settings, whose dots are underscores here; wait for it."""
    admin = clients.admin(settings)
    topic = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
    admin.create_topics([topic])[name].result(20)
    topics.wait_until_usable(admin, [name])


@cache
def producer_of(address: str) -> Producer:
    """Return the producer that all tests share on a broker: a new one sends nothing for half a second."""
    return clients.producer(Settings(kafka_bootstrap_servers=address, kafka_config=None))


def send(settings: Settings, *records: Record, **producer_options: Any) -> None:
    """Send records and wait until the broker has them; `sent` times are left to the broker's clock."""
    shared = producer_of(settings.kafka_bootstrap_servers)
    producer = clients.producer(settings, **producer_options) if producer_options else shared
    for topic in (settings.profile_topic, settings.purchase_topic):
        producer.list_topics(topic, timeout=10)  # it may have been made anew, or have more partitions
    for record in records:
        topic = {PROFILES: settings.profile_topic, PAYMENTS: settings.payment_topic}.get(
            record.topic, settings.purchase_topic
        )
        producer.produce(topic, key=record.key, value=record.value, headers=list(record.headers))
    assert producer.flush(30) == 0


def end_transaction(producer: Producer, *, commits: bool) -> None:
    """Commit or abort a transaction once the broker has its records.

    An abort that overtakes the first record is a fatal fault of the producer's: the broker knows of no transaction yet
    (https://github.com/confluentinc/librdkafka/issues/4849).
    """
    assert producer.flush(30) == 0
    (producer.commit_transaction if commits else producer.abort_transaction)(30)


def drain(spark: SparkSession, settings: Settings, *queries: Query) -> None:
    """Let every hop take what is there, or some."""
    application.host(spark, settings, queries or list(Query), threading.Event(), available_now=True)


def view(settings: Settings) -> list[tuple[str, dict[str, Any] | None]]:
    """Every committed record of the view topic."""
    found = consumed(settings, settings.view_topic)
    return [(key.decode(), None if value is None else json.loads(value)) for key, value in found]


def consumed(settings: Settings, topic: str) -> list[tuple[bytes, bytes | None]]:
    """Every committed record of a topic, a partition's in their order."""
    consumer = clients.reader(settings, fetch_wait_max_ms=clients.END_WAIT_MS)
    records = []
    for partition, (low, high) in clients.ranges_seen_by(consumer, settings, topic).items():
        if low == high:
            continue
        consumer.assign([TopicPartition(topic, partition, low)])
        while (message := consumer.poll(30)) is not None and message.error() is None:
            records.append((message.key() or b"", message.value()))
    consumer.close()
    return records


def rows(settings: Settings, table: Table) -> list[dict[str, Any]]:
    """A table's rows."""
    found: list[dict[str, Any]] = DeltaTable(table_path(settings.lake, table)).to_pyarrow_table().to_pylist()
    return found


def assert_verified(settings: Settings) -> None:
    """The independent verifier finds nothing, once a pipeline that is still at work has come to the end."""
    report = verify(settings, settle_seconds=SETTLE_SECONDS)
    assert [check for check in report.checks if not check.ok] == []
