"""The transactional publisher: a batch of records and its progress marker go out together or not at all.

1. `init_transactions` fences whoever held the transactional id before: a zombie's next call fails.
2. The last marker is read back (read_committed): it names the gold version that is already out.
3. Each batch: begin, records, marker, commit. After a crash between commit and Spark's own checkpoint the repeated
   batch meets a marker that covers it and sends nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from customer_activity import kafka
from customer_activity.errors import TerminalError, TransientError
from customer_activity.settings import Settings

TRANSACTION_TIMEOUT_SECONDS = 60.0  # the broker aborts what a dead publisher left open after this
BATCH_BYTES = 1_000_000  # the client's own limit of a batch
# What a batch of one record has beside its key and value: 61 bytes of the batch and some 30 of the record at most
# (kafka.apache.org, message format).
FRAME_BYTES = 100
WAITING_RECORDS = 100_000  # half a kilobyte each: a large batch's need not all be in memory a second time
FULL_SECONDS = 0.01  # until some of them are out
FLUSH_SECONDS = 1.0


class Marker(NamedTuple):
    """How far gold is published.

    Attributes:
        table_id: the gold table's id; a rebuilt table has another, and its versions count anew.
        version: the newest gold version whose changes are all on the topic.
    """

    table_id: str
    version: int


def identity(settings: Settings) -> str:
    """Return the publisher's transactional id, which is also the key of its markers."""
    return f"customer-activity-publish-{settings.view_topic}"


class Publisher:
    """One producer with one transactional id, and the marker of what it has published.

    Attributes:
        marker: how far gold is out; None before the first batch.
        max_bytes: what the key and the value of a record may have together for the topic to take it.
    """

    def __init__(self, settings: Settings) -> None:
        """Fence any predecessor and read the marker.

        Raises:
            BrokerUnavailable: Kafka does not answer.
        """
        self.settings = settings
        self.identity = identity(settings)
        self.max_bytes = int(kafka.topic_setting(settings, settings.view_topic, "max.message.bytes")) - FRAME_BYTES
        self.producer: Producer = kafka.producer(
            settings,
            transactional_id=self.identity,
            transaction_timeout_ms=int(TRANSACTION_TIMEOUT_SECONDS * 1000),
            linger_ms=5,
            message_max_bytes=self.max_bytes + FRAME_BYTES,
            batch_size=min(BATCH_BYTES, self.max_bytes),  # the topic's limit is one of batches
            queue_buffering_max_messages=WAITING_RECORDS,
        )
        try:
            self.producer.init_transactions(TRANSACTION_TIMEOUT_SECONDS)
        except KafkaException as error:
            raise kafka.unavailable(settings, error) from None
        self.marker = self._read_marker()

    def _read_marker(self) -> Marker | None:
        value = kafka.last_values(self.settings, self.settings.progress_topic).get(self.identity.encode())
        return Marker(**json.loads(value)) if value is not None else None

    def on_topic(self) -> dict[bytes, bytes | None]:
        """Return the last value of each key of the view topic.

        Raises:
            BrokerUnavailable: Kafka does not answer.
        """
        return kafka.last_values(self.settings, self.settings.view_topic)

    def publish(self, records: Iterable[tuple[bytes, bytes | None]], marker: Marker) -> int:
        """Send key-value pairs (null deletes) and the marker in one transaction; return how many records went out.

        Raises:
            TerminalError: another publisher took over, or Kafka refuses the records for good.
            TransientError: the transaction was aborted and may be tried again.
        """
        sent = 0
        try:
            self.producer.begin_transaction()
            for key, value in records:
                self._produce(self.settings.view_topic, key, value)
                sent += 1
            self._produce(self.settings.progress_topic, self.identity.encode(), json.dumps(marker._asdict()).encode())
            self.producer.commit_transaction(TRANSACTION_TIMEOUT_SECONDS)
        except KafkaException as error:
            raise self._fault(error) from None
        self.marker = marker
        return sent

    def _produce(self, topic: str, key: bytes, value: bytes | None) -> None:
        while True:
            try:
                self.producer.produce(topic, key=key, value=value)
            except BufferError:  # the client's queue is full: let it send
                self.producer.poll(FULL_SECONDS)
            else:
                return

    def _fault(self, error: KafkaException) -> TerminalError | TransientError:
        fault: KafkaError = error.args[0]
        where = f"publishing to {self.settings.view_topic}: {fault.str()}"
        if fault.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED):  # noqa: SLF001
            return TerminalError(
                where, remedy="another publisher took over with the same transactional id: this one must stay stopped"
            )
        if fault.txn_requires_abort():
            self.producer.abort_transaction(TRANSACTION_TIMEOUT_SECONDS)
        if fault.fatal() or fault.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return TerminalError(
                where, remedy="correct the topic's rights, then start again: nothing of the batch is out"
            )
        # A limit of the topic that was lowered since the start is read anew with the next one.
        return TransientError(where, remedy="start again: nothing of the batch is out")

    def __enter__(self) -> Self:
        """Return itself; the producer is open from construction on."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give the client's threads a moment to end; every batch has been committed or aborted by now."""
        self.producer.flush(FLUSH_SECONDS)
