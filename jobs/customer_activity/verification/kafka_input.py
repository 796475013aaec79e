"""Read a topic's committed records between two offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from customer_activity.errors import BrokerUnavailable, TransientError
from customer_activity.kafka import clients
from customer_activity.kafka.headers import HeaderReader, Headers
from customer_activity.settings import Settings
from customer_activity.verification.contract import LATEST_MILLIS, UNDATED
from customer_activity.verification.records import RawRecord

BATCH_RECORDS = 10_000
POLL_SECONDS = 0.1  # a batch that does not fill up is handed out after this
SILENCE_SECONDS = 30.0  # a healthy broker hands out records within milliseconds; an election is over by then


def ends(settings: Settings, topic: str) -> dict[int, int]:
    """Return the end offset (exclusive) of each partition."""
    return {partition: high for partition, (_, high) in clients.offset_range(settings, topic).items()}


def begins(settings: Settings, topic: str) -> dict[int, int]:
    """Return the first offset that retention has left in each partition."""
    return {partition: low for partition, (low, _) in clients.offset_range(settings, topic).items()}


def is_compacted(settings: Settings, topic: str) -> bool:
    """Whether Kafka removes records from the middle of the topic.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    return "compact" in clients.topic_setting(settings, topic, "cleanup.policy")


def expires(settings: Settings, topic: str) -> bool:
    """Whether Kafka removes records from the beginning of the topic, by their age or its size.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    return "delete" in clients.topic_setting(settings, topic, "cleanup.policy")


def largest_record(settings: Settings, *topics: str) -> int:
    """Return how many bytes a batch of records may have on each of some topics.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    return min(int(clients.topic_setting(settings, topic, "max.message.bytes")) for topic in topics)


def read(settings: Settings, topic: str, start: Mapping[int, int], end: Mapping[int, int]) -> Iterator[RawRecord]:
    """Yield every committed record from `start` (inclusive) to `end` (exclusive), a partition's in offset order.

    A partition that `start` does not have was added since, and is read from its beginning.

    Raises:
        BrokerUnavailable: Kafka does not answer any more.
        TransientError: records were removed while they were being read.
    """
    unread = {partition for partition in end if start.get(partition, 0) < end[partition]}
    if not unread:
        return
    consumer, headers = clients.reader(settings), HeaderReader(settings)
    try:
        consumer.assign([TopicPartition(topic, partition, start.get(partition, 0)) for partition in sorted(unread)])
        heard_at = time.monotonic()
        while unread:
            with clients.explained(settings):
                messages = consumer.consume(BATCH_RECORDS, POLL_SECONDS)
            if messages:
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at > SILENCE_SECONDS:
                raise BrokerUnavailable(
                    f"{topic}: neither a record nor the end of partition {sorted(unread)} in {SILENCE_SECONDS:.0f} s",
                    remedy="`activity broker status` shows whether Kafka is up; then verify again",
                )
            for message in messages:
                if (fault := message.error()) is not None:
                    _meet(fault, message, settings, unread)
            records = [message for message in messages if message.error() is None]
            for message, named in zip(records, headers.of(records), strict=True):
                raw = _raw(message, named)
                if raw.offset < end[raw.partition]:
                    yield raw
                if raw.offset >= end[raw.partition] - 1 and raw.partition in unread:
                    unread.discard(raw.partition)
                    consumer.incremental_unassign([TopicPartition(topic, raw.partition)])
    finally:
        consumer.close()
        headers.close()


def _raw(message: Any, headers: Headers | None) -> RawRecord:
    """Take a message apart; one without an error always has its coordinates, whatever its type hints say."""
    timestamp = message.timestamp()[1]
    return RawRecord(
        message.partition(),
        message.offset(),
        timestamp if UNDATED <= timestamp <= LATEST_MILLIS else None,  # no table holds it
        message.key(),
        message.value(),
        tuple(headers or ()),
    )


def _meet(fault: KafkaError, message: Any, settings: Settings, unread: set[int]) -> None:
    """Take note of a partition's end; give up on what waiting does not help; let the client retry the rest."""
    if fault.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client has no public name for it
        unread.discard(message.partition())
    elif fault.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001
        raise TransientError(
            f"{message.topic()}: records were removed by retention while they were being read", remedy="verify again"
        )
    else:
        clients.refuse_fault(settings, fault, f"{message.topic()}-{message.partition()}")
