"""Fetch a batch's records with a client of librdkafka's, at the offsets that Spark has planned and noted.

The driver's client stands at the end of the topics and mostly has a small batch's records already: Spark's own way to
them, a job with a task and a consumer for each partition, takes ten times as long as a few hundred records do. A share
of a large batch is fetched the same way by a task (`shares.py`). Whatever the size of records, they are handed out in
parts of a few megabytes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, TopicPartition

from customer_activity.contracts.parsing import HEADERS, KAFKA_TIMESTAMP
from customer_activity.errors import BrokerUnavailable, OffsetsLost
from customer_activity.kafka import clients
from customer_activity.kafka.headers import HeaderReader, Headers
from customer_activity.settings import Settings

POLL_SECONDS = 0.005  # the client waits for so many messages or so long, whatever it has by then
MESSAGES_A_POLL = 2_000
SILENCE_SECONDS = 120.0  # a broker that was restarted has answered by then
PART_BYTES = 16 << 20  # of keys and values: handed out when it is reached
EXPECTED_BYTES = PART_BYTES  # of a message, before one has come: it is taken alone, and from then on as many as fit
PART_RECORDS = 50_000
PART_SECONDS = 5.0  # what a slow broker sends is handed out after so long, so that progress is seen
AHEAD_BYTES = 16 << 20  # of records beyond a batch that came too early; with more, a later batch asks for them again

# A fetch is unpacked whole, and what is packed well has a hundred times its size: partitions are asked for a little at
# a time, and not asked while enough waits. After that the client would pause for a second by default.
BOUNDS = {"queued_max_messages_kbytes": 16_384, "fetch_queue_backoff_ms": 10}
FETCH_BYTES = 128 << 10

# As Spark's Kafka source names them; its timestamps are in microseconds, which do not hold all that Kafka allows.
RECORDS = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": KAFKA_TIMESTAMP,
        "headers": HEADERS,
    }
)

Place = tuple[str, int]  # topic and partition
Ranges = Mapping[str, Mapping[int, tuple[int, int]]]  # first offset and end (exclusive) by topic and partition


class Fetcher:
    """A consumer of every partition that a batch names, standing where the last batch ended."""

    def __init__(
        self,
        settings: Settings,
        topics: Sequence[str],
        *,
        silence_seconds: float = SILENCE_SECONDS,
        fetch_bytes: int = FETCH_BYTES,
    ) -> None:
        """Open the client; it knows who leads the partitions, and asks for no record yet.

        Args:
            settings: which broker.
            topics: that it may be asked for.
            silence_seconds: how long nothing may come.
            fetch_bytes: that a partition is asked for at a time.

        Raises:
            BrokerUnavailable: Kafka does not answer.
        """
        self.settings = settings
        self.silence_seconds = silence_seconds
        self.consumer: Consumer = clients.reader(settings, fetch_message_max_bytes=fetch_bytes, **BOUNDS)
        try:
            clients.find_leaders(self.consumer, settings, topics)
        except BaseException:
            self.consumer.close()
            raise
        self.headers = HeaderReader(settings)
        self.next: dict[Place, int] = {}
        self.waiting: dict[Place, deque[Any]] = {}  # messages that came before their batch
        self.waiting_bytes: dict[Place, int] = {}
        self.mean_bytes = EXPECTED_BYTES  # of the messages that came last
        self.seen_end: dict[Place, int] = {}  # where a partition was found to end, everything before being handed out

    def fetch(self, ranges: Ranges) -> Iterator[pa.RecordBatch]:
        """Yield the committed records of a batch, in parts of PART_BYTES or a little more, or of PART_SECONDS.

        Args:
            ranges: first offset and end (exclusive) by topic and partition.

        Yields:
            RECORDS, a partition's in offset order.

        Raises:
            OffsetsLost: Kafka no longer has some of them.
            RecordsUnreadable: some are damaged, or written in a way that the client does not know.
            BrokerUnavailable: nothing comes for too long.
        """
        begins = {(topic, partition): low for topic, of in ranges.items() for partition, (low, _) in of.items()}
        ends = {(topic, partition): high for topic, of in ranges.items() for partition, (_, high) in of.items()}
        if begins != self.next:
            self._stand_at(begins)
        self.next = {}  # until this batch is whole: what was handed out of half of one is gone from here
        taken: list[Any] = []
        unread = {place for place, end in ends.items() if begins[place] < end}
        taken_bytes = self._take(unread, ends, taken)
        silent_until = time.monotonic() + self.silence_seconds
        part_until = time.monotonic() + PART_SECONDS
        is_next_known = True
        while unread:
            is_due = bool(taken) and time.monotonic() >= part_until
            if taken_bytes >= PART_BYTES or len(taken) >= PART_RECORDS or is_due:
                yield self._as_batch(taken)
                taken, taken_bytes = [], 0
                part_until = time.monotonic() + PART_SECONDS
                silent_until = time.monotonic() + self.silence_seconds  # what was done with that part is no silence
            if self._poll():
                silent_until = time.monotonic() + self.silence_seconds
                taken_bytes += self._take(unread, ends, taken)
                if sum(self.waiting_bytes.values()) > AHEAD_BYTES:
                    self._leave(ends.keys() - unread)
                    is_next_known = False
            elif time.monotonic() > silent_until:
                raise BrokerUnavailable(
                    f"no record of {', '.join(f'{topic}-{partition}' for topic, partition in sorted(unread))} for "
                    f"{self.silence_seconds:.0f} s",
                    remedy="`activity broker status` shows whether Kafka is up; then start again",
                )
        if is_next_known:
            self.next = ends
        if taken:
            yield self._as_batch(taken)

    def close(self) -> None:
        """Close the client."""
        self.consumer.close()
        self.headers.close()

    def _stand_at(self, begins: dict[Place, int]) -> None:
        """Begin afresh: at the first batch, after a large one, which tasks have read, and after one that failed."""
        self.waiting = {place: deque() for place in begins}
        self.waiting_bytes = dict.fromkeys(begins, 0)
        self.seen_end = {}
        self.consumer.assign([TopicPartition(*place, offset) for place, offset in begins.items()])

    def _leave(self, places: set[Place]) -> None:
        """Ask for no more of these partitions, and forget what came too early."""
        left = [place for place in places if place in self.waiting]
        self.consumer.incremental_unassign([TopicPartition(*place) for place in left])
        for place in left:
            del self.waiting[place], self.waiting_bytes[place]

    def _poll(self) -> bool:
        """Take what the client has by now; return whether it is anything, if only where a partition ends."""
        most = min(MESSAGES_A_POLL, max(1, PART_BYTES // max(1, self.mean_bytes)))
        messages: list[Any] = self.consumer.consume(most, POLL_SECONDS)
        came = 0
        for message in messages:
            place, fault = (message.topic(), message.partition()), message.error()
            if fault is not None:
                self._meet(fault, place, message.offset())
            elif place in self.waiting:  # one that was left may say a last word
                size = _size(message)
                self.waiting[place].append(message)
                self.waiting_bytes[place] += size
                came += size
        if messages:
            self.mean_bytes = max(self.mean_bytes // 2, came // len(messages))
        return bool(messages)

    def _meet(self, fault: KafkaError, place: Place, offset: int) -> None:
        """Note where a partition ends; what else the client tells instead of a record is an error."""
        if fault.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client has no public name for it
            self.seen_end[place] = offset
        elif fault.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001
            raise OffsetsLost(
                f"{place[0]}-{place[1]}: Kafka no longer has the offsets that come next",
                remedy="start again: what is lost is named then, and nothing was skipped",
            )
        else:
            clients.refuse_fault(self.settings, fault, f"{place[0]}-{place[1]} at offset {offset}")

    def _take(self, unread: set[Place], ends: Mapping[Place, int], taken: list[Any]) -> int:
        """Hand out what has come of a batch; what is whole is unread no more. Return the bytes."""
        size = 0
        for place in list(unread):
            waiting, end, last = self.waiting[place], ends[place], -1
            if waiting and waiting[-1].offset() < end:  # all of it, as nearly always
                last = waiting[-1].offset()
                taken.extend(waiting)
                waiting.clear()
                size += self.waiting_bytes[place]
                self.waiting_bytes[place] = 0
            while waiting and waiting[0].offset() < end:
                message = waiting.popleft()
                taken.append(message)
                size += _size(message)
                self.waiting_bytes[place] -= _size(message)
            # Offsets without a record (a transaction's marks, what compaction took) are known only from
            # the next record, or the end of the partition.
            if waiting or last == end - 1 or self.seen_end.get(place, -1) >= end:
                unread.discard(place)
        return size

    def _as_batch(self, messages: list[Any]) -> pa.RecordBatch:
        """Return messages as Spark's Kafka source gives them."""
        columns: dict[str, Any] = {
            "key": [message.key() for message in messages],
            "value": [message.value() for message in messages],
            "topic": [message.topic() for message in messages],
            "partition": [message.partition() for message in messages],
            "offset": [message.offset() for message in messages],
            "timestamp": pa.array([message.timestamp()[1] for message in messages], pa.int64()).cast(KAFKA_TIMESTAMP),
            "headers": _as_column(self.headers.of(messages)),
        }
        return pa.RecordBatch.from_arrays(
            [pa.array(columns[name], RECORDS.field(name).type) for name in RECORDS.names], schema=RECORDS
        )


def _as_column(headers: list[Headers | None]) -> pa.Array:
    """Return headers as a column: names and values in one run each, which is far quicker than a dict a header."""
    if all(of is None for of in headers):
        return pa.nulls(len(headers), HEADERS)
    each = [header for of in headers for header in of or ()]
    names, values = (
        pa.array([name for name, _ in each], pa.string()),
        pa.array([value for _, value in each], pa.binary()),
    )
    ends = list(accumulate((len(of or ()) for of in headers), initial=0))
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    is_missing = pa.array([of is None for of in headers])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs, HEADERS, mask=is_missing)


def _size(message: Any) -> int:
    return len(message.key() or b"") + len(message.value() or b"")
