"""Read back what was sent and what was published: whole topics as arrays.

Nothing here runs beside a measurement but a look at where the topics end; records are read when a topic is quiet.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

import msgspec
import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from benchmarks.freshness import Numbers, Purchases, ViewRecords
from benchmarks.load import customer_number, is_customer, is_purchase
from customer_activity.kafka import clients
from customer_activity.settings import Settings

BATCH_RECORDS = 10_000
POLL_SECONDS = 0.1
LOOK_SECONDS = 0.25  # between two looks at where the view ends
QUIET_LOOKS = 2  # a view that has not grown for two looks is read
SILENCE_SECONDS = 60.0
NO_RECORD = -1


class _Purchase(msgspec.Struct, rename="camel"):
    customer_id: str


class _Profile(msgspec.Struct, rename="camel"):
    updated_at_epoch_millis: int


class _View(msgspec.Struct, rename="camel"):
    purchase_count: int
    profile_updated_at_epoch_millis: int


class _Alert(msgspec.Struct, rename="camel"):
    occurred_at_epoch_millis: int


_decode_alert = msgspec.json.Decoder(_Alert).decode
_decode_purchase = msgspec.json.Decoder(_Purchase).decode
_decode_profile = msgspec.json.Decoder(_Profile).decode
_decode_view = msgspec.json.Decoder(_View).decode

# What is kept of a record: the customer's number, a count of purchases, a time of a profile; None: of somebody else's.
Kept = tuple[int, int, int] | None


def _of_purchase(record: Message) -> Kept:
    if not is_purchase(record.key() or b""):
        return None
    return customer_number(_decode_purchase(record.value() or b"").customer_id), 1, 0


def _of_profile(record: Message) -> Kept:
    if not is_customer(record.key() or b""):
        return None
    return customer_number(record.key() or b""), 0, _decode_profile(record.value() or b"").updated_at_epoch_millis


def _of_view(record: Message) -> Kept:
    if not is_customer(record.key() or b""):
        return None
    view = _decode_view(record.value() or b"")
    return customer_number(record.key() or b""), view.purchase_count, view.profile_updated_at_epoch_millis


def _of_alert(record: Message) -> Kept:
    if not is_customer(record.key() or b""):
        return None
    return customer_number(record.key() or b""), 0, _decode_alert(record.value() or b"").occurred_at_epoch_millis


class Expected(NamedTuple):
    """What the view must come to say of each customer, by number.

    Attributes:
        purchase_count: purchases sent.
        profile_updated_ms: time of the newest profile update.
    """

    purchase_count: Numbers
    profile_updated_ms: Numbers

    def is_said_by(self, customers: Numbers, purchase_counts: Numbers, profile_updated_ms: Numbers) -> bool:
        """Whether these records say it; of several records of a customer the last one counts."""
        count, updated_ms = (np.full(column.size, NO_RECORD, dtype=np.int64) for column in self)
        count[customers] = purchase_counts
        updated_ms[customers] = profile_updated_ms
        return bool((count >= self.purchase_count).all() and (updated_ms >= self.profile_updated_ms).all())


class TopicReader:
    """Committed records of a topic from its beginning, read on at each call."""

    def __init__(self, settings: Settings, topic: str, keep: Callable[[Message], Kept]) -> None:
        """Stand at the beginning."""
        self.settings = settings
        self.topic = topic
        self.keep = keep
        self.next_offset: dict[int, int] = {}
        self._connect()
        self.customers, self.counts, self.profile_times = array("q"), array("q"), array("q")
        self.timestamps = array("q")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Close the client."""
        self.consumer.close()

    def find_partitions(self) -> None:
        """Connect anew, to read on in those, too, that the topic got since: a client learns of them minutes later."""
        self.consumer.close()
        self._connect()

    def _connect(self) -> None:
        self.consumer = clients.reader(self.settings)
        partitions = clients.partitions(self.settings, self.topic)
        self.next_offset = {partition: self.next_offset.get(partition, 0) for partition in partitions}
        self.assignment = [TopicPartition(self.topic, *place) for place in self.next_offset.items()]
        self.consumer.assign(self.assignment)
        self.consumer.pause(self.assignment)  # a client that is not paused fetches ahead, beside the measurement

    def ends(self) -> dict[int, int]:
        """Return where each partition's committed records end."""
        return {
            partition: self.consumer.get_watermark_offsets(TopicPartition(self.topic, partition), timeout=10.0)[1]
            for partition in self.next_offset
        }

    def read_on(self) -> int:
        """Read what has come since the last call, up to where the topic ends now; return how many of it are the load's.

        Raises:
            KafkaException: Kafka does not answer.
            TimeoutError: it hands nothing out although there is more.
        """
        ends, known = self.ends(), len(self.customers)
        if self._is_behind(ends):
            self.consumer.resume(self.assignment)
            answered = time.monotonic()
            while self._is_behind(ends):
                records = self.consumer.consume(BATCH_RECORDS, POLL_SECONDS)
                for record in records:
                    self._take(record)
                if records:
                    answered = time.monotonic()
                elif time.monotonic() > answered + SILENCE_SECONDS:
                    raise TimeoutError(f"{self.topic}: read to {self.next_offset}, and nothing comes up to {ends}")
            self.consumer.pause(self.assignment)
        return len(self.customers) - known

    def _is_behind(self, ends: dict[int, int]) -> bool:
        return any(self.next_offset[partition] < end for partition, end in ends.items())

    def _take(self, record: Message) -> None:
        partition, offset, error = record.partition(), record.offset(), record.error()
        if partition is None or offset is None:
            raise KafkaException(error)
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            # The end lies behind the last record where a transaction's marker stands there.
            self.next_offset[partition] = offset
            return
        self.next_offset[partition] = offset + 1
        if (kept := self.keep(record)) is None:
            return
        customer, count, profile_time = kept
        self.customers.append(customer)
        self.counts.append(count)
        self.profile_times.append(profile_time)
        self.timestamps.append(record.timestamp()[1])


