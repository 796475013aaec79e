"""The embedded broker without a broker: addresses, configuration, whose process it is, and the file of topics."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from typer.testing import CliRunner

from customer_activity.demo.broker import node, process
from customer_activity.demo.commands import broker as commands
from customer_activity.errors import EnvironmentFault, SettingsError, TopicMismatch
from customer_activity.kafka import clients, topics
from customer_activity.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    folder = tmp_path / "kafka"
    folder.mkdir()
    return Settings(kafka_bootstrap_servers="localhost:9092", broker_dir=folder, jars_dir=tmp_path / "jars")


@pytest.fixture
def listener() -> Iterator[int]:
    """Something that listens on a port; gives the port."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def serving(settings: Settings, servers: str) -> Settings:
    return settings.model_copy(update={"kafka_bootstrap_servers": servers})


def topics_file(folder: Path, **changes: Any) -> Path:
    """The committed file with other entries for some roles, or without those that are None."""
    content = yaml.safe_load(topics.TOPICS_FILE.read_text(encoding="utf-8"))
    content["topics"] = {role: entry for role, entry in (content["topics"] | changes).items() if entry is not None}
    path = folder / "topics.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("servers", "address"),
    [
        pytest.param("localhost:9092", ("127.0.0.1", 9092), id="localhost"),
        pytest.param("127.0.0.1:19092", ("127.0.0.1", 19092), id="loopback"),
        pytest.param("127.1.2.3:1", ("127.1.2.3", 1), id="another loopback address"),
    ],
)
def test_the_broker_listens_where_clients_look(servers: str, address: tuple[str, int], settings: Settings) -> None:
    assert node.address(serving(settings, servers)) == address
    assert clients.is_on_this_machine(serving(settings, servers))


@pytest.mark.parametrize(
    ("servers", "message"),
    [
        pytest.param("kafka.example.com:9092", "not a loopback address", id="another machine"),
        pytest.param("192.0.2.7:9092", "not a loopback address", id="another machine's number"),
        pytest.param("0.0.0.0:9092", "not a loopback address", id="every interface"),
        pytest.param("localhost:9092,localhost:9093", "one host:port", id="list"),
        pytest.param("localhost", "one host:port", id="no port"),
        pytest.param("localhost:kafka", "one host:port", id="port by name"),
        pytest.param(":9092", "one host:port", id="no host"),
    ],
)
def test_the_broker_listens_on_loopback_only(servers: str, message: str, settings: Settings) -> None:
    with pytest.raises(SettingsError, match=message) as raised:
        node.address(serving(settings, servers))
    assert servers in raised.value.what
    assert "localhost:9092" in raised.value.remedy


def test_secured_clients_are_not_sent_to_a_broker_without_security(settings: Settings, tmp_path: Path) -> None:
    security = tmp_path / "kafka.properties"
    security.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=a\nsasl.password=topsecret\n", encoding="utf-8"
    )
    with pytest.raises(SettingsError, match="ACTIVITY_KAFKA_CONFIG asks for a secured connection") as raised:
        node.address(settings.model_copy(update={"kafka_config": security}))
    assert "topsecret" not in str(raised.value)


def test_the_configuration_is_one_node_on_loopback_with_its_data_in_the_folder(settings: Settings) -> None:
    lines = node.configure(settings).read_text(encoding="utf-8").splitlines()
    properties = dict(line.split("=", 1) for line in lines)
    assert properties["process.roles"] == "broker,controller"
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092"
    assert properties["listeners"].startswith("PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:")
    assert properties["log.dirs"] == f"{settings.broker_dir}/data"
    assert properties["auto.create.topics.enable"] == "false"
    assert properties["controller.quorum.voters"].partition("@")[2] in properties["listeners"]


def test_storage_is_formatted_only_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    node.data(settings).mkdir()
    (node.data(settings) / "meta.properties").touch()
    monkeypatch.setattr(node, "java", lambda _: pytest.fail("formatted again"))
    node.format_once(settings, settings.broker_dir / "server.properties")


def test_missing_java_and_missing_jars_are_told(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentFault, match="no broker jars") as raised:
        node.java(settings)
    assert "make setup" in raised.value.remedy
    monkeypatch.setenv("JAVA_HOME", str(settings.broker_dir))
    with pytest.raises(EnvironmentFault, match="no Java in"):
        node.java(settings)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EnvironmentFault, match="no Java on the PATH"):
        node.java(settings)


