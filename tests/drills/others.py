"""Everybody else who sends to the drill's topics: the worlds of the model, through a real broker.

Customers with and without profiles in every order, odd ids and texts, totals beyond the range, a megabyte now and then,
every kind of odd and of bad record, keys on several partitions, and headers whose names are not UTF-8. The drill waits
for none of them: `activity verify` recomputes every one.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from itertools import count, cycle
from random import Random

from confluent_kafka import KafkaError, Message
from confluent_kafka.admin import NewPartitions

from benchmarks.environment import ADMIN_SECONDS, set_topic
from benchmarks.load import FLUSH_SECONDS
from customer_activity.demo.traffic import odd, poison
from customer_activity.demo.traffic.poison import Poison
from customer_activity.kafka import clients, topics
from customer_activity.settings import Settings
from support import wire, worlds
from support.records import NOW_MS, Record
from support.wire import WireRecord
from support.worlds import Everything, Sent

DRAWN_A_LOT = 5  # records of any kind, beside one of nearly every kind
LARGE_SHARE = 0.05  # of lots; of the model's batches it is more, and no disk has to keep those
MOST_BYTES = 2 << 20  # that an input topic takes: its limit is as much as a record of a megabyte otherwise
ANY_TIME_MS = str(2**63 - 1)
BY_KEY = -1  # the partition that the client works out
NOT_UTF_8: tuple[tuple[bytes, bytes | None], ...] = ((b"caf\xe9", b"\x00\xff"), (b"\xed\xa0\x80", None))


def lots(settings: Settings, seed: int) -> Iterator[list[Sent]]:
    """Yield lots without end: nearly every kind of record in each, some of any kind, and one odd or bad one in turn."""
    random = Random(f"{seed}/others")
    everything = Everything(random, LARGE_SHARE)
    odd_or_bad: Iterator[odd.Kind | Poison] = cycle((*odd.KINDS, *poison.KINDS))
    for number in count():
        drawn = [sent for _ in range(DRAWN_A_LOT) for sent in worlds.drawn(random)]
        yield [*everything.records(), *drawn, _of_traffic(next(odd_or_bad), f"kind-{number}", settings)]


def _of_traffic(kind: odd.Kind | Poison, identity: str, settings: Settings) -> Sent:
    if isinstance(kind, odd.Kind):
        reason, made = None, odd.record(kind, identity, settings.currency)
    else:
        reason, made = kind.reason, poison.record(kind, identity, settings.currency)
    return Sent(Record(settings.topics[made.role], made.key, made.value, headers=tuple(made.headers)), None, reason)


class Others:
    """Other senders than the load, whose records count, wait, freeze or are refused as those of the model do."""

    def __init__(self, settings: Settings, seed: int) -> None:
        """Connect, and have the input topics take records of a megabyte, and of clocks that are far ahead."""
        self.settings = settings
        self.lots = lots(settings, seed)
        self.failures: list[KafkaError] = []
        self._allow_everything()
        self.connect()

    def connect(self) -> None:
        """Connect, perhaps anew: a client that has known a topic for long learns of added partitions minutes later."""
        self.producer = clients.producer(self.settings, message_max_bytes=MOST_BYTES)
        self.newest = {topic: clients.partitions(self.settings, topic)[-1] for topic in self._inputs()}

    def send(self) -> None:
        """Send a lot, and see it confirmed.

        Raises:
            RuntimeError: Kafka did not confirm it.
        """
        for sent in next(self.lots):
            self._send(sent)
        unconfirmed = self.producer.flush(FLUSH_SECONDS)
        if unconfirmed or self.failures:
            raise RuntimeError(f"Kafka did not confirm others' records: {unconfirmed} open, {self.failures[:1]}")

    def add_partitions(self) -> None:
        """Give both input topics one more partition; keys that the load sends are on another one from here on."""
        admin = clients.admin(self.settings)
        wanted = [NewPartitions(topic, newest + 2) for topic, newest in self.newest.items()]
        for answer in admin.create_partitions(wanted).values():
            answer.result(ADMIN_SECONDS)
        topics.wait_until_usable(admin, list(self.newest))
        self.connect()

    def _send(self, sent: Sent) -> None:
        record = sent.record
        newest = self.newest[record.topic]
        # The worlds' last partition is the one that is added.
        partition = newest if sent.partition == worlds.LAST_PARTITION else sent.partition
        if record.headers:
            self._send_with_headers(record, partition)
            return
        self.producer.produce(
            record.topic,
            record.value,
            record.key,
            partition=BY_KEY if partition is None else partition,
            timestamp=_timestamp(record),
            on_delivery=self._report,
        )

    def _send_with_headers(self, record: Record, partition: int | None) -> None:
        """Send a record as no client of ours could: some names of its headers are not UTF-8."""
        if partition is None:
            partition = zlib.crc32(record.key or b"") % (self.newest[record.topic] + 1)
        headers = (*((name.encode(), value) for name, value in record.headers), *NOT_UTF_8)
        made = WireRecord(record.key, record.value, _timestamp(record), headers)
        wire.produce(self.settings, record.topic, partition, made)

    def _report(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.failures.append(error)

    def _inputs(self) -> tuple[str, str]:
        return self.settings.purchase_topic, self.settings.profile_topic

    def _allow_everything(self) -> None:
        for topic in self._inputs():
            wanted = {"message.timestamp.after.max.ms": ANY_TIME_MS, "max.message.bytes": str(MOST_BYTES)}
            set_topic(self.settings, topic, wanted)


def _timestamp(record: Record) -> int:
    """Return the time at which a record is sent: now, but where its sender's clock is ahead."""
    return time.time_ns() // 1_000_000 if record.timestamp_ms == NOW_MS else record.timestamp_ms
