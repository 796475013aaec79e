"""The whole pipeline on a broker that asks everybody's name, over TLS, and keeps to infra/kafka/acls.yaml."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from customer_activity.errors import EXIT_TERMINAL, TerminalError
from customer_activity.kafka import acls, clients, topics
from customer_activity.kafka.acls import Right
from customer_activity.kafka.marker import Marker, identity
from customer_activity.settings import PREFIX, Settings
from customer_activity.streams.bronze.fetching import Fetcher
from customer_activity.streams.publish.transaction import Publisher
from support import addresses, secured_broker
from support.broker import own_topics
from support.command import call
from support.secured_broker import MARK, SecuredBroker
from support.shell import environment
from support.waiting import until

PATIENCE_SECONDS = 45.0  # what is refused is told before anybody thinks that it hangs
# Kafka's client says at this level what it is told; the root's own, pyspark sets.
TALKATIVE = """
rootLogger.level = warn
logger.kafka.name = org.apache.kafka
logger.kafka.level = info
logger.connector.name = org.apache.spark.sql.kafka010
logger.connector.level = debug
logger.streaming.name = org.apache.spark.sql.execution.streaming
logger.streaming.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c %m%n
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker.serve(addresses.free(), tmp_path_factory.mktemp("secured")) as serving:
        yield serving


def deployment(broker: SecuredBroker, folder: Path) -> Settings:
    """Return settings with topics of their own, which are made; each role is its user's."""
    places = {"lake": str(folder / "lake"), "run_dir": folder / "run"}
    own = broker.settings.model_copy(update=own_topics() | places | {"driver_memory": "1g"})
    broker.prepare(own)
    return own


@pytest.fixture
def deployed(broker: SecuredBroker, tmp_path: Path) -> Settings:
    return deployment(broker, tmp_path)


class Commands:
    """The command line in this process; all that it says is kept in a log."""

    def __init__(self, patch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str], log: Path) -> None:
        self.patch = patch
        self.captured = captured
        self.log = log

    def run(self, settings: Settings, *command: str) -> tuple[int, str]:
        """Run a command as whom the settings sign in; return its exit code and what it printed."""
        self.captured.readouterr()
        with self.patch.context() as patch:
            for name, value in settings.environment().items():
                patch.setenv(name, value)
            code = call(*command)
        printed, said = self.captured.readouterr()
        with self.log.open("a", encoding="utf-8") as log:
            log.write(said + printed)
        return code, printed

    @property
    def said(self) -> str:
        """Return all that was said so far."""
        return self.log.read_text(encoding="utf-8")


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Commands:
    for variable in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(variable)
    return Commands(monkeypatch, capfd, tmp_path / "log")


def streamed(settings: Settings, log: Path, *streams: str) -> tuple[int, str]:
    """Run the streams or some, in a process whose JVM tells all that Kafka's client does; return exit code and log."""
    told = log.with_name("log4j2.properties")
    told.write_text(TALKATIVE, encoding="utf-8")
    program = (
        "from pathlib import Path; from customer_activity import cli; from customer_activity.engine import session; "
        f"session.LOG4J = Path({str(told)!r}); cli.main(['stream', '--available-now', *{streams}])"
    )
    with log.open("ab") as said:
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment(settings), stdout=said, stderr=said, check=False
        )
    return done.returncode, log.read_text(encoding="utf-8")


def found_by_the_doctor(printed: str) -> dict[str, Any]:
    """Return the findings by what was checked."""
    return {finding["check"]: finding for finding in json.loads(printed)["findings"]}


def assert_no_secret_in(folder: Path) -> None:
    """No file below a folder has any of the passwords in it."""
    assert [path for path in folder.rglob("*") if path.is_file() and MARK.encode() in path.read_bytes()] == []


