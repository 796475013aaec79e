"""Kafka client configuration, topic metadata and offsets: the one place that builds a Kafka client.

Who signs in and whom it trusts is in the file that `ACTIVITY_KAFKA_CONFIG` names (client_properties.py). A client that
is turned away goes on trying by itself, and its call only runs out of time: faults.py notes what it was told.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, ConfigResource
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from customer_activity.errors import BrokerUnavailable, KafkaRefused, SettingsError, TopicMismatch
from customer_activity.kafka import client_properties, faults
from customer_activity.settings import Settings

CREATE_TOPICS = "`activity broker topics` creates the topics of infra/kafka/topics.yaml"
SILENCE_SECONDS = 60.0  # longer than any election
# The broker tells a reader of the end of a partition when it has waited so long for more: half a second by default.
END_WAIT_MS = 10
METADATA_TIMEOUT_SECONDS = 10.0  # a healthy broker answers in milliseconds; ten seconds covers its election
ASK_SECONDS = 0.5  # before the first look whether the client was turned away

Client = TypeVar("Client", AdminClient, Producer, Consumer)
# Callers know one module of Kafka's.
UNAUTHORIZED = faults.UNAUTHORIZED
refuse_fault, refused, unavailable = faults.refuse_fault, faults.refused, faults.unavailable


def _is_electing(error: BaseException) -> bool:
    electing = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
    return isinstance(error, KafkaException) and error.args[0].code() in electing


# A partition that was made just now, or whose broker was just restarted, has its leader in a moment.
AGAIN = Retrying(
    retry=retry_if_exception(_is_electing),
    stop=stop_after_delay(METADATA_TIMEOUT_SECONDS),
    wait=wait_fixed(0.1),
    reraise=True,
)


_brought: dict[Path | None, client_properties.Clients] = {}  # what files say that are on the driver's machine


def bring(settings: Settings, security: client_properties.Clients) -> None:
    """Have clients of this process be told what a properties file says, which need not be on this machine."""
    _brought[settings.kafka_config] = security


def security(settings: Settings) -> client_properties.Clients:
    """Read the properties file: what each client is told.

    Raises:
        SettingsError: the file cannot be read, or says what cannot be.
    """
    if settings.kafka_config in _brought:
        return _brought[settings.kafka_config]
    if settings.kafka_config is None:
        return client_properties.Clients({}, {})
    return client_properties.of_both(client_properties.read(settings.kafka_config), settings.kafka_bootstrap_servers)


def client_config(settings: Settings, **extra: Any) -> dict[str, Any]:
    """Configuration for confluent-kafka; `extra` names use `_` for `.`."""
    own = {name.replace("_", "."): value for name, value in extra.items()}
    return {
        "bootstrap.servers": settings.kafka_bootstrap_servers,
        "log_level": 2,
        **security(settings).librdkafka,
        **own,
    }


def spark_options(settings: Settings) -> dict[str, str]:
    """Options for Spark's Kafka source."""
    given = {f"kafka.{name}": value for name, value in security(settings).java.items()}
    return {"kafka.bootstrap.servers": settings.kafka_bootstrap_servers, **given}


def admin(settings: Settings) -> AdminClient:
    """Return an admin client."""
    return _made(settings, AdminClient, client_config(settings))


def producer(settings: Settings, **extra: Any) -> Producer:
    """Return an idempotent producer that puts a key where a Java producer would (murmur2)."""
    return _made(
        settings,
        Producer,
        client_config(settings, enable_idempotence=True, partitioner="murmur2_random", compression_type="lz4", **extra),
    )


def reader_config(settings: Settings, **extra: Any) -> dict[str, Any]:
    """Configuration of a consumer for assigned partitions that sees committed records only."""
    return client_config(
        settings,
        group_id="activity-reader",  # required by the client; no group is joined, nothing is committed
        isolation_level="read_committed",
        enable_auto_commit=False,
        enable_partition_eof=True,
        auto_offset_reset="error",  # an offset that is gone is an error, never a silent jump
        # Without it a damaged record is handed out as it is. With it the client skips the damaged batch and says so:
        # a reader has to end at that error.
        check_crcs=True,
        **extra,
    )


def reader(settings: Settings, **extra: Any) -> Consumer:
    """Return a consumer for assigned partitions that sees committed records only and never commits offsets."""
    return _made(settings, Consumer, reader_config(settings, **extra))


def uncommitted_reader(settings: Settings, **extra: Any) -> Consumer:
    """Return one that sees the records of open and of aborted transactions, too."""
    return _made(settings, Consumer, reader_config(settings, **extra) | {"isolation.level": "read_uncommitted"})


@contextmanager
def explained(settings: Settings, what: str = "") -> Iterator[None]:
    """Turn what a client raises, when it is asked for something, into errors of ours.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        KafkaRefused: it refuses this client.
    """
    try:
        yield
    except KafkaException as error:
        raise unavailable(settings, error, what) from None


def _made(settings: Settings, kind: Callable[[dict[str, Any]], Client], config: dict[str, Any]) -> Client:
    """Make a client; what it finds wrong with its configuration is told without the value.

    Raises:
        SettingsError: a property that it does not know, a value that it cannot take, a key or certificate that it
            cannot read.
    """
    try:
        return kind({"error_cb": partial(faults.note, settings), **config})
    except KafkaException as error:
        reason = re.sub(r'(?<=[Vv]alue )"[^"]*"', "given", error.args[0].str())
        raise SettingsError(
            f"{client_properties.VARIABLE}: {reason}", remedy="docs/OPERATIONS.md lists what the file may say"
        ) from None


