"""What the running queries tell: a status file each for `activity status`."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from customer_activity.engine import pids
from customer_activity.lake.microbatch import Placement

HELD = "held"  # a publisher's state while quality holds its gate shut
QUIET_SECONDS = 3.0  # between two writes of a status that says nothing new; who has written none for ten is silent

Written = dict[str, tuple[float, tuple[str | None, ...]]]  # by query: when its status was written, and what it said


def now() -> str:
    """Return the time as text, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass
class QueryStatus:
    """One query's state, as its status file has it.

    Attributes:
        query: which query.
        state: starting, running, held, stopped or failed.
        pid: the driver's process.
        process_start: when that started, by which it is told from another process with its number (`pids.py`).
        host: the machine, or the container, that has it.
        updated_at: when this was written, UTC.
        batch_id: the last finished batch.
        batch_rows: rows in it.
        rows_per_second: of it.
        placement: where it was worked on, and why; empty where its stream always works.
        batch_seconds: how long it took.
        last_batch_at: when it ended, UTC.
        rows_total: rows since the driver started.
        phases: milliseconds by phase of the last batch: read, compute, write, commit, publish.
        spark_phases: milliseconds by phase of the last trigger, as Spark reports them.
        message: why it failed, or is held.
        exit_code: what its driver ends with because it failed; None where it has not.
        progress: how far a batch is that takes its time, in words; empty for the others.
        progress_at: when that was told, UTC.
        idle_at: when it last looked for something to read and found nothing, UTC; Spark tells so every ten seconds.
    """

    query: str
    state: str = "starting"
    pid: int = field(default_factory=os.getpid)
    process_start: float | None = field(init=False)
    host: str = field(default_factory=socket.gethostname)
    updated_at: str = field(default_factory=now)
    batch_id: int | None = None
    batch_rows: int = 0
    rows_per_second: float = 0.0
    placement: str = ""
    batch_seconds: float = 0.0
    last_batch_at: str | None = None
    rows_total: int = 0
    phases: dict[str, float] = field(default_factory=dict)
    spark_phases: dict[str, int] = field(default_factory=dict)
    message: str = ""
    exit_code: int | None = None
    progress: str = ""
    progress_at: str | None = None
    idle_at: str | None = None

    def __post_init__(self) -> None:
        """Note which process it is that has the number."""
        self.process_start = pids.start_time(self.pid)

    def moved(self, progress: str) -> None:
        """Note how far the batch at work is: supervision takes it for a sign of life."""
        self.progress, self.progress_at = progress, now()

    def failed(self, why: str, exit_code: int) -> None:
        """Note that it ended, and why: supervision tells by the exit code whether a restart may help."""
        self.state, self.message, self.exit_code = "failed", why, exit_code

    def finished(
        self,
        batch_id: int,
        rows: int,
        seconds: float,
        phases: Mapping[str, float],
        placement: Placement | None = None,
    ) -> None:
        """Note a finished batch."""
        self.placement = "" if placement is None else f"{placement.place}: {placement.why}"
        self.phases = {name: round(millis, 1) for name, millis in phases.items()}
        self.batch_id, self.batch_rows, self.batch_seconds = batch_id, rows, round(seconds, 3)
        self.rows_per_second = round(rows / seconds, 1) if seconds else 0.0
        self.rows_total += rows
        self.last_batch_at = now()
        self.progress, self.progress_at = "", None

    def write(self, run_dir: Path) -> None:
        """Write the status file; a reader never sees half of one."""
        self.updated_at = now()
        folder = run_dir / "status"
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{self.query}.{self.pid}"
        draft.write_text(json.dumps(asdict(self)), encoding="utf-8")
        draft.replace(folder / f"{self.query}.json")


def is_due(status: QueryStatus, written: Written) -> bool:
    """Whether a status says something new, or was written a while ago; notes that it is written now.

    By the clock on the wall, as those who read it: after a machine was asleep it is due at once.
    """
    says, now = (status.state, status.last_batch_at, status.progress_at), time.time()
    at, said = written.get(status.query, (now, None))
    if says == said and abs(now - at) < QUIET_SECONDS:
        return False
    written[status.query] = now, says
    return True
