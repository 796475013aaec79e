"""A real Kafka broker in KRaft mode from jars, for laptops and tests: start, stop, and whether it runs."""

from __future__ import annotations

import base64
import ipaddress
import os
import shutil
import signal
import socket
import subprocess
import uuid
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka import KafkaException
from tenacity import RetryError, Retrying, retry_if_exception_type, retry_if_result, stop_after_delay, wait_fixed

from customer_activity import kafka
from customer_activity.errors import BrokerUnavailable, EnvironmentFault, SettingsError
from customer_activity.settings import Settings

START_SECONDS = 60.0  # a cold start on a busy laptop; a warm one takes three
STOP_SECONDS = 30.0  # a clean shutdown writes the log's recovery points; killed after that
POLL_SECONDS = 0.2
HEAP = "1g"

LOG4J = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS} %p %c{1} %m%n
"""


class BrokerStatus(NamedTuple):
    """Whether the embedded broker runs.

    Attributes:
        is_running: its process is alive.
        pid: of the process, when alive.
        address: host:port that it serves.
        log: its log file.
    """

    is_running: bool
    pid: int | None
    address: str
    log: Path


def address(settings: Settings) -> tuple[str, int]:
    """Return where the broker listens: the bootstrap address, which must be on this machine.

    Raises:
        SettingsError: it is a list, has no port, or is another machine's.
    """
    host, _, port = settings.kafka_bootstrap_servers.rpartition(":")
    if "," in settings.kafka_bootstrap_servers or not host or not port.isdecimal():
        raise SettingsError(
            f"ACTIVITY_KAFKA_BOOTSTRAP_SERVERS={settings.kafka_bootstrap_servers}: the embedded broker listens on one host:port",
            remedy="set one loopback address, such as localhost:9092",
        )
    if host != "localhost" and not (_is_ip(host) and ipaddress.ip_address(host).is_loopback):
        raise SettingsError(
            f"ACTIVITY_KAFKA_BOOTSTRAP_SERVERS={settings.kafka_bootstrap_servers} is not on this machine",
            remedy="the embedded broker serves loopback only; use the cluster that is there, or set localhost:9092",
        )
    return ("127.0.0.1" if host == "localhost" else host), int(port)


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def status(settings: Settings) -> BrokerStatus:
    """Tell whether the embedded broker runs."""
    process = _process(settings)
    return BrokerStatus(process is not None, process.pid if process else None, settings.kafka_bootstrap_servers, _log(settings))


def start(settings: Settings) -> bool:
    """Start the broker and wait until it answers; return False when it ran already.

    Raises:
        EnvironmentFault: no Java, no jars, or the port is somebody else's.
        BrokerUnavailable: it did not come up; the message has the end of its log.
    """
    host, port = address(settings)
    if _process(settings) is not None:
        _wait_until_it_answers(settings)
        return False
    classpath = settings.jars_dir / "broker"
    if not any(classpath.glob("kafka_*.jar")):
        raise EnvironmentFault(f"no broker jars in {classpath}", remedy="run `make setup`")
    if shutil.which("java") is None:
        raise EnvironmentFault("no java on the PATH", remedy="install Java 17 or later")
    if _is_taken(host, port):
        raise EnvironmentFault(f"port {port} is taken by another process", remedy="free it, or set ACTIVITY_KAFKA_BOOTSTRAP_SERVERS to another port")
    settings.broker_dir.mkdir(parents=True, exist_ok=True)
    properties = _write_properties(settings.broker_dir, host, port)
    _format_once(settings, properties)
    with _log(settings).open("ab") as log:
        broker = subprocess.Popen(  # noqa: S603 - our own command line
            [*_java(settings), f"-Xmx{HEAP}", "kafka.Kafka", str(properties)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # it outlives the command that started it
        )
    _pid_file(settings).write_text(str(broker.pid), encoding="utf-8")
    _wait_until_it_answers(settings)
    return True


def stop(settings: Settings) -> bool:
    """Stop the broker and wait for its end; return False when it did not run."""
    process = _process(settings)
    if process is not None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)
    _pid_file(settings).unlink(missing_ok=True)
    return process is not None


def kill(settings: Settings) -> None:
    """End the broker at once, as a crash would."""
    process = _process(settings)
    if process is not None:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(STOP_SECONDS)


def _process(settings: Settings) -> psutil.Process | None:
    """Return the broker's process; a pid that now belongs to something else is not it."""
    try:
        process = psutil.Process(int(_pid_file(settings).read_text(encoding="utf-8")))
        if process.status() != psutil.STATUS_ZOMBIE and str(settings.broker_dir) in " ".join(process.cmdline()):
            return process
    except (OSError, ValueError, psutil.NoSuchProcess):
        return None
    return None


def _pid_file(settings: Settings) -> Path:
    return settings.broker_dir / "broker.pid"


def _log(settings: Settings) -> Path:
    return settings.broker_dir / "broker.log"


def _java(settings: Settings) -> list[str]:
    log4j = settings.broker_dir / "log4j2.properties"
    log4j.write_text(LOG4J, encoding="utf-8")
    return ["java", "-cp", f"{settings.jars_dir / 'broker'}/*", f"-Dlog4j2.configurationFile={log4j.as_uri()}"]


def _is_taken(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _write_properties(folder: Path, host: str, port: int) -> Path:
    """Write server.properties: one node that is broker and controller, everything on loopback."""
    path = folder / "server.properties"
    controller = _free_port(host)
    lines = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{host}:{controller}",
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{host}:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / "data",
        "auto.create.topics.enable": "false",
        "default.replication.factor": 1,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        "log.retention.hours": -1,
    }
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()), encoding="utf-8")
    return path


def _format_once(settings: Settings, properties: Path) -> None:
    if (settings.broker_dir / "data" / "meta.properties").exists():
        return
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    formatted = subprocess.run(  # noqa: S603 - our own command line
        [*_java(settings), "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)],
        capture_output=True,
        text=True,
        check=False,
    )
    if formatted.returncode != 0:
        raise EnvironmentFault(f"the broker's storage could not be formatted: {formatted.stdout}{formatted.stderr}", remedy=f"look at {settings.broker_dir}")


def _wait_until_it_answers(settings: Settings) -> None:
    """Wait until the broker tells its topics, or its process has died."""

    def answers() -> bool:
        if _process(settings) is None:
            raise BrokerUnavailable(f"the broker ended while starting: {_tail(_log(settings))}", remedy=f"see {_log(settings)}")
        return bool(kafka.admin(settings).list_topics(timeout=1.0).brokers)

    waiting = Retrying(
        retry=retry_if_exception_type(KafkaException) | retry_if_result(lambda ready: not ready),
        stop=stop_after_delay(START_SECONDS),
        wait=wait_fixed(POLL_SECONDS),
    )
    try:
        waiting(answers)
    except RetryError:
        raise BrokerUnavailable(f"the broker does not answer after {START_SECONDS:.0f} s: {_tail(_log(settings))}", remedy=f"see {_log(settings)}") from None


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:] if log.exists() else []
    return " | ".join(lines) or "its log is empty"
