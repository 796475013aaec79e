"""A small batch's records, as the broker has them between two offsets: all, once, and only what is committed."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from customer_activity.errors import BrokerUnavailable, OffsetsLost
from customer_activity.kafka import clients, settled
from customer_activity.settings import Settings
from customer_activity.streams.bronze import fetching
from customer_activity.streams.bronze.fetching import Fetcher
from support.broker import end_transaction, producer_of

PARTITION = 2


def end(settings: Settings) -> int:
    """Where the partition ends."""
    return clients.offset_range(settings, settings.purchase_topic)[PARTITION][1]


def send(settings: Settings, *values: bytes | None, headers: Any = None) -> int:
    """Send values to one partition; return where it ends."""
    producer = producer_of(settings.kafka_bootstrap_servers)
    for value in values:
        producer.produce(settings.purchase_topic, key=b"P", value=value, headers=headers, partition=PARTITION)
    assert producer.flush(30) == 0
    return end(settings)


@cache
def transactional(address: str) -> Producer:
    """Return a producer of transactions, which is made once."""
    made = clients.producer(Settings(kafka_bootstrap_servers=address, kafka_config=None), transactional_id="fetching")
    made.init_transactions(30)
    return made


def transaction(settings: Settings, *values: bytes, commits: bool) -> int:
    """Send values in a transaction; return where the partition ends, its mark included."""
    producer = transactional(settings.kafka_bootstrap_servers)
    producer.begin_transaction()
    for value in values:
        producer.produce(settings.purchase_topic, key=b"P", value=value, partition=PARTITION)
    end_transaction(producer, commits=commits)
    settled.settle(settings, settings.purchase_topic)
    return end(settings)


def fetch(fetcher: Fetcher, begin: int, upto: int) -> pa.Table:
    """Fetch the partition's records, as a batch that has nothing of the others."""
    topic = fetcher.settings.purchase_topic
    parts = fetcher.fetch({topic: {0: (0, 0), PARTITION: (begin, upto)}})
    return pa.Table.from_batches(parts, fetching.RECORDS)


def values(table: pa.Table) -> list[bytes | None]:
    """The records' values."""
    found: list[bytes | None] = table.column("value").to_pylist()
    return found


def test_records_are_as_spark_would_give_them(settings: Settings, fetcher: Fetcher) -> None:
    trace: list[tuple[str, bytes | None]] = [("traceparent", b"00-1"), ("empty", None)]
    send(settings, b"one", headers=trace)
    send(settings, None)
    found = fetch(fetcher, 0, 2)
    assert found.schema == fetching.RECORDS
    first, second = found.to_pylist()
    assert (first["key"], first["value"], first["topic"]) == (b"P", b"one", settings.purchase_topic)
    assert (first["partition"], first["offset"]) == (PARTITION, 0)
    assert first["headers"] == [{"key": "traceparent", "value": b"00-1"}, {"key": "empty", "value": None}]
    assert (second["value"], second["headers"], second["offset"]) == (None, None, 1)
    assert first["timestamp"] <= second["timestamp"]


def test_batch_follows_batch_and_what_came_too_early_waits(settings: Settings, fetcher: Fetcher) -> None:
    send(settings, b"0", b"1", b"2", b"3")
    assert values(fetch(fetcher, 0, 1)) == [b"0"]
    assert values(fetch(fetcher, 1, 1)) == []
    assert values(fetch(fetcher, 1, 3)) == [b"1", b"2"]
    send(settings, b"4")
    assert values(fetch(fetcher, 3, 5)) == [b"3", b"4"]


def test_a_batch_is_fetched_again_and_one_that_somebody_else_read_is_left_out(
    settings: Settings, fetcher: Fetcher
) -> None:
    send(settings, b"0", b"1", b"2", b"3", b"4")
    assert values(fetch(fetcher, 0, 2)) == [b"0", b"1"]
    assert values(fetch(fetcher, 0, 2)) == [b"0", b"1"]
    assert values(fetch(fetcher, 4, 5)) == [b"4"]


def test_only_committed_records_are_handed_out_and_marks_hold_nobody_up(settings: Settings, fetcher: Fetcher) -> None:
    first = transaction(settings, b"in", commits=True)
    second = transaction(settings, b"out", b"out", commits=False)
    third = transaction(settings, b"in again", commits=True)
    assert values(fetch(fetcher, 0, first)) == [b"in"]
    assert values(fetch(fetcher, first, second)) == []
    assert values(fetch(fetcher, second, third)) == [b"in again"]
    fourth = transaction(settings, b"out", commits=False)
    assert values(fetch(fetcher, third, fourth)) == []


def test_offsets_that_are_gone_are_an_error(settings: Settings, fetcher: Fetcher) -> None:
    upto = send(settings, b"0", b"1")
    admin = clients.admin(settings)
    gone = admin.delete_records([TopicPartition(settings.purchase_topic, PARTITION, upto)])
    for removed in gone.values():
        removed.result(30)
    send(settings, b"2")
    with pytest.raises(OffsetsLost, match="no longer has the offsets"):
        fetch(fetcher, 0, upto + 1)


def test_a_silent_broker_is_given_up(settings: Settings, fetcher: Fetcher) -> None:
    fetcher.silence_seconds = 0.2
    send(settings, b"0")
    with pytest.raises(BrokerUnavailable, match=f"no record of {settings.purchase_topic}-{PARTITION}"):
        fetch(fetcher, 0, 10)


def test_what_comes_slowly_is_handed_out_as_it_comes(
    settings: Settings, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "PART_SECONDS", 0.2)
    send(settings, b"0", b"1")
    parts = fetcher.fetch({settings.purchase_topic: {PARTITION: (0, 3)}})
    assert values(pa.Table.from_batches([next(parts)])) == [b"0", b"1"]  # the third is not there yet
    send(settings, b"2")
    assert [part.num_rows for part in parts] == [1]


def test_a_fetch_that_failed_is_made_anew_from_its_beginning(
    settings: Settings, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(settings, b"0", b"1")
    assert values(fetch(fetcher, 0, 1)) == [b"0"]
    with monkeypatch.context() as impatient:
        impatient.setattr(fetcher, "silence_seconds", 0.5)
        with pytest.raises(BrokerUnavailable):
            fetch(fetcher, 1, 4)
    send(settings, b"2", b"3")
    assert values(fetch(fetcher, 1, 4)) == [b"1", b"2", b"3"]


@hypothesis_settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(steps=st.lists(st.tuples(st.sampled_from(["send", "commit", "abort", "fetch"]), st.integers(1, 4)), max_size=8))
def test_whatever_is_written_and_wherever_batches_end_all_of_it_comes_once(
    settings: Settings, fetcher: Fetcher, steps: list[tuple[str, int]]
) -> None:
    begin = end(settings)
    found: list[bytes | None] = []
    sent: list[bytes | None] = []
    for kind, count in [*steps, ("fetch", 4)]:
        records = [f"{len(sent)}-{number}".encode() for number in range(count)]
        if kind == "send":
            send(settings, *records)
        elif kind != "fetch":
            transaction(settings, *records, commits=kind == "commit")
        else:  # a part of what is there; the rest comes with a later one
            upto = max(begin, end(settings) - (4 - count))
            found += values(fetch(fetcher, begin, upto))
            begin = upto
        sent += records if kind in ("send", "commit") else []
    assert found == sent
