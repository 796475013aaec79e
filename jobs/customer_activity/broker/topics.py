"""Topics as `infra/kafka/topics.yaml` says: create what is missing, refuse what differs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from customer_activity import kafka
from customer_activity.errors import TopicMismatch
from customer_activity.settings import PROJECT, Settings

TOPICS_FILE = PROJECT / "infra" / "kafka" / "topics.yaml"
ADMIN_TIMEOUT_SECONDS = 20.0
BROKER_DEFAULT = -1  # replication: what the cluster is set to


@dataclass(frozen=True)
class Topic:
    """One topic as the file wants it.

    Attributes:
        name: its name in this deployment.
        partitions: how many it must have.
        config: topic settings that must have these values.
    """

    name: str
    partitions: int
    config: dict[str, str]


def declared(settings: Settings, path: Path = TOPICS_FILE) -> dict[str, Topic]:
    """Read the file: topic by role.

    Raises:
        TopicMismatch: roles that must be aligned have different partition counts.
    """
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    topics = {
        role: Topic(settings.topics[role], entry["partitions"], {k: str(v) for k, v in entry["config"].items()})
        for role, entry in content["topics"].items()
    }
    counts = {role: topics[role].partitions for role in content["aligned"]}
    if len(set(counts.values())) > 1:
        raise TopicMismatch(f"{path.name}: aligned topics have different partition counts: {counts}", remedy="give them the same count")
    return topics


def check(settings: Settings, *, create: bool) -> list[str]:
    """Compare the cluster's topics with the file; return the names of those created.

    Args:
        settings: names and where the cluster is.
        create: whether missing topics are created; otherwise they are an error.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        TopicMismatch: a topic is missing, or its partitions or settings differ; the message names both values.
    """
    wanted = declared(settings)
    admin = kafka.admin(settings)
    try:
        existing = admin.list_topics(timeout=kafka.METADATA_TIMEOUT_SECONDS).topics
        missing = [topic for topic in wanted.values() if topic.name not in existing]
        if missing and not create:
            raise TopicMismatch(
                f"missing on {settings.kafka_bootstrap_servers}: {', '.join(topic.name for topic in missing)}",
                remedy="create them as infra/kafka/topics.yaml says, or start with --create-topics",
            )
        _create(admin, missing)
        for topic in wanted.values():
            if topic not in missing:
                _compare(admin, topic, len(existing[topic.name].partitions))
    except KafkaException as error:
        raise kafka.unavailable(settings, error) from None
    return [topic.name for topic in missing]


def _create(admin: AdminClient, topics: list[Topic]) -> None:
    if not topics:
        return
    new = [NewTopic(t.name, num_partitions=t.partitions, replication_factor=BROKER_DEFAULT, config=t.config) for t in topics]
    for created in admin.create_topics(new, operation_timeout=ADMIN_TIMEOUT_SECONDS).values():
        try:
            created.result(ADMIN_TIMEOUT_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another start was faster
                raise


def _compare(admin: AdminClient, topic: Topic, partitions: int) -> None:
    differences = []
    if partitions != topic.partitions:
        differences.append(f"has {partitions} partitions, infra/kafka/topics.yaml says {topic.partitions}")
    resource = ConfigResource(ResourceType.TOPIC, topic.name)
    actual = admin.describe_configs([resource])[resource].result(ADMIN_TIMEOUT_SECONDS)
    for name, value in topic.config.items():
        if actual[name].value != value:
            differences.append(f"has {name}={actual[name].value}, infra/kafka/topics.yaml says {value}")
    if differences:
        raise TopicMismatch(f"topic {topic.name} {'; '.join(differences)}", remedy="alter the topic or the file: the pipeline will not guess")
