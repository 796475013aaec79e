"""Kafka ACLs by the roles in `infra/kafka/acls.yaml`: grant a role to a user, or print the commands that would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import NamedTuple

import yaml
from confluent_kafka import KafkaException
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from customer_activity import topology
from customer_activity.errors import SettingsError
from customer_activity.kafka import clients
from customer_activity.settings import PROJECT, Settings

ACLS_FILE = PROJECT / "infra" / "kafka" / "acls.yaml"
FILE_NAME = "infra/kafka/acls.yaml"
ROLES = ("pipeline", "traffic", "reader", "consumer", "portal", "topics")
SECONDS = 20.0
KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}


class Right(NamedTuple):
    """Something that a user may do."""

    kind: str  # topic, group or transactional_id
    name: str  # of the resource; with PREFIXED the beginning of its name
    pattern: str  # LITERAL or PREFIXED
    operation: str  # as Kafka calls it, such as READ


def declared(settings: Settings, role: str, user: str, path: Path = ACLS_FILE) -> list[Right]:
    """Read what a role of the file needs, with the names of this deployment; `user` is without Kafka's `User:`.

    What names a topic of an optional stream counts where that stream is on; `{published}` is each topic besides the
    view that a stream publishes to, and `{publisher}` each such stream.

    Raises:
        SettingsError: there is no such role.
    """
    content = yaml.safe_load(path.read_text(encoding="utf-8"))["roles"]
    if role not in content:
        raise SettingsError(f"{FILE_NAME} has no role {role}", remedy=f"one of {', '.join(content)}")
    rights = []
    for entry in content[role]:
        (kind,) = set(entry) & set(KINDS)
        names = (
            entry[kind].format(user=user, pipeline=settings.pipeline, **topics)
            for topics in _named(settings, entry[kind])
        )
        pattern = entry.get("pattern", "LITERAL")
        rights += [Right(kind, name, pattern, operation) for name in names for operation in entry["operations"]]
    return rights


def _named(settings: Settings, template: str) -> Iterator[dict[str, str]]:
    """Yield the names of topics by which a template is filled in: once, or as often as there are published topics."""
    on = topology.roles()
    known = {role: name for role, name in settings.topics.items() if role in on}
    wanted = {field for _, field, _, _ in Formatter().parse(template) if field}
    if "published" in wanted:
        yield from (known | {"published": known[role]} for role in sorted(topology.published_roles()))
    elif "publisher" in wanted:
        yield from (known | {"publisher": each.name} for each in topology.publishers() if each != topology.publishing())
    elif wanted & set(settings.topics) <= set(known):
        yield known


def grant(settings: Settings, rights: list[Right], user: str) -> None:
    """Give a user rights; those that it has stay.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        KafkaRefused: this client may not, or Kafka keeps no rights.
    """
    bindings = [
        AclBinding(
            KINDS[right.kind],
            right.name,
            ResourcePatternType[right.pattern],
            f"User:{user}",
            "*",
            AclOperation[right.operation],
            AclPermissionType.ALLOW,
        )
        for right in rights
    ]
    clients.metadata(settings)
    client = clients.admin(settings)  # held until the answers are there
    try:
        for answer in client.create_acls(bindings, request_timeout=SECONDS).values():
            answer.result()
    except KafkaException as error:
        if error.args[0].code() == error.args[0].SECURITY_DISABLED:
            raise clients.refused(settings, error.args[0].str(), "rights", is_signed_in=True) from None
        raise clients.unavailable(settings, error, "rights") from None


def lines(settings: Settings, rights: list[Right], user: str) -> list[str]:
    """Return what grants the rights with Kafka's own tool, a line a resource."""
    options: dict[str, list[str]] = {}
    for kind, name, pattern, operation in rights:
        resource = f"--{kind.replace('_', '-')} {name}"
        if pattern != "LITERAL":
            resource += f" --resource-pattern-type {pattern.lower()}"
        options.setdefault(resource, []).append(f"--operation {operation.title().replace('_', '')}")
    return [
        f"kafka-acls.sh --bootstrap-server {settings.kafka_bootstrap_servers} --command-config admin.properties"
        f" --add --allow-principal User:{user} {resource} {' '.join(operations)}"
        for resource, operations in options.items()
    ]
