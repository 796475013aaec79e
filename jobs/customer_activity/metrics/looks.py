"""One look at everything that is read from files, logs and Kafka: what it found is what is exported until the next."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import psutil

from customer_activity.engine import gate
from customer_activity.engine.gate import Failure
from customer_activity.inspection.status import Report
from customer_activity.quality.newest import Newest, Result
from customer_activity.settings import Settings
from customer_activity.state import local
from customer_activity.supervision import driver, readiness
from customer_activity.supervision.driver import Driver

COUNT_SHARE = 100  # rows of local state are counted again after so many times what it took: a hundredth of a core


class State(NamedTuple):
    """A stream's local state: its rows, None where they could not be counted, and its bytes."""

    rows: int | None
    size_bytes: int


class Usage(NamedTuple):
    """What some of the driver's processes have used: seconds of processor time, and bytes of memory now."""

    cpu_seconds: float
    memory_bytes: int


@dataclass(frozen=True)
class Look:
    """What a look found.

    Attributes:
        report: how streams, tables and topics are.
        driver: how the driver is, as supervision judges it.
        not_ready: why a stream is not ready, by stream.
        epochs: the fencing epoch of each stream of this driver.
        gate: rules that have failed.
        quality: what the rules came to last.
        states: local state by stream.
        processes: what the driver's processes use, by kind.
        started_at: when the driver's process started, in seconds since the epoch.
        seconds: how long the look took.
    """

    report: Report
    driver: Driver
    not_ready: Mapping[str, str]
    epochs: Mapping[str, int]
    gate: Mapping[str, Failure]
    quality: tuple[Result, ...]
    states: Mapping[str, State]
    processes: Mapping[str, Usage]
    started_at: float
    seconds: float

    @property
    def at(self) -> datetime:
        """When it was taken."""
        return self.report.at.astimezone(UTC)


@dataclass
class Looking:
    """Takes looks, and remembers what need not be read again.

    Attributes:
        settings: which lake, which Kafka.
        epochs: the fencing epoch of each stream that this driver runs.
    """

    settings: Settings
    epochs: Mapping[str, int]
    counted: dict[str, tuple[float, int]] = field(default_factory=dict)  # rows of a state, and from when on again
    judged: Newest = field(default_factory=Newest)

    def take(self) -> Look:
        """Look at everything once.

        Raises:
            Exception: something cannot be read.
        """
        started = time.monotonic()
        process = psutil.Process()
        report, found = driver.look(self.settings)
        up = time.time() - process.create_time()
        return Look(
            report,
            found,
            readiness.not_ready(report, self.epochs, up, self.settings),
            dict(self.epochs),
            gate.failures(self.settings.lake),
            self.judged.read(self.settings.lake),
            {name: self._state(name) for name in local.streams(self.settings.index_dir)},
            usages(process),
            process.create_time(),
            time.monotonic() - started,
        )

    def _state(self, name: str) -> State:
        """Return the size of a stream's state; its rows are counted again only after some time."""
        folder, now = self.settings.index_dir, time.monotonic()
        again, rows = self.counted.get(name, (0.0, None))
        if now >= again:
            try:
                rows = local.rows(folder, name)
            except sqlite3.Error:  # it is being made: the next look counts
                return State(None, local.size(folder, name))
            ended = time.monotonic()
            self.counted[name] = ended + COUNT_SHARE * (ended - now), rows
        return State(rows, local.size(folder, name))


def usages(process: psutil.Process) -> dict[str, Usage]:
    """Return what a process and those that it started use: `python` is itself, `jvm` and `workers` are below it."""
    used: dict[str, Usage] = {}
    for kind, each in [("python", process), *((_kind(child), child) for child in process.children(recursive=True))]:
        try:
            times, memory = each.cpu_times(), each.memory_info().rss
        except psutil.Error:  # it has ended
            continue
        before = used.get(kind, Usage(0.0, 0))
        used[kind] = Usage(before.cpu_seconds + times.user + times.system, before.memory_bytes + memory)
    return used


def _kind(child: psutil.Process) -> str:
    try:
        return "jvm" if child.name() == "java" else "workers"
    except psutil.Error:
        return "workers"
