"""Topics: create missing ones as `infra/kafka/topics.yaml` declares them, and check existing ones (`policy.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import yaml
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType, TopicMetadata
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from customer_activity import topology
from customer_activity.errors import SettingsError, TopicMismatch
from customer_activity.kafka import clients
from customer_activity.kafka.policy import Found, judge
from customer_activity.settings import PROJECT, Settings

TOPICS_FILE = PROJECT / "infra" / "kafka" / "topics.yaml"
FILE_NAME = "infra/kafka/topics.yaml"
ADMIN_TIMEOUT_SECONDS = 20.0
POLL_SECONDS = 0.1
NOT_ALLOWED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
BROKER_DEFAULT = -1  # replication factor: what the cluster is set to


class Topic(NamedTuple):
    """One topic as the file has it made, by its name in this deployment."""

    name: str
    partitions: int
    config: dict[str, str]


def used(settings: Settings) -> dict[str, str]:
    """Return the names of the topics that streams which are on read or write, by role."""
    on = topology.roles()
    return {role: name for role, name in settings.topics.items() if role in on}


def declared(settings: Settings, path: Path = TOPICS_FILE) -> dict[str, Topic]:
    """Read the file: topic by role, of the roles that the streams which are on have.

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
    topics = {
        role: Topic(names[role], entry["partitions"], {key: str(value) for key, value in entry["config"].items()})
        for role, entry in content["topics"].items()
        if role in used(settings)
    }
    counts = {role: topics[role].partitions for role in content["aligned"]}
    if len(set(counts.values())) > 1:
        raise TopicMismatch(
            f"{FILE_NAME}: aligned topics have different partition counts: {counts}",
            remedy="give them the same count, so that a customer's records keep their order end to end",
        )
    return topics


def check(settings: Settings, *, create: bool) -> list[str]:
    """Judge the cluster's topics, and create what is missing as the file says; return the names of those created.

    A topic that exists need not be as the file says: Kafka's defaults and other partition counts work for the inputs.
    One that is missing is an error, unless it may be created.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        KafkaRefused: it refuses this client, or does not show it a topic.
        SettingsError: two roles have the same topic name.
        TopicMismatch: a topic is missing or cannot be created, or its settings would give wrong figures; names them.
    """
    wanted = declared(settings)
    admin = clients.admin(settings)
    with clients.explained(settings, "the settings of the topics"):
        existing = clients.metadata(settings).topics
        missing = [topic for topic in wanted.values() if topic.name not in existing]
        names = used(settings)
        for topic in missing:
            _refuse_hidden(settings, topic.name)
        if missing and not create:
            raise _missing(settings, [topic.name for topic in missing])
        _compare(admin, {role: name for role, name in names.items() if name in existing})
        if missing:
            _create(admin, missing)
            # Another client may have created one in the meantime, with other settings.
            _compare(admin, {role: name for role, name in names.items() if name not in existing})
    return [topic.name for topic in missing]


def warning(settings: Settings) -> str:
    """Say in one line what is to be known of the topics as they are; empty when there is nothing.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        TopicMismatch: a topic is missing, or its settings would give wrong figures.
    """
    admin = clients.admin(settings)
    with clients.explained(settings, "the settings of the topics"):
        existing = clients.metadata(settings).topics
        if missing := [name for name in used(settings).values() if name not in existing]:
            for name in missing:
                _refuse_hidden(settings, name)
            raise _missing(settings, missing)
        return "; ".join(_compare(admin, used(settings)))


def wait_until_usable(admin: AdminClient, names: list[str]) -> None:
    """Wait until topics are known and each of their partitions has a leader: so a moment after they were made.

    Raises:
        TopicMismatch: it takes too long.
    """

    def are_usable() -> bool:
        known = admin.list_topics(timeout=clients.METADATA_TIMEOUT_SECONDS).topics
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


def _refuse_hidden(settings: Settings, name: str) -> None:
    """Tell a topic that this user may not see from one that is not there: only who asks by name learns it."""
    found = clients.metadata(settings, name).topics[name]
    if found.error is not None and found.error.code() in clients.UNAUTHORIZED:
        raise clients.refused(settings, found.error.str(), f"topic {name}", is_signed_in=True)


def _missing(settings: Settings, names: list[str]) -> TopicMismatch:
    return TopicMismatch(
        f"missing on {settings.kafka_bootstrap_servers}: {', '.join(names)}",
        remedy=f"start with --create-topics, or create them as {FILE_NAME} says",
    )


def _compare(admin: AdminClient, topics: Mapping[str, str]) -> list[str]:
    """Refuse topics, by role, that would give wrong figures or stand still; return what is only to be known of them.

    Raises:
        TopicMismatch: names every topic with the setting and why it is refused.
    """
    known = admin.list_topics(timeout=clients.METADATA_TIMEOUT_SECONDS).topics
    judged = [judge(role, _found(admin, name, known[name])) for role, name in topics.items()]
    if refused := [words for judgement in judged for words in judgement.refused]:
        raise TopicMismatch(
            "; ".join(refused),
            remedy="change the topic's settings, or name another topic: the pipeline changes none that exists",
        )
    return [words for judgement in judged for words in judgement.told]


def _found(admin: AdminClient, name: str, topic: TopicMetadata) -> Found:
    resource = ConfigResource(ResourceType.TOPIC, name)
    try:
        entries = admin.describe_configs([resource])[resource].result(ADMIN_TIMEOUT_SECONDS)
        config = {key: str(entry.value) for key, entry in entries.items() if entry.value is not None}
    except KafkaException as error:
        if error.args[0].code() not in NOT_ALLOWED:
            raise
        config = {}
    replicas = min((len(partition.replicas) for partition in topic.partitions.values()), default=0)
    return Found(name, len(topic.partitions), replicas, config)


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
                remedy=f"have it created as {FILE_NAME} says, or let this client create it",
            ) from None
    wait_until_usable(admin, [topic.name for topic in topics])
