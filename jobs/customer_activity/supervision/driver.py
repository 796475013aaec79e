"""The streams' driver as a supervisor sees it: started once, found again, watched, stopped.

A supervisor (an Airflow task, systemd, a shell script) may come and go: the driver is a process of its own, known by
the files in its `ACTIVITY_RUN_DIR`. Started with `--attended`, it stops by itself when no supervisor is left.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

import psutil

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.engine import heartbeat, pids
from customer_activity.engine.observability import HELD
from customer_activity.errors import TransientError
from customer_activity.inspection import status
from customer_activity.inspection.query_status import QueryReport
from customer_activity.inspection.status import Report
from customer_activity.inspection.tables import Kept
from customer_activity.settings import Settings
from customer_activity.supervision import endpoint, processes, readiness, running
from customer_activity.supervision.running import STREAM

STALLED_SECONDS = 120.0  # a batch of a backlog takes less, and a query without one that has something to read is stuck
START_SECONDS = 120.0
LOOK_SECONDS = 0.5
ANSWER_SECONDS = 30.0  # what a driver says of itself is not older: it looks every 10 s while somebody asks
READY = "/readyz"


class State(StrEnum):
    """How the driver is."""

    STARTING = "starting"
    RUNNING = "running"
    STALLED = "stalled"
    FAILED = "failed"
    DEAD = "dead"
    STOPPED = "stopped"

    @property
    def is_well(self) -> bool:
        """Whether nothing needs to be done about it."""
        return self in (State.STARTING, State.RUNNING)


class Driver(NamedTuple):
    """The driver at one moment."""

    state: State
    message: str = ""  # why it is not well, or what holds publishing
    pid: int | None = None  # its process; None when none runs
    seconds: float | None = None  # since it started; None when none runs
    lag_records: int | None = None  # records of Kafka that have not landed; None when unknown
    lag_versions: int | None = None  # commits that the streams have not read, of all together; None when unknown
    batch_age_seconds: float | None = None  # since any query finished a batch; None when none has
    freshness_seconds: float | None = None  # how long the oldest input not on the view has waited; None when unknown
    gold_version: int = -1  # version of gold.customer_activity
    gold_rows: int = 0
    not_ready: str = ""  # which streams are not, and why
    last_words: str = ""  # the end of its log, when it ended and was not told to
    process_start: float | None = None  # of its process, which tells it from another with its number (`engine/pids.py`)
    exit_code: int | None = None  # what it ended with, where a stream's status says so; 2 when a restart does not help
    placed: str = ""  # where its streams' last batches were worked on, and why there

    def as_json(self) -> dict[str, Any]:
        """Return it with plain values."""
        return {**self._asdict(), "state": self.state.value}


def observe(settings: Settings) -> Driver:
    """Return how the driver is: as it says itself where it answers, else as it looks from outside.

    What it says is made of the same files and logs, by the same rules; who asks is spared reading them. A driver that
    is frozen, or whose own look is old, has no say.
    """
    pid = next(iter(running.stream_pids(settings)), None)
    found = None if pid is None else answered(endpoint.ask(settings, READY), pid, datetime.now(UTC))
    return found or look(settings)[1]


def answered(answer: Mapping[str, Any] | None, pid: int, now: datetime) -> Driver | None:
    """Return what a driver says of itself; None where it is another one that answers, or its look is old."""
    try:
        said, at = dict((answer or {})["driver"]), datetime.fromisoformat((answer or {})["at"])
        if (
            said["pid"] != pid
            or pids.is_reused(pid, said.get("process_start"))
            or (now - at).total_seconds() > ANSWER_SECONDS
        ):
            return None
        return Driver(State(said.pop("state")), **said)
    except (KeyError, TypeError, ValueError):  # of another release
        return None


def look(settings: Settings, own: int | None = None, kept: Kept | None = None) -> tuple[Report, Driver]:
    """Look at the driver once, from outside: it is not disturbed.

    A driver that looks at itself says its process (`own`), because until its streams run the files are its
    predecessor's, and keeps tables open for the next look (`kept`).
    """
    report = status.report(settings, kept=kept)
    pid = own or next(iter(running.stream_pids(settings)), None)
    seconds = _up(pid)
    if seconds is None:  # it ended just now
        pid = None
    state, message = judged(report, pid, seconds, settings)
    by_query = {query.query: query for query in report.queries}
    publisher = by_query[topology.publishing().name]
    ours = [query.query for query in report.queries if query.pid == pid]
    not_ready = readiness.not_ready(report, ours, seconds or 0.0, settings) if pid is not None else {}
    ages = [age for query in report.queries if (age := readiness.batch_age(query, report.at)) is not None]
    lags = [query.lag_versions for query in report.queries if query.lag_versions is not None]
    driver = Driver(
        state,
        message or (publisher.message if publisher.state == HELD else ""),
        pid,
        seconds and round(seconds, 1),
        by_query[topology.landing().name].lag_records,
        sum(lags) if lags else None,
        round(min(ages), 1) if ages else None,
        publisher.freshness_seconds,
        report.version(Table.ACTIVITY),
        report.rows(Table.ACTIVITY),
        "; ".join(f"{stream}: {why}" for stream, why in not_ready.items()),
        processes.last_lines(settings, STREAM) if state in (State.FAILED, State.DEAD) else "",
        None if pid is None else pids.start_time(pid),
        failed.exit_code if state is State.FAILED and (failed := _failed(report)) is not None else None,
        "; ".join(f"{query.query} {query.placed}" for query in report.queries if query.query in ours and query.placed),
    )
    return report, driver


def _up(pid: int | None) -> float | None:
    """Seconds that a process has been running; None when it does not run."""
    try:
        return None if pid is None else time.time() - psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None


def judged(report: Report, pid: int | None, seconds: float | None, settings: Settings) -> tuple[State, str]:
    """Judge how a driver is that started so many seconds ago, by what its streams say; pure.

    What runs behind the hot path may wait for its own pace before it looks again.
    """
    if pid is None or seconds is None:
        return _ended(report)
    ours = [query for query in report.queries if query.pid == pid]
    if not ours or any(query.state == "starting" and query.batch is None for query in ours):
        is_late = seconds > START_SECONDS
        return (State.STALLED, f"it has not started within {START_SECONDS:.0f} s") if is_late else (State.STARTING, "")
    found = (readiness.stuck_for(query, report.at, seconds, STALLED_SECONDS, settings) for query in ours)
    stuck = next((words for words in found if words), "")
    return (State.STALLED, stuck) if stuck else (State.RUNNING, "")


def _ended(report: Report) -> tuple[State, str]:
    """Say how a driver ended that does not run."""
    if (failed := _failed(report)) is not None:
        return State.FAILED, failed.message
    if any(query.state == "dead" for query in report.queries):
        return State.DEAD, "its process ended and left no message"
    return State.STOPPED, ""


def _failed(report: Report) -> QueryReport | None:
    return next((query for query in report.queries if query.state == "failed"), None)


def start(
    settings: Settings, *, attended: float | None, wait_seconds: float
) -> tuple[Driver, subprocess.Popen[bytes] | None]:
    """Start the driver detached, or find the one that runs; return it, and its process where it is a new one.

    With `attended` it stops by itself when nobody has watched it for so many seconds.

    Raises:
        ActivityError: it ended; carries its exit code and last lines.
        TransientError: it has not started in time, and goes on trying.
    """
    heartbeat.touch(settings.run_dir)
    if running.stream_pids(settings):
        return observe(settings), None
    options = [] if attended is None else ["--attended", str(attended)]
    child = processes.start(settings, STREAM, ["stream", *options])
    deadline = time.monotonic() + wait_seconds
    while not running.is_up(settings, child):
        running.check_stream(settings, child)
        if time.monotonic() > deadline:
            raise TransientError(
                f"the driver has not started within {wait_seconds:.0f} s",
                remedy=f"it is still starting; its log is {processes.log_path(settings, STREAM)}",
            )
        heartbeat.touch(settings.run_dir)
        time.sleep(LOOK_SECONDS)
    return observe(settings), child


def watch(settings: Settings, every_seconds: float) -> Iterator[Driver]:
    """Yield how the driver is, until it is not well; whoever reads on pays attention to it."""
    while True:
        heartbeat.touch(settings.run_dir)
        driver = observe(settings)
        yield driver
        if not driver.state.is_well:
            return
        time.sleep(every_seconds)


def stop(settings: Settings, seconds: float) -> bool | None:
    """Stop the driver: a batch in progress may finish, what is left after `seconds` is killed.

    Returns whether it ended by itself; None when none ran.
    """
    pids = running.stream_pids(settings, left_overs=True)
    ended = [processes.stop(pid, seconds=seconds) for pid in pids]
    processes.pid_path(settings, STREAM).unlink(missing_ok=True)
    return all(ended) if ended else None