def test_the_whole_pipeline(broker: SecuredBroker, deployed: Settings, commands: Commands, tmp_path: Path) -> None:
    traffic, pipeline, reader = (broker.of(user, deployed) for user in ("traffic", "pipeline", "reader"))
    produced, _ = commands.run(traffic, "produce", "--customers", "300", "--purchases", "600", "--seed", "7")
    assert produced == 0, commands.said[-2000:]
    code, text = streamed(pipeline, tmp_path / "driver.log")
    assert code == 0, text[-4000:]
    assert "sasl.jaas.config = [hidden]" in text  # it was said, and not what it is
    code, printed = commands.run(reader, "verify", "--json")
    assert code == 0, printed
    report = json.loads(printed)
    assert report["checks"]
    assert all(check["ok"] for check in report["checks"])
    assert commands.run(reader, "status", "--json")[0] == 0
    findings = found_by_the_doctor(commands.run(reader, "doctor", "--json")[1])
    assert [findings[name]["ok"] for name in ("settings", "broker", "topics")] == [True, True, True], findings
    assert len(followed(broker.of("portal", deployed))) > 0
    turned_away = deployed.model_copy(update={"kafka_config": broker.file("reader", password=MARK)})
    code, _ = commands.run(turned_away, "verify")
    assert (code, "invalid credentials" in commands.said) == (EXIT_TERMINAL, True)
    assert_no_secret_in(tmp_path)


def followed(settings: Settings) -> set[bytes]:
    """Follow the view as a service does, in a group; return the customers of the first records."""
    consumer = Consumer(
        clients.client_config(
            settings, group_id="portal-pages", auto_offset_reset="earliest", isolation_level="read_committed"
        )
    )
    consumer.subscribe([settings.view_topic])
    keys: set[bytes] = set()

    def has_some() -> bool:
        keys.update(key for m in consumer.consume(100, 1.0) if m.error() is None and isinstance(key := m.key(), bytes))
        return bool(keys)

    try:
        until(has_some, 60)
    finally:
        consumer.close()
    return keys


@pytest.mark.parametrize("command", [["produce", "--purchases", "10"], ["broker", "topics"]], ids=lambda c: c[0])
@pytest.mark.parametrize(
    ("who", "words"),
    [
        pytest.param(("pipeline", "ca", f"{MARK}-wrong"), "authentication at Kafka", id="a wrong password"),
        pytest.param(("pipeline", "stranger", None), "certificate verify failed", id="an unknown CA"),
        pytest.param(("nobody", "ca", None), "Topic authorization failed", id="no rights"),
    ],
)
def test_who_is_refused_learns_why_at_once(
    who: tuple[str, str, str | None],
    words: str,
    command: list[str],
    broker: SecuredBroker,
    supplied: Settings,
    commands: Commands,
) -> None:
    user, ca, password = who
    file = broker.file(user, ca=ca, password=password)
    refused = supplied.model_copy(update={"kafka_config": file})
    started = time.monotonic()
    code, _ = commands.run(refused, *command)
    assert (code, words in commands.said, "→" in commands.said) == (EXIT_TERMINAL, True, True), commands.said
    assert time.monotonic() - started < PATIENCE_SECONDS
    assert_no_secret_in(commands.log.parent)


def test_who_may_not_write_anywhere_learns_it(broker: SecuredBroker, supplied: Settings, commands: Commands) -> None:
    code, _ = commands.run(broker.of("reader", supplied), "produce", "--purchases", "10")
    assert (code, "infra/kafka/acls.yaml" in commands.said) == (EXIT_TERMINAL, True), commands.said


def test_the_doctor_says_who_is_refused(broker: SecuredBroker, supplied: Settings, commands: Commands) -> None:
    file = broker.file("reader", password=f"{MARK}-wrong")
    refused = supplied.model_copy(update={"kafka_config": file})
    code, printed = commands.run(refused, "doctor", "--json")
    found = found_by_the_doctor(printed)["broker"]
    assert (code, found["ok"]) == (EXIT_TERMINAL, False)
    assert "invalid credentials" in found["found"]
    assert str(refused.kafka_config) in found["remedy"]


@pytest.mark.nightly
def test_a_stream_that_may_not_read_a_topic_says_so(broker: SecuredBroker, deployed: Settings, tmp_path: Path) -> None:
    send_some(broker, deployed)
    rights = [right for right in acls.declared(deployed, "pipeline", "nobody") if right.name != deployed.purchase_topic]
    less = Right("topic", deployed.purchase_topic, "LITERAL", "DESCRIBE")
    configs = Right("topic", deployed.purchase_topic, "LITERAL", "DESCRIBE_CONFIGS")
    with granted(broker, deployed, [*rights, less, configs]) as own:
        code, said = streamed(own, tmp_path / "log", "bronze")
    assert code == EXIT_TERMINAL, said[-3000:]
    assert deployed.purchase_topic in said
    assert "uthoriz" in said
    assert "infra/kafka/acls.yaml" in said
    assert_no_secret_in(tmp_path)


