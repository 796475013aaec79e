"""One look at everything that is read from files, logs and Kafka: what it found is what is exported until the next."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import psutil

from customer_activity import topology
from customer_activity.engine import gate
from customer_activity.engine.gate import Failure
from customer_activity.inspection.status import Report
from customer_activity.inspection.tables import Kept
from customer_activity.metrics.states import State, States
from customer_activity.metrics.usage import Usage, Usages
from customer_activity.quality.newest import Newest, Result
from customer_activity.settings import Settings
from customer_activity.supervision import driver, readiness
from customer_activity.supervision.driver import Driver


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
    states: States = field(init=False)
    usages: Usages = field(default_factory=Usages)
    judged: Newest = field(default_factory=Newest)
    kept: Kept = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with nothing counted."""
        self.states = States(self.settings.index_dir)

    def take(self) -> Look:
        """Look at everything once.

        Raises:
            Exception: something cannot be read.
        """
        started = time.monotonic()
        process = psutil.Process()
        report, found = driver.look(self.settings, process.pid, self.kept)
        # A table that another driver writes may be restored from a backup meanwhile: an open one would not notice.
        own = {table for table in self.kept if self.epochs.keys() >= set(topology.writers(table))}
        self.kept = {table: self.kept[table] for table in own}
        up = time.time() - process.create_time()
        return Look(
            report,
            found,
            readiness.not_ready(report, self.epochs, up, self.settings),
            dict(self.epochs),
            gate.failures(self.settings.lake),
            self.judged.read(self.settings.lake),
            self.states.read(),
            self.usages.read(process),
            process.create_time(),
            time.monotonic() - started,
        )