@pytest.mark.parametrize("is_there", [True, False])
def test_java_is_told_of_the_class_archive_that_set_up_made(settings: Settings, tmp_path: Path, is_there: bool) -> None:
    jars = tmp_path / "jars"
    (jars / "broker").mkdir(parents=True)
    (jars / "broker" / "kafka_2.13.jar").touch()
    if is_there:
        (jars / "broker.jsa").touch()
    line = node.java(settings.model_copy(update={"jars_dir": jars}))
    assert (f"-XX:SharedArchiveFile={jars / 'broker.jsa'}" in line) == is_there


def test_a_port_that_is_taken_is_an_error_that_names_who_has_it(settings: Settings, listener: int) -> None:
    with pytest.raises(
        EnvironmentFault, match=f"port {listener} of 127.0.0.1 is taken by .*pid {os.getpid()}"
    ) as raised:
        process.start(serving(settings, f"localhost:{listener}"))
    assert "ACTIVITY_KAFKA_BOOTSTRAP_SERVERS" in raised.value.remedy
    assert not process.pid_path(settings).exists()


def test_whether_a_port_is_taken(listener: int) -> None:
    assert node.is_taken("127.0.0.1", listener)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    assert not node.is_taken("127.0.0.1", free)


@pytest.mark.parametrize(
    "content",
    ["", "no number", "99999999", str(os.getpid())],
    ids=["empty", "no number", "nobody's", "the test's own"],
)
def test_a_number_that_is_nobodys_or_somebody_elses_is_not_the_broker(content: str, settings: Settings) -> None:
    process.pid_path(settings).write_text(content, encoding="utf-8")
    assert process.find(settings) is None
    assert process.stop(settings) is False
    assert psutil.pid_exists(os.getpid())
    assert not process.pid_path(settings).exists()


def test_the_last_words_of_the_log_are_told(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_text("\n".join(f"line {number}" for number in range(20)), encoding="utf-8")
    assert process._last_lines(log) == "line 15 | line 16 | line 17 | line 18 | line 19"
    log.write_text("", encoding="utf-8")
    assert process._last_lines(log) == "its log is empty"


def test_the_file_declares_the_topics_of_the_design(settings: Settings) -> None:
    declared = topics.declared(settings)
    assert {
        role: (topic.name, topic.partitions, topic.config["cleanup.policy"]) for role, topic in declared.items()
    } == {
        "purchases": ("purchase-events", 4, "delete"),
        "profiles": ("customer-profile-state", 4, "compact"),
        "view": ("customer-activity-view", 4, "compact"),
        "progress": ("customer-activity-progress", 1, "compact"),
    }


def test_values_are_compared_as_the_text_that_kafka_gives(settings: Settings, tmp_path: Path) -> None:
    path = topics_file(tmp_path, progress={"partitions": 1, "config": {"retention.ms": -1}})
    assert topics.declared(settings, path)["progress"].config == {"retention.ms": "-1"}


def test_aligned_topics_with_different_counts_are_refused(settings: Settings, tmp_path: Path) -> None:
    path = topics_file(tmp_path, view={"partitions": 8, "config": {}})
    with pytest.raises(TopicMismatch, match="'purchases': 4, 'profiles': 4, 'view': 8"):
        topics.declared(settings, path)


def test_a_role_that_the_file_lacks_is_refused(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(
        TopicMismatch, match=r"describes \[(?!.*progress.*the pipeline).*'view'.*the pipeline has .*'progress'"
    ):
        topics.declared(settings, topics_file(tmp_path, progress=None))


def test_one_topic_for_two_roles_is_refused(settings: Settings) -> None:
    with pytest.raises(SettingsError, match="one topic has two roles"):
        topics.declared(settings.model_copy(update={"view_topic": settings.purchase_topic}))


def test_status_and_stop_of_a_broker_that_does_not_run(settings: Settings) -> None:
    shown = CliRunner().invoke(commands.app, ["status"], obj=settings)
    assert (shown.exit_code, "does not run" in shown.stdout) == (1, True)
    report = CliRunner().invoke(commands.app, ["status", "--json"], obj=settings)
    assert (report.exit_code, '"is_running": false' in report.stdout) == (1, True)
    stopped = CliRunner().invoke(commands.app, ["stop"], obj=settings)
    assert (stopped.exit_code, stopped.stdout.strip()) == (0, "no broker was running")


def test_start_says_what_it_did(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(process, "start", lambda _: True)

    def check(_: Settings, *, create: bool) -> list[str]:
        asked.append(create)
        return ["made"] if create else []

    monkeypatch.setattr(topics, "check", check)
    first = CliRunner().invoke(commands.app, ["start"], obj=settings)
    second = CliRunner().invoke(commands.app, ["start", "--no-create-topics"], obj=settings)
    assert first.stdout.splitlines() == ["broker started on localhost:9092", "created: made"]
    assert second.stdout.splitlines() == ["broker started on localhost:9092"]
    assert asked == [True, False]
