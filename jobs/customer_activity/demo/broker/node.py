"""The embedded broker's address, configuration and storage: one node that is broker and controller, on loopback."""

from __future__ import annotations

import base64
import errno
import os
import shutil
import socket
import subprocess
import uuid
from pathlib import Path

from customer_activity.errors import EnvironmentFault, SettingsError
from customer_activity.kafka import clients
from customer_activity.settings import PROJECT, TO_GET_JARS, Settings

HEAP = "1g"
LOG4J_FILE = PROJECT / "infra" / "kafka" / "log4j2.properties"
# An archive of Kafka's classes, which set-up made: a JVM leaves one of other jars alone, and need not say so.
QUIET_ARCHIVE = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
BOOTSTRAP = "ACTIVITY_KAFKA_BOOTSTRAP_SERVERS"


def address(settings: Settings) -> tuple[str, int]:
    """Return the host and port that the broker listens on: the bootstrap address, which must be loopback.

    Raises:
        SettingsError: it is a list, has no port, is another machine's, or clients are told to use security.
    """
    servers = settings.kafka_bootstrap_servers
    host, _, port = servers.rpartition(":")
    if "," in servers or not host or not port.isdecimal():
        raise SettingsError(
            f"{BOOTSTRAP}={servers}: the embedded broker listens on one host:port",
            remedy="set one loopback address, such as localhost:9092",
        )
    if not clients.is_loopback(host):
        raise SettingsError(
            f"{BOOTSTRAP}={servers} is not a loopback address of this machine",
            remedy="use the cluster that is there, or set localhost:9092 for the embedded broker",
        )
    if clients.security(settings).java.get("security.protocol", "PLAINTEXT").upper() != "PLAINTEXT":
        raise SettingsError(
            "ACTIVITY_KAFKA_CONFIG asks for a secured connection, and the embedded broker has none",
            remedy="unset it for the embedded broker",
        )
    return ("127.0.0.1" if host == "localhost" else host), int(port)


def java(settings: Settings) -> list[str]:
    """Return the command that runs a class of Kafka.

    Raises:
        EnvironmentFault: there is no Java, or there are no jars.
    """
    home = os.environ.get("JAVA_HOME")  # Spark follows it too, so both run on the same Java
    program = shutil.which(f"{home}/bin/java" if home else "java")
    if program is None:
        raise EnvironmentFault(
            f"no Java in {home}" if home else "no Java on the PATH", remedy="install Java 17 or later; set JAVA_HOME"
        )
    jars = settings.jars_dir / "broker"
    if not any(jars.glob("kafka_*.jar")):
        raise EnvironmentFault(f"no broker jars in {jars}", remedy=TO_GET_JARS)
    archive = settings.jars_dir / "broker.jsa"
    shared = [f"-XX:SharedArchiveFile={archive}", *QUIET_ARCHIVE] if archive.exists() else []
    return [program, *shared, "-cp", f"{jars}/*", f"-Dlog4j2.configurationFile={LOG4J_FILE.as_uri()}"]


def configure(settings: Settings) -> Path:
    """Write server.properties and return its path. Topics keep what they want kept by their own settings."""
    host, port = address(settings)
    controller = _free_port(host)
    properties = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{host}:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{host}:{controller}",
        "log.dirs": data(settings),
        # A topic that nobody declared is a mistake, not a topic.
        "auto.create.topics.enable": "false",
        # One broker holds every replica that there is.
        "default.replication.factor": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        # 50 partitions each would be opened at every start, for a handful of clients.
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        # Nobody else is about to join a consumer group here.
        "group.initial.rebalance.delay.ms": 0,
    }
    path = settings.broker_dir / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8")
    return path


def format_once(settings: Settings, properties: Path) -> None:
    """Give the storage a cluster id, unless it has one.

    Raises:
        EnvironmentFault: Kafka refuses; carries what it said.
    """
    if (data(settings) / "meta.properties").exists():
        return
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")  # one in 64 begins with a dash
    answer = subprocess.run(  # noqa: S603 - our own command line
        [*java(settings), "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "--config", str(properties)],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        words = (answer.stderr or answer.stdout).strip().splitlines()
        raise EnvironmentFault(
            f"Kafka cannot use {data(settings)}: {words[-1] if words else 'no reason given'}",
            remedy="look at what is in that folder, or set ACTIVITY_BROKER_DIR to another",
        )


def data(settings: Settings) -> Path:
    """Where the broker keeps its log segments and metadata."""
    return settings.broker_dir / "data"


def is_taken(host: str, port: int) -> bool:
    """Whether something listens on a port already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that just closed do not count
        try:
            probe.bind((host, port))
        except OSError as error:  # without the right to a port the broker itself says so
            return error.errno == errno.EADDRINUSE
    return False


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
