"""The doctor finds what is wrong, says it in one line, and says what to do."""

from __future__ import annotations

import hashlib
import re
import shutil
import socket
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from customer_activity.commands import extras
from customer_activity.errors import TopicMismatch
from customer_activity.inspection import doctor, topics
from customer_activity.inspection.doctor import Finding
from customer_activity.kafka import clients
from customer_activity.kafka import topics as broker_topics
from customer_activity.settings import PROJECT, Settings

JARS = {
    "spark/delta-spark_4.0_2.13-4.4.0.jar": b"delta",
    "spark/spark-sql-kafka-0-10_2.13-4.0.0.jar": b"connector",
    "broker/kafka_2.13-4.1.0.jar": b"kafka",
}


def write_java(folder: Path, *lines: str) -> None:
    """Make JAVA_HOME of a folder: a java that prints what it is told."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("\n".join(["#!/bin/sh", *lines]), encoding="utf-8")
    program.chmod(0o755)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A machine where everything is right, with no JVM and no broker."""
    for name, content in JARS.items():
        path = tmp_path / "jars" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "jars" / "own").mkdir()
    (tmp_path / "jars" / "own" / "ours.jar").touch()
    pins = tmp_path / "SHA256SUMS"
    pins.write_text("".join(f"{hashlib.sha256(c).hexdigest()}  {n}\n" for n, c in JARS.items()), encoding="utf-8")
    write_java(tmp_path / "java", "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setattr(doctor, "PINS", pins)
    monkeypatch.setattr(metadata, "version", {"pyspark": "4.0.5", "delta-spark": "4.4.0"}.__getitem__)
    monkeypatch.setattr(topics, "is_reachable", lambda _: True)
    monkeypatch.setattr(clients, "is_answering", lambda _: True)
    monkeypatch.setattr(broker_topics, "warning", lambda _: "")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return Settings(
        kafka_bootstrap_servers=f"localhost:{port}",
        kafka_config=None,
        lake=str(tmp_path / "lake"),
        run_dir=tmp_path / "run",
        broker_dir=tmp_path / "kafka",
        jars_dir=tmp_path / "jars",
    )


def diagnose(settings: Settings) -> list[Finding]:
    """Make every check that the command makes where the demonstration is installed."""
    return doctor.diagnose(settings, extras.checks())


def wrong(settings: Settings) -> list[Finding]:
    return [finding for finding in diagnose(settings) if not finding.ok]


def test_a_machine_where_everything_is_right(settings: Settings) -> None:
    findings = {finding.check: finding for finding in diagnose(settings)}
    assert all(finding.ok and finding.found and not finding.remedy for finding in findings.values())
    assert findings["java"].found.startswith("17.0.15 (")
    assert findings["versions"].found == "pyspark 4.0.5, delta-spark 4.4.0, Kafka connector 4.0.0"
    assert findings["jars"].found.startswith("3 jars in")
    assert findings["port"].found == f"{settings.kafka_bootstrap_servers} is free"


def no_java(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "")


def old_java(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    write_java(settings.jars_dir.parent / "java", "echo 'java version \"1.8.0_402\"' >&2")


def broken_java(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    write_java(settings.jars_dir.parent / "java", "exit 1")


def old_python(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 1, "final", 0))


def other_delta(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", {"pyspark": "4.0.5", "delta-spark": "4.3.1"}.__getitem__)


def other_spark(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", {"pyspark": "4.1.0", "delta-spark": "4.4.0"}.__getitem__)


def missing_jar(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    (settings.jars_dir / "broker" / "kafka_2.13-4.1.0.jar").unlink()


def missing_own_classes(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(settings.jars_dir / "own")


def changed_jar(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    (settings.jars_dir / "broker" / "kafka_2.13-4.1.0.jar").write_bytes(b"something else")


def extra_jar(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    (settings.jars_dir / "spark" / "jackson-core-2.13.5.jar").touch()


def file_in_the_way(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(settings.lake).write_text("not a folder", encoding="utf-8")


def full_disk(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "FREE_BYTES", 1 << 62)


def different_topic(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(_: Settings) -> list[str]:
        raise TopicMismatch("topic view has 1 partitions, the file says 4", remedy="alter it")

    monkeypatch.setattr(broker_topics, "warning", check)


@pytest.mark.parametrize(
    ("fault", "check", "found", "remedy"),
    [
        pytest.param(no_java, "java", "none on the PATH", "install Java 17"),
        pytest.param(old_java, "java", "is Java 1.8.0_402", "install Java 17"),
        pytest.param(broken_java, "java", "does not print its version", "install Java 17"),
        pytest.param(old_python, "python", "3.10.1", "Python 3.11 to 3.13"),
        pytest.param(other_delta, "versions", "delta-spark is 4.3.1 for pyspark 4.0.5, its jar is 4.4.0", "make setup"),
        pytest.param(other_spark, "versions", "its jar is 4.4.0 for Spark 4.0", "ivy.xml"),
        pytest.param(missing_jar, "jars", "broker/kafka_2.13-4.1.0.jar is missing", "make setup"),
        pytest.param(missing_own_classes, "jars", "the classes of infra/spark are missing", "make setup"),
        pytest.param(changed_jar, "jars", "broker/kafka_2.13-4.1.0.jar has other content", "make setup"),
        pytest.param(extra_jar, "jars", "spark/jackson-core-2.13.5.jar is not listed", "make setup"),
        pytest.param(file_in_the_way, "lake", "Not a directory", "ACTIVITY_LAKE"),
        pytest.param(full_disk, "disk", "GiB free", "free some disk"),
        pytest.param(different_topic, "topics", "has 1 partitions, the file says 4", "alter it"),
    ],
)
def test_each_fault_is_found_alone_and_has_a_remedy(
    fault: Callable[[Settings, pytest.MonkeyPatch], None],
    check: str,
    found: str,
    remedy: str,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault(settings, monkeypatch)
    faults = wrong(settings)
    assert [finding.check for finding in faults] == [check]
    assert found in faults[0].found
    assert remedy in faults[0].remedy


def test_no_jars_at_all_is_told_as_that(settings: Settings) -> None:
    shutil.rmtree(settings.jars_dir)
    faults = {finding.check: finding for finding in wrong(settings)}
    assert set(faults) == {"versions", "jars"}
    assert "and 2 more" in faults["jars"].found
    assert all("make setup" in fault.remedy for fault in faults.values())


def test_a_broker_that_is_down_leaves_the_topics_unseen(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "is_reachable", lambda _: False)
    monkeypatch.setattr(clients, "is_answering", lambda _: pytest.fail("asked a broker that accepts no connection"))
    faults = wrong(settings)
    assert [finding.check for finding in faults] == ["broker", "topics"]
    assert "activity broker start" in faults[0].remedy


def test_a_cluster_elsewhere_is_not_told_to_start_here(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "is_reachable", lambda _: False)
    elsewhere = settings.model_copy(update={"kafka_bootstrap_servers": "kafka.example.com:9092"})
    findings = {finding.check: finding for finding in diagnose(elsewhere)}
    assert findings["port"].ok
    assert "broker start" not in findings["broker"].remedy


def test_a_port_with_something_else_on_it(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "is_answering", lambda _: False)
    host, port = "127.0.0.1", int(settings.kafka_bootstrap_servers.rpartition(":")[2])
    with socket.create_server((host, port)):
        faults = wrong(settings)
    assert [finding.check for finding in faults] == ["port", "broker", "topics"]
    assert f"port {port} of {host} is taken by" in faults[0].found


def test_a_wrong_security_file_and_shared_topics_are_faults_of_the_settings(settings: Settings, tmp_path: Path) -> None:
    for changes in ({"kafka_config": tmp_path / "absent"}, {"view_topic": settings.purchase_topic}):
        faults = wrong(settings.model_copy(update=changes))
        assert "settings" in [finding.check for finding in faults]


def test_the_doctor_leaves_nothing_behind(settings: Settings, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    diagnose(settings)
    assert sorted(tmp_path.rglob("*")) == before


def test_every_jar_of_the_list_is_pinned_and_no_other() -> None:
    listed = set()
    for dependency in ET.parse(PROJECT / "infra/jars/ivy.xml").getroot().iter("dependency"):  # noqa: S314 - our own file
        assert dependency.attrib["transitive"] == "false"
        folder = dependency.attrib["conf"].removesuffix("->default")
        listed.add(f"{folder}/{dependency.attrib['name']}-{dependency.attrib['rev']}.jar")
    lines = doctor.PINS.read_text(encoding="utf-8").splitlines()
    assert all(re.fullmatch(r"[0-9a-f]{64}  (spark|s3|broker)/\S+\.jar", line) for line in lines)
    assert {line.split()[1] for line in lines} == listed


def test_the_jars_are_of_the_release_that_pyproject_pins() -> None:
    pins = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    versions = dict(pin.split("==") for pin in pins if "==" in pin)
    names = doctor.PINS.read_text(encoding="utf-8")
    spark = ".".join(versions["pyspark"].split(".")[:2])
    assert f"delta-spark_{spark}_2.13-{versions['delta-spark']}.jar" in names
    assert f"spark-sql-kafka-0-10_2.13-{spark}." in names


def test_what_is_only_to_be_known_of_topics_is_a_note_and_no_fault(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_topics, "warning", lambda _: "topic t keeps records for 7 days")
    (found,) = (finding for finding in diagnose(settings) if finding.check == "topics")
    assert found.ok
    assert "topic t keeps records for 7 days" in found.found
    assert found.remedy
