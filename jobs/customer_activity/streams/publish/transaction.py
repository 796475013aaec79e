"""The transactional publisher: records and their progress marker go out together or not at all.

1. What the progress topic has is looked at: where another deployment publishes there, or a resync is under way, nothing
   is begun.
2. `init_transactions` fences the former holder of the transactional id: a zombie's next call fails.
3. The last marker is read back (read_committed): it names the version of the table that is already out.
4. Each part of a batch: begin, records, marker, commit. After a crash between commit and Spark's own checkpoint the
   repeated batch meets a marker that covers what is out, and goes on behind it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Producer

from customer_activity.contracts.trace import Headers
from customer_activity.engine.stream import Record, Traced
from customer_activity.errors import TerminalError, TransientError
from customer_activity.kafka import clients, settled
from customer_activity.kafka import marker as markers
from customer_activity.kafka.marker import BEFORE_THE_FIRST, Marker, Outlet
from customer_activity.settings import Settings
from customer_activity.streams.publish.deployments import refuse_others, refuse_resyncing, refuse_unmarked

TRANSACTION_TIMEOUT_SECONDS = 60.0  # the broker aborts what a dead publisher left open after this
BATCH_BYTES = 1_000_000  # the client's own limit of a batch
# What a batch of one record has beside its key and value: 61 bytes of the batch and some 30 of the record at most
# (kafka.apache.org, message format).
FRAME_BYTES = 100
WAITING_RECORDS = 100_000  # half a kilobyte each: a large part's need not all be in memory a second time
WAITING_KILOBYTES = 64 << 10  # and not more than this where they are larger
FULL_SECONDS = 0.01  # until some of them are out
FLUSH_SECONDS = 1.0

FENCED = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)  # noqa: SLF001 - the client has no public name for it
# The broker has ended the transaction and forgotten that it was begun.
ENDED = (
    *FENCED,
    KafkaError.INVALID_TXN_STATE,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
    KafkaError.TRANSACTION_ABORTABLE,
)


class Publisher:
    """One producer with one transactional id, and the marker of what it has published.

    Attributes:
        marker: how far the table is out; None where that is not known.
        max_bytes: what the key and the value of a record may have together for each topic to take it.
    """

    def __init__(
        self,
        settings: Settings,
        ours: Sequence[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        outlet: Outlet | None = None,
    ) -> None:
        """Fence any predecessor and read the marker.

        Args:
            settings: which topics.
            ours: ids of this lake's table that is published, the live one's first and then those whose place it has
                taken; None: any former publisher is succeeded.
            clock: counts seconds.
            outlet: where it publishes; the view's when not given.

        Raises:
            BrokerUnavailable: Kafka does not answer.
            TerminalError: another deployment publishes there, or a resync ended half way.
            TransientError: another producer's open transaction hides what the topics have.
        """
        self.settings = settings
        self.clock = clock
        self.outlet = outlet = markers.of_view(settings) if outlet is None else outlet
        self.identity = outlet.identity
        self._again = "run it again: it sends what differs by then"
        if ours is not None:  # before fencing: another deployment, or a resync, goes on undisturbed
            self._again = "start again: it goes on behind the last marker"
            there = markers.readable(settings)
            refuse_others(settings, outlet, there, ours)
            refuse_resyncing(outlet, there)
        limits = (clients.topic_setting(settings, topic, "max.message.bytes") for topic in outlet.topics)
        self.max_bytes = min(int(limit) for limit in limits) - FRAME_BYTES
        self.producer: Producer = clients.producer(
            settings,
            transactional_id=self.identity,
            transaction_timeout_ms=int(TRANSACTION_TIMEOUT_SECONDS * 1000),
            linger_ms=5,
            message_max_bytes=self.max_bytes + FRAME_BYTES,
            batch_size=min(BATCH_BYTES, self.max_bytes),  # the topic's limit is one of batches
            queue_buffering_max_messages=WAITING_RECORDS,
            queue_buffering_max_kbytes=max(WAITING_KILOBYTES, 2 * self.max_bytes >> 10),
        )
        try:
            self.producer.init_transactions(TRANSACTION_TIMEOUT_SECONDS)
        except KafkaException as error:
            raise clients.unavailable(settings, error) from None
        # What a predecessor left open has ended now; what is open still is another producer's.
        found = markers.read(settings)
        # A pipeline that was given another name goes on from its marker under the one before.
        self.succeeded = outlet.of_other_names(found)
        if ours is None and self.succeeded:  # another pipeline's may be at work, and would undo what a resync sends
            _fence(settings, self.succeeded)
            found = markers.read(settings)
        if ours is not None:
            refuse_others(settings, outlet, found, ours)
            refuse_resyncing(outlet, found)
            if not self.succeeded and self.identity not in found:
                refuse_unmarked(settings, outlet)
        self.marker = found.get(self.identity, next(iter(self.succeeded.values()), None))
        if self.marker is None and ours:
            # Before anything is out: a deployment that comes later sees whose the topics are.
            self.publish([], Marker(ours[0], BEFORE_THE_FIRST))

    def on_topic(self, topic: str = "") -> dict[bytes, bytes | None]:
        """Return the last value of each key of a topic; of the first one when none is given.

        Raises:
            BrokerUnavailable: Kafka does not answer.
            TransientError: another producer's open transaction hides some.
        """
        return settled.last_values(self.settings, topic or self.outlet.topics[0])

    def publish(self, records: Iterable[Record | Traced], marker: Marker | None) -> int:
        """Send records and the marker in one transaction; return how many records went out.

        A record is a key and a value (null deletes), and the topic after them where that is not the first one.

        Raises:
            TerminalError: another publisher took over, or Kafka refuses the records for good.
            TransientError: the transaction was aborted and may be tried again.
        """
        sent = 0
        if marker is not None and not marker.topics and not self.outlet.is_of_view:
            marker = marker._replace(topics=self.outlet.topics)
        began = self.clock()
        try:
            self.producer.begin_transaction()
            first = self.outlet.topics[0]
            for record in records:
                if isinstance(record, Traced):
                    self._produce(first, *record)
                else:
                    key, value, *topic = record
                    self._produce(topic[0] if topic else first, key, value)
                sent += 1
            if marker is not None:
                self._produce(self.settings.progress_topic, self.identity.encode(), marker.text())
                for former in self.succeeded:
                    self._produce(self.settings.progress_topic, former.encode(), None)
            self.producer.commit_transaction(TRANSACTION_TIMEOUT_SECONDS)
        except KafkaException as error:
            raise self._fault(error, self.clock() - began) from None
        self.marker = marker
        if marker is not None:
            self.succeeded = {}
        return sent

    def _produce(self, topic: str, key: bytes, value: bytes | None, headers: Headers = ()) -> None:
        while True:
            try:
                self.producer.produce(topic, key=key, value=value, headers=[*headers] or None)
            except BufferError:  # the client's queue is full: let it send
                self.producer.poll(FULL_SECONDS)
            else:
                return

    def _fault(self, error: KafkaException, seconds: float) -> TerminalError | TransientError:
        fault: KafkaError = error.args[0]
        where = f"publishing to {', '.join(self.outlet.topics)}: {fault.str()}"
        if seconds >= TRANSACTION_TIMEOUT_SECONDS and fault.code() in ENDED:
            return TransientError(
                f"{where}: the transaction took {seconds:.0f} s, and the broker ends one after "
                f"{TRANSACTION_TIMEOUT_SECONDS:.0f} s; nothing of this part is out",
                remedy=f"{self._again}; where this comes again, find out what holds the broker or this machine up",
            )
        if fault.code() in FENCED:
            return TerminalError(
                where, remedy="another publisher took over with the same transactional id: this one must stay stopped"
            )
        if fault.txn_requires_abort():
            # Where no topic could be written to, the broker knows of no transaction that would be aborted.
            with suppress(KafkaException):
                self.producer.abort_transaction(TRANSACTION_TIMEOUT_SECONDS)
        if fault.fatal() or fault.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return TerminalError(
                where, remedy=f"correct the topic's rights; nothing of this part is out; {self._again}"
            )
        # A limit of the topic that was lowered since the start is read again with the next one.
        return TransientError(where, remedy=self._again)

    def __enter__(self) -> Self:
        """Return itself; the producer is open from construction on."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give the client's threads a moment to end; every part has been committed or aborted by now."""
        with suppress(KafkaException):  # a fatal fault is told again here, and was told better
            self.producer.flush(FLUSH_SECONDS)


def _fence(settings: Settings, identities: Iterable[str]) -> None:
    """Have publishers of other names end with their next transaction: what they have open is aborted."""
    for identity in identities:
        try:
            clients.producer(settings, transactional_id=identity).init_transactions(TRANSACTION_TIMEOUT_SECONDS)
        except KafkaException as error:
            raise clients.unavailable(settings, error) from None
