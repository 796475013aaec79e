"""Reading a topic between two offsets: every record, the end, and what can go wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from customer_activity.errors import BrokerUnavailable, KafkaRefused, RecordsUnreadable, TransientError
from customer_activity.kafka import clients
from customer_activity.kafka.headers import HeaderReader
from customer_activity.settings import Settings
from customer_activity.verification import kafka_input
from support.world_rows import NOW, PURCHASES


class Script:
    """A consumer that hands out prepared batches."""

    def __init__(self, *batches: list[Any]) -> None:
        self.batches = list(batches)
        self.unassigned: list[int] = []
        self.closed = False

    def assign(self, partitions: list[Any]) -> None:
        self.assigned = [(partition.partition, partition.offset) for partition in partitions]

    def consume(self, _records: int, _timeout: float) -> list[Any]:
        return self.batches.pop(0) if self.batches else []

    def incremental_unassign(self, partitions: list[Any]) -> None:
        self.unassigned += [partition.partition for partition in partitions]

    def close(self) -> None:
        self.closed = True


def message(partition: int, offset: int, error: KafkaError | None = None) -> Any:
    return SimpleNamespace(
        error=lambda: error,
        topic=lambda: PURCHASES,
        partition=lambda: partition,
        offset=lambda: offset,
        timestamp=lambda: (1, NOW),
        key=lambda: b"P",
        value=lambda: b"{}",
        headers=lambda: None,
    )


def read(
    script: Script, settings: Settings, monkeypatch: pytest.MonkeyPatch, start: dict[int, int], end: dict[int, int]
) -> list[tuple[int, int]]:
    monkeypatch.setattr(clients, "reader", lambda _: script)
    return [(raw.partition, raw.offset) for raw in kafka_input.read(settings, PURCHASES, start, end)]


def test_reading_stops_at_the_ends_that_were_noted(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(
        [message(0, 4), message(1, 0)],
        [message(0, 5), message(0, 6)],
        [message(1, 1, KafkaError(KafkaError._PARTITION_EOF))],
    )
    # Partition 1 ends with a transaction's marker: offset 1 holds no record, and only the end of partition tells.
    assert read(script, settings, monkeypatch, {0: 4, 1: 0, 2: 9}, {0: 6, 1: 2, 2: 9}) == [(0, 4), (1, 0), (0, 5)]
    assert (script.assigned, script.unassigned, script.closed) == ([(0, 4), (1, 0)], [0], True)


def test_nothing_to_read_needs_no_consumer(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(Script(), settings, monkeypatch, {0: 3}, {0: 3}) == []


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        pytest.param(KafkaError._AUTO_OFFSET_RESET, TransientError, id="retention was faster"),
        pytest.param(KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaRefused, id="not allowed"),
        pytest.param(KafkaError._BAD_MSG, RecordsUnreadable, id="records that are damaged"),
        pytest.param(KafkaError._NOT_IMPLEMENTED, RecordsUnreadable, id="records that are compressed in another way"),
    ],
)
def test_faults_end_the_reading(
    code: int, raised: type[Exception], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script([message(0, 0, KafkaError(code))])
    with pytest.raises(raised):
        read(script, settings, monkeypatch, {0: 0}, {0: 1})
    assert script.closed


def test_a_header_whose_name_is_no_text_is_read_once_more(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise UnicodeDecodeError("utf-8", b"caf\xe9", 3, 4, "invalid")

    odd = message(0, 1)
    odd.headers = fail
    monkeypatch.setattr(HeaderReader, "_read", lambda *_: [("caf\\xe9", b"1")])
    monkeypatch.setattr(clients, "reader", lambda _: Script([message(0, 0), odd, message(0, 2)]))
    raws = list(kafka_input.read(settings, PURCHASES, {0: 0}, {0: 3}))
    assert [raw.headers for raw in raws] == [(), (("caf\\xe9", b"1"),), ()]


@pytest.mark.parametrize(
    ("told", "timestamp"), [(NOW, NOW), (-1, -1), (-2, None), (2**62, None)], ids=["good", "none", "before", "far"]
)
def test_a_timestamp_that_no_table_holds_is_none(
    told: int, timestamp: int | None, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = message(0, 0)
    record.timestamp = lambda: (1, told)
    monkeypatch.setattr(clients, "reader", lambda _: Script([record]))
    assert [raw.timestamp for raw in kafka_input.read(settings, PURCHASES, {0: 0}, {0: 1})] == [timestamp]


def test_a_silent_broker_is_given_up(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_input, "SILENCE_SECONDS", 0.0)
    with pytest.raises(BrokerUnavailable, match="neither a record nor the end of partition"):
        read(Script(), settings, monkeypatch, {0: 0}, {0: 1})
