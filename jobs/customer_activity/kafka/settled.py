"""What topics have when no open transaction hides it.

A reader of committed records gets none from behind an open transaction, of any producer, and would take an older record
for the last.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from customer_activity.errors import TransientError
from customer_activity.kafka import clients
from customer_activity.settings import Settings

SETTLE_SECONDS = 75.0  # longer than a broker lets a transaction of ours be open
LOOK_SECONDS = 0.2


def last_values(settings: Settings, topic: str) -> dict[bytes, bytes | None]:
    """Return the last value of each key of a topic.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        TransientError: another producer's transaction stays open, which may hide newer ones.
    """
    settle(settings, topic)
    return clients.last_values(settings, topic)


def records(settings: Settings, topic: str) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield key and value of each record of a topic, a partition's in their order.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        TransientError: another producer's transaction stays open, which may hide newer ones.
    """
    settle(settings, topic)
    yield from clients.committed(settings, topic)


def settle(settings: Settings, topic: str) -> None:
    """Wait until a topic has no transaction that was open when this was called: what is behind one cannot be read.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        TransientError: one stays open.
    """
    end = _ends(settings, topic, IsolationLevel.READ_UNCOMMITTED)
    deadline = time.monotonic() + SETTLE_SECONDS
    while hidden := _hidden(_ends(settings, topic, IsolationLevel.READ_COMMITTED), end):
        if time.monotonic() > deadline:
            raise TransientError(
                f"topic {topic}: a transaction of another producer is open (partitions {hidden}), and what is behind "
                "it cannot be read",
                remedy="find out who else writes to this topic (`kafka-transactions.sh find-hanging`); it is for one "
                "deployment alone",
            )
        time.sleep(LOOK_SECONDS)


def _hidden(stable: Mapping[int, int], end: Mapping[int, int]) -> list[int]:
    return [partition for partition, offset in end.items() if stable[partition] < offset]


def _ends(settings: Settings, topic: str, isolation: IsolationLevel) -> dict[int, int]:
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client has no types for it
    asked = {TopicPartition(topic, number): latest for number in clients.partitions(settings, topic)}
    client = clients.admin(settings)  # held until the answer is there: it would be given up with the client

    def ask() -> dict[int, int]:
        answers = client.list_offsets(
            asked, isolation_level=isolation, request_timeout=clients.METADATA_TIMEOUT_SECONDS
        )
        return {place.partition: answer.result().offset for place, answer in answers.items()}

    try:
        return clients.AGAIN(ask)
    except KafkaException as error:
        raise clients.unavailable(settings, error) from None


def has_records(settings: Settings, topic: str) -> bool:
    """Whether a topic has a committed record, a delete included.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        TopicMismatch: there is no such topic.
    """
    consumer = clients.reader(settings, fetch_wait_max_ms=clients.END_WAIT_MS)
    try:
        for partition, (low, high) in clients.ranges_seen_by(consumer, settings, topic).items():
            if low == high:
                continue
            consumer.assign([TopicPartition(topic, partition, low)])
            message = consumer.poll(clients.SILENCE_SECONDS)
            if message is None:
                raise clients.unavailable(settings, KafkaException(KafkaError(KafkaError._TIMED_OUT)))  # noqa: SLF001 - the client has no public name for it
            if (fault := message.error()) is None:
                return True
            if fault.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
                raise clients.unavailable(settings, KafkaException(fault))
        return False
    finally:
        consumer.close()
