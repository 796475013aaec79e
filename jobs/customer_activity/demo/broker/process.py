"""A real Kafka broker in KRaft mode from jars, for laptops and tests: start, stop, and whether it runs.

It is a process of its own session with its number, log, configuration and data in `ACTIVITY_BROKER_DIR`.
"""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from customer_activity.demo.broker import node
from customer_activity.errors import BrokerUnavailable, EnvironmentFault
from customer_activity.kafka import clients
from customer_activity.settings import Settings

START_SECONDS = 60.0  # a cold start on a busy laptop; a warm one takes four
STOP_SECONDS = 30.0  # a clean shutdown writes the recovery points of the log; killed after that
POLL_SECONDS = 0.2
LAST_LINES = 5


class BrokerStatus(NamedTuple):
    """Whether the embedded broker's process runs and answers a client, and the host:port that it serves."""

    is_running: bool
    is_answering: bool
    pid: int | None
    address: str
    log: Path


def status(settings: Settings) -> BrokerStatus:
    """Tell whether the embedded broker of these settings runs and answers."""
    process = find(settings)
    return BrokerStatus(
        is_running=process is not None,
        is_answering=process is not None and clients.is_answering(settings),
        pid=process.pid if process else None,
        address=settings.kafka_bootstrap_servers,
        log=log_path(settings),
    )


def start(settings: Settings) -> bool:
    """Start the broker and wait until it answers; return False when it ran already.

    Raises:
        SettingsError: the bootstrap address is not one that it can listen on.
        EnvironmentFault: no Java, no jars, the port is taken, or Kafka ended; carries the end of its log.
        BrokerUnavailable: it does not answer in time.
    """
    host, port = node.address(settings)
    settings.broker_dir.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(settings):
        process = find(settings)
        if process is None:
            if node.is_taken(host, port):
                raise port_taken(host, port)
            process = _launch(settings)
            is_new = True
        else:
            is_new = False
        try:
            _wait_for_answer(settings, process)
        except BaseException:
            if is_new:  # a start that failed or was interrupted leaves nothing behind
                _end(process)
            raise
        return is_new


def stop(settings: Settings) -> bool:
    """Stop the broker and wait for its end; return False when it did not run."""
    process = find(settings)
    if process is not None:
        _end(process)
    pid_path(settings).unlink(missing_ok=True)
    return process is not None


def kill(settings: Settings) -> None:
    """End the broker at once, as a crash would."""
    process = find(settings)
    if process is not None:
        process.kill()
        process.wait(STOP_SECONDS)


def find(settings: Settings) -> psutil.Process | None:
    """Return the broker's process; one that only inherited its number is not it."""
    try:
        process = psutil.Process(int(pid_path(settings).read_text(encoding="utf-8")))
        is_ours = str(settings.broker_dir / "server.properties") in process.cmdline()
        return process if is_ours and process.status() != psutil.STATUS_ZOMBIE else None
    except (OSError, ValueError, psutil.Error):
        return None


def port_taken(host: str, port: int) -> EnvironmentFault:
    """Make the error that says who has the port."""
    return EnvironmentFault(
        f"port {port} of {host} is taken by {_listener(port)}",
        remedy=f"stop that, or set {node.BOOTSTRAP} to another port, such as localhost:{port + 100}",
    )


def pid_path(settings: Settings) -> Path:
    """Where the number of the broker's process is."""
    return settings.broker_dir / "broker.pid"


def log_path(settings: Settings) -> Path:
    """Where the broker logs."""
    return settings.broker_dir / "broker.log"


def _launch(settings: Settings) -> psutil.Process:
    properties = node.configure(settings)
    node.format_once(settings, properties)
    log = log_path(settings)
    if log.exists():
        log.replace(log.with_name(f"{log.name}.1"))
    with log.open("wb") as output:
        broker = subprocess.Popen(  # noqa: S603 - our own command line
            [*node.java(settings), f"-Xmx{node.HEAP}", "kafka.Kafka", str(properties)],
            cwd=settings.broker_dir,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # it outlives the command that started it
        )
    pid_path(settings).write_text(str(broker.pid), encoding="utf-8")
    broker.returncode = 0  # it is left running on purpose, and Popen would warn of that; psutil watches it from here
    return psutil.Process(broker.pid)


def _wait_for_answer(settings: Settings, process: psutil.Process) -> None:
    waiting = Retrying(
        retry=retry_if_exception_type(BrokerUnavailable),
        stop=stop_after_delay(START_SECONDS),
        wait=wait_fixed(POLL_SECONDS),
    )
    log = log_path(settings)
    try:
        waiting(_expect_answer, settings, process)
    except RetryError:
        raise BrokerUnavailable(
            f"the broker does not answer after {START_SECONDS:.0f} s: {_last_lines(log)}", remedy=f"see {log}"
        ) from None


def _expect_answer(settings: Settings, process: psutil.Process) -> None:
    if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
        log = log_path(settings)
        raise EnvironmentFault(
            f"the broker ended while starting: {_last_lines(log)}",
            remedy=f"see {log}; `activity doctor` checks Java, jars and disk",
        )
    if not clients.is_answering(settings):
        raise BrokerUnavailable(f"no answer yet from {settings.kafka_bootstrap_servers}")


def _end(process: psutil.Process) -> None:
    try:
        process.terminate()
        process.wait(STOP_SECONDS)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS)
    except psutil.NoSuchProcess:  # it ended by itself meanwhile
        return


@contextmanager
def _one_at_a_time(settings: Settings) -> Iterator[None]:
    """Hold the folder's lock, so that of two starts at once the second finds the broker of the first."""
    with (settings.broker_dir / "start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _listener(port: int) -> str:
    """Name the process that listens on a port, as far as the system lets us see."""
    try:
        found = psutil.net_connections(kind="tcp")
        pids = {c.pid for c in found if c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port and c.pid}
        names = [f"{psutil.Process(pid).name()} (pid {pid})" for pid in sorted(pids)]
    except psutil.Error:
        names = []
    return ", ".join(names) or "another process"


def _last_lines(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
    return " | ".join(lines) or "its log is empty"