class Input(NamedTuple):
    """Readers of both input topics."""

    purchases: TopicReader
    profiles: TopicReader

    @classmethod
    def of(cls, settings: Settings) -> Input:
        """Stand at the beginning of both topics."""
        return cls(
            TopicReader(settings, settings.purchase_topic, _of_purchase),
            TopicReader(settings, settings.profile_topic, _of_profile),
        )

    def all_purchases(self) -> Purchases:
        """Read on, and return every purchase."""
        self.purchases.read_on()
        return Purchases(np.array(self.purchases.customers), np.array(self.purchases.timestamps))

    def expected(self, customers: int) -> Expected:
        """Read on, and return what the view must come to say of that many customers."""
        self.profiles.read_on()
        counts = np.bincount(self.all_purchases().customer, minlength=customers).astype(np.int64)
        updated_ms = np.zeros(customers, dtype=np.int64)
        np.maximum.at(updated_ms, np.array(self.profiles.customers), np.array(self.profiles.profile_times))
        return Expected(counts, updated_ms)


class Alerts(NamedTuple):
    """Alerts of the load's customers.

    Attributes:
        sent_ms: when the purchase that caused it was made, and so sent, epoch milliseconds.
        published_ms: when the alert was there to be read.
    """

    sent_ms: Numbers
    published_ms: Numbers


def alerts(settings: Settings) -> Alerts:
    """Read the topic of alerts."""
    with TopicReader(settings, settings.alert_topic, _of_alert) as reader:
        reader.read_on()
    return Alerts(np.array(reader.profile_times), np.array(reader.timestamps))


class ViewReader(TopicReader):
    """The view, as a consumer of committed records sees it."""

    def __init__(self, settings: Settings) -> None:
        """Stand at the topic's beginning."""
        super().__init__(settings, settings.view_topic, _of_view)

    def records(self) -> ViewRecords:
        """Return every record read so far."""
        return ViewRecords(np.array(self.customers), np.array(self.counts), np.array(self.timestamps))

    def wait_until_says(self, expected: Expected, seconds: float, check: Callable[[], None]) -> bool:
        """Wait until the view says what is expected; return False when time is over.

        Records are read only while the view does not grow, so that reading takes nothing from the pipeline.
        `check` is called at each look, to raise when waiting is in vain.
        """
        deadline = time.monotonic() + seconds
        looks, before = 0, self.ends()
        examined: dict[int, int] | None = None
        while True:
            check()
            ends = self.ends()
            looks, before = (looks + 1 if ends == before else 0), ends
            is_over = time.monotonic() > deadline
            if ends != examined and (looks >= QUIET_LOOKS or is_over):
                self.read_on()
                examined = ends
                read = (np.array(column) for column in (self.customers, self.counts, self.profile_times))
                if expected.is_said_by(*read):
                    return True
            if is_over:
                return False
            time.sleep(LOOK_SECONDS)
