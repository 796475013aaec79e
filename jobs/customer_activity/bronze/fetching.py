"""Fetch a small batch's records with a client that stands at the end of the topics and mostly has them already.

Spark plans which offsets a batch has, and notes them. For a few hundred records its own way to them, a job with a task
and a consumer for each partition, takes ten times as long as the records do, and a cold start waits for it longest.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from customer_activity import kafka
from customer_activity.bronze.parsing import HEADERS, TIMESTAMP
from customer_activity.errors import BrokerUnavailable, OffsetsLost
from customer_activity.settings import Settings

POLL_SECONDS = 0.005  # the client waits for so many messages or so long, whatever it has by then
MESSAGES_A_POLL = 2_000
SILENCE_SECONDS = 120.0  # as Spark's own consumer waits: a broker that was restarted has answered by then

# As Spark's Kafka source names them.
RECORDS = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": TIMESTAMP,
        "headers": HEADERS,
    }
)

Place = tuple[str, int]  # topic and partition


class Fetcher:
    """A consumer of every partition that a batch names, standing where the last batch ended."""

    def __init__(self, settings: Settings) -> None:
        """Open the client; it asks for nothing yet."""
        self.settings = settings
        self.consumer: Consumer = kafka.reader(settings)
        self.next: dict[Place, int] = {}
        self.waiting: dict[Place, deque[Any]] = {}  # messages that came before their batch
        self.seen_end: dict[Place, int] = {}  # where a partition was found to end, everything before being handed out

    def fetch(self, ranges: Mapping[str, Mapping[int, tuple[int, int]]]) -> pa.Table:
        """Return the committed records of a batch.

        Args:
            ranges: first offset and end (exclusive) by topic and partition.

        Returns:
            RECORDS, a partition's in offset order.

        Raises:
            OffsetsLost: Kafka no longer has some of them.
            BrokerUnavailable: nothing comes for SILENCE_SECONDS.
        """
        begins = {(topic, partition): low for topic, of in ranges.items() for partition, (low, _) in of.items()}
        ends = {(topic, partition): high for topic, of in ranges.items() for partition, (_, high) in of.items()}
        if begins != self.next:
            self._stand_at(begins)
        self.next = {}  # until this batch is whole: what was handed out of half of one is gone from here
        taken: list[Any] = []
        unread = {place for place, end in ends.items() if begins[place] < end}
        unread -= {place for place in unread if self._take(place, ends[place], taken)}
        silent_until = time.monotonic() + SILENCE_SECONDS
        while unread:
            messages = self.consumer.consume(MESSAGES_A_POLL, POLL_SECONDS)
            for message in messages:
                self._meet(message)
            if messages:
                silent_until = time.monotonic() + SILENCE_SECONDS
                unread -= {place for place in unread if self._take(place, ends[place], taken)}
            elif time.monotonic() > silent_until:
                raise BrokerUnavailable(
                    f"no record of {', '.join(f'{topic}-{partition}' for topic, partition in sorted(unread))} for "
                    f"{SILENCE_SECONDS:.0f} s",
                    remedy="`activity broker status` tells whether Kafka is well; then start again",
                )
        self.next = ends
        return as_table(taken)

    def close(self) -> None:
        """Close the client."""
        self.consumer.close()

    def _stand_at(self, begins: dict[Place, int]) -> None:
        """Begin anew: at the first batch, after a large one, which Spark read, and after one that failed."""
        self.waiting = {place: deque() for place in begins}
        self.seen_end = {}
        self.consumer.assign([TopicPartition(*place, offset) for place, offset in begins.items()])

    def _meet(self, message: Any) -> None:
        place, fault = (message.topic(), message.partition()), message.error()
        if fault is None:
            self.waiting[place].append(message)
        elif fault.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client has no public name for it
            self.seen_end[place] = message.offset()
        elif fault.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001
            raise OffsetsLost(
                f"{place[0]}-{place[1]}: Kafka no longer has the offsets that come next",
                remedy="start again: what is lost is named then, and nothing was skipped",
            )
        elif fault.fatal() or (fault.code() > 0 and not fault.retriable()):
            # Below zero are the client's own: it reconnects by itself.
            raise kafka.unavailable(self.settings, KafkaException(fault))

    def _take(self, place: Place, end: int, taken: list[Any]) -> bool:
        """Hand out what has come of a partition's part of the batch; say whether that is all of it."""
        waiting = self.waiting[place]
        last = -1
        while waiting and waiting[0].offset() < end:
            message = waiting.popleft()
            taken.append(message)
            last = message.offset()
        # Offsets without a record (a transaction's marks, what compaction took) have nobody who would tell of them but
        # the next record, or the end of the partition.
        return bool(waiting) or last == end - 1 or self.seen_end.get(place, -1) >= end


def as_table(messages: list[Any]) -> pa.Table:
    """Return messages as Spark's Kafka source gives them."""
    columns = {
        "key": [message.key() for message in messages],
        "value": [message.value() for message in messages],
        "topic": [message.topic() for message in messages],
        "partition": [message.partition() for message in messages],
        "offset": [message.offset() for message in messages],
        "timestamp": pa.array([message.timestamp()[1] * 1_000 for message in messages], pa.int64()).cast(TIMESTAMP),
        "headers": [_headers(message.headers()) for message in messages],
    }
    return pa.table({name: pa.array(columns[name], RECORDS.field(name).type) for name in RECORDS.names})


def _headers(headers: list[tuple[str, bytes | None]] | None) -> list[dict[str, Any]] | None:
    return [{"key": name, "value": value} for name, value in headers] if headers else None
