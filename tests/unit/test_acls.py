"""infra/kafka/acls.yaml: the rights of each role, by the names of a deployment."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import yaml
from typer.testing import CliRunner

from customer_activity import topology
from customer_activity.commands import broker as commands
from customer_activity.errors import SettingsError
from customer_activity.kafka import acls, clients
from customer_activity.kafka.acls import Right
from customer_activity.settings import PROJECT, Settings
from customer_activity.streams.registry import ALL, STREAMS

SETTINGS = Settings(kafka_config=None, view_topic="rows", kafka_bootstrap_servers="kafka:9093")
FILE = yaml.safe_load(acls.ACLS_FILE.read_text(encoding="utf-8"))["roles"]


def test_the_commands_roles_are_the_files() -> None:
    assert tuple(FILE) == acls.ROLES


@pytest.mark.parametrize("role", acls.ROLES)
def test_rights_have_the_names_of_the_deployment(role: str) -> None:
    rights = acls.declared(SETTINGS, role, "anna")
    names = {right.name for right in rights if right.kind == "topic"}
    assert names <= set(SETTINGS.topics.values())
    assert not [right for right in rights if "{" in right.name]
    assert len(set(rights)) == len(rights)


@pytest.mark.parametrize(
    ("role", "operations"),
    [
        ("pipeline", {"READ", "DESCRIBE_CONFIGS"}),
        ("traffic", {"WRITE"}),
        ("reader", {"READ", "DESCRIBE_CONFIGS"}),
        ("consumer", set()),
        ("portal", {"READ"}),
        ("topics", {"CREATE", "DESCRIBE", "DESCRIBE_CONFIGS"}),
    ],
)
def test_the_payment_topic_is_nobodys_until_its_streams_are_on(role: str, operations: set[str]) -> None:
    def of_payments() -> set[str]:
        rights = acls.declared(SETTINGS, role, "anna")
        return {right.operation for right in rights if right.name == SETTINGS.payment_topic}

    assert of_payments() == set()
    topology.switch_on(["payments"])
    try:
        assert of_payments() == operations
    finally:
        topology.switch_on([])


def test_the_publishers_transactional_id_is_the_view_topics() -> None:
    right = Right("transactional_id", "customer-activity-publish-rows", "LITERAL", "WRITE")
    assert right in acls.declared(SETTINGS, "pipeline", "anna")


@pytest.mark.parametrize("role", acls.ROLES)
def test_what_a_named_pipeline_may_write_is_its_own(role: str) -> None:
    rights = acls.declared(Settings(kafka_config=None, pipeline="orders-eu"), role, "anna")
    written = {right.name for right in rights if right.operation == "WRITE"}
    assert written == {
        "pipeline": {"orders-eu-view", "orders-eu-progress", "orders-eu-publish-orders-eu-view"},
        "traffic": {"purchase-events", "customer-profile-state"},  # inputs may be shared
    }.get(role, set())


def test_an_optional_publisher_has_rights_where_it_is_on() -> None:
    own = {"publish_daily": {"customer-activity-daily"}, "publish_sessions_final": {"customer-activity-sessions-final"}}
    off = {right.name for right in acls.declared(SETTINGS, "pipeline", "anna")}
    topology.switch_on(own)
    try:
        on = {right.name for right in acls.declared(SETTINGS, "pipeline", "anna") if right.operation == "WRITE"}
        read = {right.name for right in acls.declared(SETTINGS, "consumer", "anna")}
    finally:
        topology.switch_on([])
    for stream, topics in own.items():
        wanted = {f"customer-activity-publishes-{stream}", *topics}
        assert (wanted & off, wanted & on, topics & read) == (set(), wanted, topics)


def test_a_publisher_that_is_always_on_has_rights_too() -> None:
    daily = [STREAMS[name].spec for name in ("event_time", "daily", "publish_daily")]
    topology.install([*topology.specs(), *(replace(spec, is_optional=False) for spec in daily)])
    try:
        rights = acls.declared(SETTINGS, "pipeline", "anna")
    finally:
        topology.install(stream.spec for stream in ALL)
    for kind, name in (
        ("topic", "customer-activity-daily"),
        ("transactional_id", "customer-activity-publishes-publish_daily"),
    ):
        assert Right(kind, name, "LITERAL", "WRITE") in rights


@pytest.mark.parametrize("role", ["pipeline", "reader", "portal"])
def test_the_readers_group_is_the_clients(role: str) -> None:
    group = clients.reader_config(SETTINGS)["group.id"]
    assert [r.name for r in acls.declared(SETTINGS, role, "anna") if r.kind == "group"] == [group]


@pytest.mark.parametrize("role", ["traffic", "reader", "consumer", "portal", "topics"])
def test_nobody_but_the_pipeline_may_write_what_it_writes(role: str) -> None:
    written = {SETTINGS.view_topic, SETTINGS.progress_topic}
    rights = acls.declared(SETTINGS, role, "anna")
    assert not [right for right in rights if right.operation == "WRITE" and right.name in written]


def test_a_role_that_is_none_is_refused() -> None:
    with pytest.raises(SettingsError, match="has no role boss") as raised:
        acls.declared(SETTINGS, "boss", "anna")
    assert "pipeline" in raised.value.remedy


def test_the_lines_are_those_of_kafkas_own_tool() -> None:
    answer = CliRunner().invoke(commands.app, ["acls", "consumer", "portal", "--lines"], obj=SETTINGS)
    start = (
        "kafka-acls.sh --bootstrap-server kafka:9093 --command-config admin.properties --add"
        " --allow-principal User:portal "
    )
    assert answer.stdout.splitlines() == [
        f"{start}--topic rows --operation Read",
        f"{start}--group portal --resource-pattern-type prefixed --operation Read",
    ]
    pipeline = CliRunner().invoke(commands.app, ["acls", "pipeline", "anna", "--lines"], obj=SETTINGS).stdout
    assert "--topic rows --operation Read --operation Write --operation DescribeConfigs" in pipeline
    assert "--transactional-id customer-activity-publish-rows --operation Write" in pipeline


def test_the_manual_has_what_the_file_has() -> None:
    text = (PROJECT / "docs" / "OPERATIONS.md").read_text(encoding="utf-8")
    rows = {row[1]: row[0] for row in re.finditer(r"^\| `(\w+)` \|.*\|$", text, re.MULTILINE) if row[1] in FILE}
    assert set(rows) == set(FILE)
    for role, entries in FILE.items():
        operations = {operation for entry in entries for operation in entry["operations"]}
        assert operations == set(re.findall(r"\b(READ|WRITE|CREATE|DESCRIBE|DESCRIBE_CONFIGS)\b", rows[role]))