def metadata(
    settings: Settings, topic: str | None = None, *, seconds: float = METADATA_TIMEOUT_SECONDS
) -> ClusterMetadata:
    """Ask for what the cluster tells of itself and of a topic, or of all that this user may see.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        KafkaRefused: it refuses this client; told at once, and not when the time is up.
    """
    client = admin(settings)
    deadline = time.monotonic() + seconds
    patience = ASK_SECONDS
    while True:
        left = max(deadline - time.monotonic(), 0.0)
        try:
            answer = client.list_topics(topic, timeout=min(patience, left) or ASK_SECONDS)
        except KafkaException as error:
            client.poll(0)  # has it say what it was told
            if left == 0.0 or faults.is_turned_away(settings):
                raise unavailable(settings, error) from None
            patience *= 2  # a request that runs out of time is given up, and a large cluster is far away
        else:
            faults.forget(settings)
            return answer


def is_answering(settings: Settings) -> bool:
    """Whether a Kafka broker answers at the bootstrap address within a second, and lets this client in."""
    try:
        return bool(metadata(settings, seconds=1.0).brokers)
    except (BrokerUnavailable, KafkaRefused):
        return False


def is_on_this_machine(settings: Settings) -> bool:
    """Whether the bootstrap address is one on loopback, rather than a cluster's."""
    host, _, port = settings.kafka_bootstrap_servers.rpartition(":")
    return is_loopback(host) and port.isdecimal()


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, as a Java broker can listen on it: by IPv4."""
    if host == "localhost":
        return True
    try:
        return ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        return False


def topic_setting(settings: Settings, topic: str, name: str) -> str:
    """Return the value that a topic has for a setting of Kafka's, its own or the broker's.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    client = admin(settings)  # held until the answer is there: it would be given up with the client
    with explained(settings, f"the settings of topic {topic}"):
        answer = client.describe_configs([resource], request_timeout=METADATA_TIMEOUT_SECONDS)
        return str(answer[resource].result()[name].value)


def topic_ids(settings: Settings, topics: Sequence[str]) -> dict[str, str]:
    """Return the id that Kafka gave each topic when it was made: one that was deleted and created has another.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        TopicMismatch: there is no such topic.
    """
    client = admin(settings)
    answers = client.describe_topics(TopicCollection(list(topics)), request_timeout=METADATA_TIMEOUT_SECONDS)
    try:
        return {name: str(answer.result().topic_id) for name, answer in answers.items()}
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise TopicMismatch(f"topics {', '.join(topics)}: {error.args[0].str()}", remedy=CREATE_TOPICS) from None
        raise unavailable(settings, error) from None


def partitions(settings: Settings, topic: str) -> list[int]:
    """List a topic's partitions.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        KafkaRefused: it refuses this client, or does not show it the topic.
        TopicMismatch: there is no such topic.
    """
    found = metadata(settings, topic).topics[topic]
    if found.error is not None and found.error.code() in UNAUTHORIZED:
        raise refused(settings, found.error.str(), f"topic {topic}", is_signed_in=True)
    if found.error is not None:
        raise TopicMismatch(f"topic {topic}: {found.error.str()}", remedy=CREATE_TOPICS)
    return sorted(found.partitions)


def offset_range(settings: Settings, topic: str) -> dict[int, tuple[int, int]]:
    """Begin and end offset (end exclusive) of each partition of a topic.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        TopicMismatch: there is no such topic.
    """
    with closing(reader(settings)) as consumer:
        return ranges_seen_by(consumer, settings, topic)


def find_leaders(consumer: Consumer, settings: Settings, topics: Iterable[str]) -> None:
    """Have a client ask about topics before it is assigned to them.

    One that has not may find the leaders only when it looks for news of all topics: once a second.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    with explained(settings):
        try:
            for topic in topics:
                AGAIN(consumer.list_topics, topic, timeout=METADATA_TIMEOUT_SECONDS)
        except KafkaException:
            consumer.poll(0)  # has it say what it was told
            raise


def ranges_seen_by(consumer: Consumer, settings: Settings, topic: str) -> dict[int, tuple[int, int]]:
    """Return what `offset_range` returns, by a client that reads the topic afterwards: it knows the leaders then."""
    with explained(settings):
        places = (TopicPartition(topic, partition) for partition in partitions(settings, topic))
        return {
            place.partition: AGAIN(consumer.get_watermark_offsets, place, timeout=METADATA_TIMEOUT_SECONDS)
            for place in places
        }


def last_values(settings: Settings, topic: str) -> dict[bytes, bytes | None]:
    """Return the last committed value of each key of a topic, as `committed` reads it."""
    return dict(committed(settings, topic))


def committed(settings: Settings, topic: str) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield key and value of each committed record of a topic, a partition's in their order.

    Raises:
        BrokerUnavailable: Kafka does not answer, or falls silent before the end: half of a topic is no answer.
        TopicMismatch: there is no such topic.
    """
    with closing(reader(settings, fetch_wait_max_ms=END_WAIT_MS)) as consumer:
        for partition, (low, high) in ranges_seen_by(consumer, settings, topic).items():
            if low < high:
                for message in messages(consumer, settings, TopicPartition(topic, partition, low)):
                    yield message.key() or b"", message.value()


def messages(consumer: Consumer, settings: Settings, place: TopicPartition) -> Iterator[Message]:
    """Yield the committed records of a partition from an offset on, up to its end.

    Raises:
        BrokerUnavailable: Kafka does not answer, or falls silent before the end.
    """
    consumer.assign([place])
    while True:
        message = consumer.poll(SILENCE_SECONDS)
        fault = KafkaError(KafkaError._TIMED_OUT) if message is None else message.error()  # noqa: SLF001 - the client has no public name for it
        if fault is not None and fault.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            return
        if message is None or fault is not None:
            raise unavailable(settings, KafkaException(fault), f"topic {place.topic}")
        yield message
