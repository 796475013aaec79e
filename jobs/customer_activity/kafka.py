"""Kafka client configuration, topic metadata and offsets: the one place that builds a Kafka client.

The file named by `ACTIVITY_KAFKA_CONFIG` is a Java properties file. librdkafka and the Java client share most names;
those that only one of them knows go to that one alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from customer_activity.errors import BrokerUnavailable, SettingsError, TopicMismatch
from customer_activity.settings import Settings

CREATE_TOPICS = "`activity broker start` creates the topics of infra/kafka/topics.yaml"
SILENCE_SECONDS = 60.0  # longer than any election
METADATA_TIMEOUT_SECONDS = 10.0  # a healthy broker answers in milliseconds; ten seconds covers its election

JAVA_ONLY = ("sasl.jaas.config", "ssl.truststore.", "ssl.keystore.type", "sasl.login.", "sasl.client.callback")
LIBRDKAFKA_ONLY = ("sasl.username", "sasl.password", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location")


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


def security(settings: Settings) -> dict[str, str]:
    """Read the properties file.

    Raises:
        SettingsError: the file cannot be read, or a line is not `name=value`.
    """
    if settings.kafka_config is None:
        return {}
    try:
        lines = settings.kafka_config.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SettingsError(
            f"ACTIVITY_KAFKA_CONFIG: {error.strerror}: {settings.kafka_config}",
            remedy="name a readable properties file",
        ) from None
    properties = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, separator, value = line.partition("=")
        if not separator:  # the line itself may hold a secret: name only its number
            raise SettingsError(
                f"ACTIVITY_KAFKA_CONFIG: line {number} is not name=value", remedy=f"correct {settings.kafka_config}"
            )
        properties[name.strip()] = value.strip()
    return properties


def client_config(settings: Settings, **extra: Any) -> dict[str, Any]:
    """Configuration for confluent-kafka; `extra` names use `_` for `.`."""
    shared = {k: v for k, v in security(settings).items() if not k.startswith(JAVA_ONLY)}
    own = {name.replace("_", "."): value for name, value in extra.items()}
    return {"bootstrap.servers": settings.kafka_bootstrap_servers, "log_level": 2, **shared, **own}


def spark_options(settings: Settings) -> dict[str, str]:
    """Options for Spark's Kafka source."""
    shared = {f"kafka.{k}": v for k, v in security(settings).items() if not k.startswith(LIBRDKAFKA_ONLY)}
    return {"kafka.bootstrap.servers": settings.kafka_bootstrap_servers, **shared}


def admin(settings: Settings) -> AdminClient:
    """Return an admin client."""
    return AdminClient(client_config(settings))


def producer(settings: Settings, **extra: Any) -> Producer:
    """Return an idempotent producer that puts a key where a Java producer would (murmur2)."""
    return Producer(
        client_config(settings, enable_idempotence=True, partitioner="murmur2_random", compression_type="lz4", **extra)
    )


def reader(settings: Settings) -> Consumer:
    """Return a consumer for assigned partitions that sees committed records only and never commits offsets."""
    return Consumer(
        client_config(
            settings,
            group_id="activity-reader",  # required by the client; no group is joined, nothing is committed
            isolation_level="read_committed",
            enable_auto_commit=False,
            enable_partition_eof=True,
            auto_offset_reset="error",  # an offset that is gone is an error, never a silent jump
        )
    )


def unavailable(settings: Settings, error: KafkaException) -> BrokerUnavailable:
    """Say that the broker does not answer."""
    reason = error.args[0].str() if error.args and isinstance(error.args[0], KafkaError) else str(error)
    return BrokerUnavailable(
        f"no answer from Kafka at {settings.kafka_bootstrap_servers} ({reason})",
        remedy="start it (`activity broker start`) or correct ACTIVITY_KAFKA_BOOTSTRAP_SERVERS",
    )


def topic_setting(settings: Settings, topic: str, name: str) -> str:
    """Return the value that a topic has for a setting of Kafka's, its own or the broker's.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    client = admin(settings)  # held until the answer is there: it would be given up with the client
    try:
        answer = client.describe_configs([resource], request_timeout=METADATA_TIMEOUT_SECONDS)
        return str(answer[resource].result()[name].value)
    except KafkaException as error:
        raise unavailable(settings, error) from None


def topic_ids(settings: Settings, topics: Sequence[str]) -> dict[str, str]:
    """Return the id that Kafka gave each topic when it was made: one of the same name that is made anew has another.

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
        TopicMismatch: there is no such topic.
    """
    try:
        metadata = admin(settings).list_topics(topic, timeout=METADATA_TIMEOUT_SECONDS).topics[topic]
    except KafkaException as error:
        raise unavailable(settings, error) from None
    if metadata.error is not None:
        raise TopicMismatch(
            f"topic {topic}: {metadata.error.str()}",
            remedy=CREATE_TOPICS,
        )
    return sorted(metadata.partitions)


def offset_range(settings: Settings, topic: str) -> dict[int, tuple[int, int]]:
    """Begin and end offset (end exclusive) of each partition of a topic.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        TopicMismatch: there is no such topic.
    """
    consumer = reader(settings)
    try:
        ranges = {}
        for partition in partitions(settings, topic):
            place = TopicPartition(topic, partition)
            ranges[partition] = AGAIN(consumer.get_watermark_offsets, place, timeout=METADATA_TIMEOUT_SECONDS)
    except KafkaException as error:
        raise unavailable(settings, error) from None
    else:
        return ranges
    finally:
        consumer.close()


def last_values(settings: Settings, topic: str) -> dict[bytes, bytes | None]:
    """Return the last committed value of each key of a topic.

    Raises:
        BrokerUnavailable: Kafka does not answer, or falls silent before the end: half of a topic is no answer.
        TopicMismatch: there is no such topic.
    """
    consumer = reader(settings)
    values: dict[bytes, bytes | None] = {}
    try:
        for partition, (low, high) in offset_range(settings, topic).items():
            if low == high:
                continue
            consumer.assign([TopicPartition(topic, partition, low)])
            while True:
                message = consumer.poll(SILENCE_SECONDS)
                fault = KafkaError(KafkaError._TIMED_OUT) if message is None else message.error()  # noqa: SLF001 - the client has no public name for it
                if fault is not None and fault.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                    break
                if message is None or fault is not None:
                    raise unavailable(settings, KafkaException(fault))
                values[message.key() or b""] = message.value()
    finally:
        consumer.close()
    return values