def send_some(broker: SecuredBroker, settings: Settings) -> None:
    """Put a record on each topic of the input, and one on the view."""
    producer = clients.producer(broker.of("traffic", settings))
    for topic in (settings.purchase_topic, settings.profile_topic):
        producer.produce(topic, b"{}", b"key")
    assert producer.flush(30) == 0
    with Publisher(broker.of("pipeline", settings)) as publisher:
        publisher.publish([(b"key", b"{}")], Marker("table", 0))


OF_NOBODY = AclBindingFilter(
    ResourceType.ANY,
    None,  # type: ignore[arg-type]  # a filter may, as its documentation says
    ResourcePatternType.ANY,
    "User:nobody",
    None,  # type: ignore[arg-type]  # likewise
    AclOperation.ANY,
    AclPermissionType.ANY,
)


@contextmanager
def granted(broker: SecuredBroker, settings: Settings, rights: list[Right]) -> Iterator[Settings]:
    """Give the user `nobody` some rights for a while; yield settings that sign in as that user."""
    admin = clients.admin(settings)

    def held() -> int:
        return len(admin.describe_acls(OF_NOBODY, request_timeout=20).result())

    acls.grant(settings, rights, "nobody")
    try:
        until(lambda: held() == len(set(rights)), 20)
        yield broker.of("nobody", settings)
    finally:
        for answer in admin.delete_acls([OF_NOBODY], request_timeout=20).values():
            answer.result()
        until(lambda: held() == 0, 20)


def exercise(settings: Settings) -> None:
    """Do all that a driver does with Kafka, without Spark."""
    topics.check(settings, create=False)
    for topic in (settings.purchase_topic, settings.profile_topic):
        fetcher = Fetcher(settings, (settings.purchase_topic, settings.profile_topic))
        try:
            parts = list(fetcher.fetch({topic: clients.offset_range(settings, topic)}))
            assert sum(part.num_rows for part in parts)
        finally:
            fetcher.close()
    with Publisher(settings) as publisher:
        assert publisher.on_topic()
        publisher.publish([(b"key", b"{}")], Marker("table", 1))
    clients.topic_ids(settings, [settings.purchase_topic])


NAMES = Settings(kafka_config=None)
PIPELINE = acls.declared(NAMES, "pipeline", "nobody")
# Where they are hidden, the settings of the inputs are taken for Kafka's own defaults, and nothing can be said of them.
FOR_ADVICE = {("DESCRIBE_CONFIGS", name) for name in (NAMES.purchase_topic, NAMES.profile_topic)}
NEEDED = [number for number, right in enumerate(PIPELINE) if (right.operation, right.name) not in FOR_ADVICE]


@pytest.fixture(scope="module")
def supplied(broker: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A deployment with something on each topic."""
    own = deployment(broker, tmp_path_factory.mktemp("supplied"))
    send_some(broker, own)
    return own


def test_the_rights_of_the_pipeline_are_enough(broker: SecuredBroker, supplied: Settings) -> None:
    with granted(broker, supplied, acls.declared(supplied, "pipeline", "nobody")) as own:
        exercise(own)


@pytest.mark.parametrize("lacking", NEEDED, ids=[f"{PIPELINE[n].operation} {PIPELINE[n].name}" for n in NEEDED])
def test_each_right_of_the_pipeline_is_needed(lacking: int, broker: SecuredBroker, supplied: Settings) -> None:
    rights = acls.declared(supplied, "pipeline", "nobody")
    with granted(broker, supplied, rights[:lacking] + rights[lacking + 1 :]) as own, pytest.raises(TerminalError):
        exercise(own)


def test_the_transactional_id_is_the_publishers() -> None:
    assert [right.name for right in PIPELINE if right.kind == "transactional_id"] == [identity(NAMES)]


@pytest.mark.parametrize(
    "who",
    [
        pytest.param("traffic", id="who produces does not write the view"),
        pytest.param("reader", id="who looks writes nothing"),
        pytest.param("portal", id="a service that follows the view does not write it"),
    ],
)
def test_only_the_pipeline_writes_the_view(who: str, broker: SecuredBroker, supplied: Settings) -> None:
    refusals: list[object] = []
    producer = Producer(clients.client_config(broker.of(who, supplied)))
    producer.produce(supplied.view_topic, b"{}", b"key", on_delivery=lambda error, _: refusals.append(error))
    producer.flush(30)
    assert [error.code() in clients.UNAUTHORIZED for error in refusals] == [True]  # type: ignore[attr-defined]
