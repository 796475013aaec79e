"""Topics as `infra/kafka/topics.yaml` says: create what is missing, refuse what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import yaml
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from customer_activity import kafka
from customer_activity.errors import SettingsError, TopicMismatch
from customer_activity.settings import PROJECT, Settings

TOPICS_FILE = PROJECT / "infra" / "kafka" / "topics.yaml"
FILE_NAME = "infra/kafka/topics.yaml"
ADMIN_TIMEOUT_SECONDS = 20.0
POLL_SECONDS = 0.1
BROKER_DEFAULT = -1  # replication factor: what the cluster is set to


class Topic(NamedTuple):
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
        SettingsError: two roles have the same topic name.
        TopicMismatch: the file lacks a role, or roles that must be aligned have different partition counts.
    """
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    names = settings.topics
    if len(set(names.values())) < len(names):
        raise SettingsError(f"one topic has two roles: {names}", remedy="give each ACTIVITY_…_TOPIC a name of its own")
    if set(content["topics"]) != set(names):
        raise TopicMismatch(
            f"{FILE_NAME} describes {sorted(content['topics'])}, the pipeline has {sorted(names)}",
            remedy="describe exactly these roles",
        )
    topics = {role: _topic(names[role], entry) for role, entry in content["topics"].items()}
    counts = {role: topics[role].partitions for role in content["aligned"]}
    if len(set(counts.values())) > 1:
        raise TopicMismatch(
            f"{FILE_NAME}: aligned topics have different partition counts: {counts}",
            remedy="give them the same count, so that a customer's records keep their order end to end",
        )
    return topics


def check(settings: Settings, *, create: bool) -> list[str]:
    """Compare the cluster's topics with the file; return the names of those created.

    Args:
        settings: names and where the cluster is.
        create: whether missing topics are created; otherwise they are an error.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        SettingsError: two roles have the same topic name.
        TopicMismatch: a topic is missing or cannot be created, or its partitions or settings differ; names both values.
    """
    wanted = declared(settings)
    admin = kafka.admin(settings)
    try:
        existing = admin.list_topics(timeout=kafka.METADATA_TIMEOUT_SECONDS).topics
        missing = [topic for topic in wanted.values() if topic.name not in existing]
        if missing and not create:
            raise TopicMismatch(
                f"missing on {settings.kafka_bootstrap_servers}: {', '.join(topic.name for topic in missing)}",
                remedy=f"start with --create-topics, or create them as {FILE_NAME} says",
            )
        _compare(admin, [topic for topic in wanted.values() if topic.name in existing])
        if missing:
            _create(admin, missing)
            _compare(admin, missing)  # somebody else may have made one a moment ago, in another way
    except KafkaException as error:
        raise kafka.unavailable(settings, error) from None
    return [topic.name for topic in missing]


def wait_until_usable(admin: AdminClient, names: list[str]) -> None:
    """Wait until topics are known and each of their partitions has a leader: so a moment after they were made.

    Raises:
        TopicMismatch: it takes too long.
    """

    def are_usable() -> bool:
        known = admin.list_topics(timeout=kafka.METADATA_TIMEOUT_SECONDS).topics
        leaders = [p.leader for name in names if name in known for p in known[name].partitions.values()]
        return all(name in known and known[name].partitions for name in names) and min(leaders) >= 0

    waiting = Retrying(
        retry=retry_if_result(lambda usable: not usable),
        stop=stop_after_delay(ADMIN_TIMEOUT_SECONDS),
        wait=wait_fixed(POLL_SECONDS),
    )
    try:
        waiting(are_usable)
    except RetryError:
        raise TopicMismatch(
            f"created, but without leaders after {ADMIN_TIMEOUT_SECONDS:.0f} s: {', '.join(names)}",
            remedy="look at the brokers' logs",
        ) from None


def _topic(name: str, entry: dict[str, Any]) -> Topic:
    return Topic(name, entry["partitions"], {key: str(value) for key, value in entry["config"].items()})


def _compare(admin: AdminClient, topics: list[Topic]) -> None:
    """Refuse topics that differ from the file, with both values."""
    known = admin.list_topics(timeout=kafka.METADATA_TIMEOUT_SECONDS).topics
    differences = [words for topic in topics for words in _differences(admin, topic, len(known[topic.name].partitions))]
    if differences:
        raise TopicMismatch(
            "; ".join(differences), remedy="alter the topic or the file: the pipeline changes no topic that exists"
        )


def _differences(admin: AdminClient, topic: Topic, partitions: int) -> list[str]:
    resource = ConfigResource(ResourceType.TOPIC, topic.name)
    actual = admin.describe_configs([resource])[resource].result(ADMIN_TIMEOUT_SECONDS)
    counts = [f"topic {topic.name} has {partitions} partitions, {FILE_NAME} says {topic.partitions}"]
    return counts * (partitions != topic.partitions) + [
        f"topic {topic.name} has {name}={actual[name].value}, {FILE_NAME} says {name}={value}"
        for name, value in topic.config.items()
        if actual[name].value != value
    ]


def _create(admin: AdminClient, topics: list[Topic]) -> None:
    """Create topics and wait until every one can be used."""
    requests = [
        NewTopic(topic.name, num_partitions=topic.partitions, replication_factor=BROKER_DEFAULT, config=topic.config)
        for topic in topics
    ]
    for name, created in admin.create_topics(requests, operation_timeout=ADMIN_TIMEOUT_SECONDS).items():
        try:
            created.result(ADMIN_TIMEOUT_SECONDS)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:  # another start was faster
                continue
            raise TopicMismatch(
                f"topic {name} cannot be created: {error.args[0].str()}",
                remedy=f"have it created as {FILE_NAME} says, or allow this client to",
            ) from None
    wait_until_usable(admin, [topic.name for topic in topics])
