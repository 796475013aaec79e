"""Large batches by Spark's tasks, each with a client of its own: the same rows as one client's, whatever Kafka has."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from customer_activity.catalog import Table
from customer_activity.errors import BrokerUnavailable, OffsetsLost
from customer_activity.kafka import clients, settled
from customer_activity.lake import delta
from customer_activity.lake.microbatch import Place
from customer_activity.settings import Settings
from customer_activity.streams.bronze import shares
from support.broker import assert_verified, drain, end_transaction, rows, send
from support.records import profile, purchase


@pytest.fixture
def spread(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return settings of a lake whose batches are landed by tasks, seven records each."""
    monkeypatch.setattr(shares, "LEAST_RECORDS", 1)
    monkeypatch.setattr(shares, "MOST_RECORDS", 7)
    delta.ensure_tables(settings.lake)
    return settings.model_copy(update={"placement": Place.EXECUTORS.value})


@contextmanager
def transactional(settings: Settings) -> Iterator[Producer]:
    """Yield a producer of transactions."""
    producer = clients.producer(settings, transactional_id=f"of-{settings.purchase_topic}")
    producer.init_transactions(30)
    yield producer
    producer.flush(30)


def test_a_share_may_begin_and_end_anywhere(spark: SparkSession, spread: Settings) -> None:
    """In transactions that were aborted, between their marks, and in packed batches of the producer's."""
    chance = random.Random(3)
    wanted: set[str] = set()
    with transactional(spread) as producer:
        for transaction in range(25):
            commits = chance.random() < 0.5
            producer.begin_transaction()
            for number in range(chance.randrange(1, 20)):
                record = purchase(f"P-{transaction}-{number}", f"C-{number}")
                producer.produce(spread.purchase_topic, record.value, record.key, chance.randrange(2))
                wanted |= {record.fields()["purchaseId"]} if commits else set()
            end_transaction(producer, commits=commits)
    settled.settle(spread, spread.purchase_topic)
    send(spread, *(profile(f"C-{number}") for number in range(20)))

    drain(spark, spread)

    assert {row["purchase_id"] for row in rows(spread, Table.PURCHASE_EVENTS)} == wanted
    assert len(rows(spread, Table.PROFILE_EVENTS)) == 20
    assert rows(spread, Table.QUARANTINE) == []
    assert_verified(spread)


def test_large_records_are_the_executors_too(spark: SparkSession, spread: Settings) -> None:
    text = "x" * 900_000
    send(spread, *(purchase(f"P-{number}", "C-1", note=text) for number in range(40)))
    drain(spark, spread)
    assert len(rows(spread, Table.PURCHASE_EVENTS)) == 40
    assert_verified(spread)


def test_offsets_that_are_gone_when_a_task_comes_are_data_loss(
    spark: SparkSession, spread: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(spread, *(purchase(f"P-{number}") for number in range(30)))
    planned = shares.cut
    monkeypatch.setattr(shares, "cut", lambda ranges, at_once: planned(_behind(ranges), at_once))
    with pytest.raises(OffsetsLost, match=r"no longer has the offsets[\s\S]*an executor on"):
        drain(spark, spread)
    assert rows(spread, Table.PURCHASE_EVENTS) == []


def _behind(ranges: dict[str, dict[int, tuple[int, int]]]) -> dict[str, dict[int, tuple[int, int]]]:
    """Return ranges behind the ends of what Kafka has."""
    return {topic: {n: (high + 5, high + 9) for n, (_, high) in of.items()} for topic, of in ranges.items()}


def test_a_broker_that_does_not_answer_a_task_is_told(
    spark: SparkSession, spread: Settings, free_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors may not reach the addresses that the driver does."""
    send(spread, *(purchase(f"P-{number}") for number in range(10)))
    opener = shares.opener
    elsewhere = {"kafka_bootstrap_servers": free_address}
    monkeypatch.setattr(
        "customer_activity.streams.bronze.stream.opener", lambda settings: opener(settings.model_copy(update=elsewhere))
    )
    with pytest.raises(BrokerUnavailable, match=rf"no answer from Kafka at {free_address}[\s\S]*an executor on"):
        drain(spark, spread)
