"""Send records to Kafka: idempotent, at a given rate or as fast as the broker takes them, never losing one silently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from time import monotonic

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from customer_activity import catalog
from customer_activity.demo.traffic.record import Record
from customer_activity.errors import BrokerUnavailable
from customer_activity.kafka import clients
from customer_activity.settings import Settings

CHUNK_RECORDS = 1_000  # between two looks at the clock, the delivery reports and the wish to stop
CHUNKS_PER_SECOND = 20  # with a rate, so that 100 records/s do not come in one lump of ten seconds
WAIT_SECONDS = 0.1  # the longest that a wish to stop goes unnoticed
DELIVERY_TIMEOUT_MS = 60_000  # a broker that comes back within a minute has missed nothing

Progress = Callable[[int], None]


@dataclass
class Tally:
    """What was sent: records by topic role and kind, and how long it took."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: float = 0.0
    is_interrupted: bool = False

    @property
    def records(self) -> int:
        """All records, of every kind."""
        return self.counts.total()


def send(
    records: Iterable[Record],
    settings: Settings,
    *,
    rate: float | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
    progress: Progress = lambda _: None,
    roles: Sequence[str] = (catalog.PURCHASES_ROLE, catalog.PROFILES_ROLE),
) -> Tally:
    """Send all records, or those until `is_stopping`, and return when Kafka has confirmed every one of them.

    Records of one key keep their order. `progress` is called with the number of records sent so far; `roles` are those
    of the topics that records are for.

    Raises:
        BrokerUnavailable: Kafka does not answer, or did not confirm a record.
        KafkaRefused: it refuses this client, or lets it not write.
        TopicMismatch: a topic does not exist.
    """
    topics = {role: settings.topics[role] for role in roles}
    for topic in topics.values():
        clients.partitions(settings, topic)
    failures: list[KafkaError] = []

    def report(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = clients.producer(
        settings,
        linger_ms=20,
        batch_num_messages=10_000,
        batch_size=1_000_000,
        queue_buffering_max_messages=200_000,
        message_timeout_ms=DELIVERY_TIMEOUT_MS,
        delivery_report_only_error=True,
    )
    tally = Tally()
    started = monotonic()
    try:
        for chunk in _chunks(records, rate):
            _enqueue(producer, chunk, topics, report)
            tally.counts.update(map(itemgetter(0, 4), chunk))
            progress(tally.records)
            _serve(producer, started + tally.records / rate if rate else 0.0, is_stopping)
            if failures or is_stopping():
                tally.is_interrupted = True
                break
        while not failures and producer.flush(WAIT_SECONDS):
            pass
    except (KafkaException, SystemError) as error:
        raise clients.unavailable(settings, _fault(error), " or ".join(topics.values())) from None
    if failures:
        producer.purge()
        if failures[0].code() in clients.UNAUTHORIZED:
            raise clients.unavailable(settings, KafkaException(failures[0]), " or ".join(topics.values()))
        raise BrokerUnavailable(
            f"Kafka at {settings.kafka_bootstrap_servers} did not confirm every record ({failures[0].str()})",
            remedy="see `activity broker status`; then produce again with the same seed: purchases count once",
        )
    tally.seconds = monotonic() - started
    return tally


def _fault(error: KafkaException | SystemError) -> KafkaException:
    """Return what the client means: a fatal fault may come up while it serves delivery reports, as another's cause."""
    fault = error if isinstance(error, KafkaException) else error.__cause__
    if not isinstance(fault, KafkaException):
        raise error
    return fault


def _chunks(records: Iterable[Record], rate: float | None) -> Iterator[list[Record]]:
    stream = iter(records)
    size = CHUNK_RECORDS if rate is None else min(CHUNK_RECORDS, max(1, round(rate / CHUNKS_PER_SECOND)))
    while chunk := list(islice(stream, size)):
        yield chunk


def _enqueue(
    producer: Producer,
    chunk: list[Record],
    topics: dict[str, str],
    report: Callable[[KafkaError | None, Message], None],
) -> None:
    """Hand records to the client; while its queue is full, wait for the broker."""
    produce = producer.produce
    for role, key, value, headers, _ in chunk:
        while True:
            try:
                if headers:
                    produce(topics[role], value, key, on_delivery=report, headers=list(headers))
                else:
                    produce(topics[role], value, key, on_delivery=report)
            except BufferError:
                producer.poll(WAIT_SECONDS)
            else:
                break


def _serve(producer: Producer, due: float, is_stopping: Callable[[], bool]) -> None:
    """Serve delivery reports, and go on doing so until `due` on the monotonic clock."""
    producer.poll(0)
    while (left := due - monotonic()) > 0 and not is_stopping():
        producer.poll(min(left, WAIT_SECONDS))
