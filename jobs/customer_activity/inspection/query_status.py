"""What a query says of itself: its status file, and whether the process that wrote it still runs."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psutil

from customer_activity import topology
from customer_activity.engine import pids
from customer_activity.engine.observability import HELD
from customer_activity.lake.microbatch import Place, Placement
from customer_activity.settings import Settings

# A running application writes its status files every three seconds, and right before maintenance that may take longer.
SILENT_SECONDS = 10.0


@dataclass
class QueryReport:
    """What is known of one stream, which its own files call a query."""

    query: str
    # Running, starting, held (by quality), stopped, failed; dead (its process is gone), silent (no sign for 10 s), not
    # started; off, though it has run before (of `Report.off`).
    state: str
    message: str = ""  # why it failed, or what its state means
    exit_code: int | None = None  # what its driver ended with because it failed; None where it has not, or is unknown
    pid: int | None = None  # the driver's process; None where it is another host's, or its number went to another
    # Its last batch: id, rows, seconds, at, and placement (where it was worked on, and why). Of a query that left no
    # status, only id and at.
    batch: dict[str, Any] | None = None
    progress_at: str | None = None  # when the batch at work last told how far it is, UTC; `message` has the words
    idle_at: str | None = None  # when it last found nothing to read, UTC
    rows_per_second: float | None = None  # of the last batch
    rows_total: int | None = None  # rows since its driver started
    # Milliseconds by phase of the last batch: read, compute, write, commit, publish; `turn` is what it waited for the
    # next one's turn, `spark` what the trigger took around it (offsets, planning, checkpoint).
    phases: dict[str, float] = field(default_factory=dict)
    lag_records: int | None = None  # Kafka records not yet landed (bronze); None when unknown
    lag_versions: int | None = None  # commits of upstream tables not yet read (the others); None when unknown
    lag: dict[str, int] = field(default_factory=dict)  # the same by topic or table
    unread_since: str | None = None  # when the oldest of those commits was made, UTC; None when unknown
    held_back: int = 0  # offsets of its topics behind transactions that have been open for a minute
    is_current: bool = False  # whether it and every query before it have read everything
    # Kafka timestamp of the oldest input that has not come through it, UTC; None when it is current, or unknown.
    waiting_since: str | None = None
    freshness_seconds: float | None = None  # for how long that has waited; 0 when it is current, None when unknown

    @property
    def placed(self) -> Placement | None:
        """Where the last batch was worked on, and why there; None where its stream has no choice, or nothing tells."""
        place, _, why = (self.batch or {}).get("placement", "").partition(": ")
        return Placement(Place(place), why) if place else None

    @property
    def is_caught_up(self) -> bool:
        """Whether nothing is left for it to read."""
        return 0 in (self.lag_records, self.lag_versions)


def states(settings: Settings) -> list[QueryReport]:
    """Return what the status files say and whether their processes still run, and nothing else."""
    return [read(settings, query) for query in topology.names()]


def read(settings: Settings, query: str) -> QueryReport:
    """Return what a query's status file says, and whether its process still stands behind it."""
    path = settings.run_dir / "status" / f"{query}.json"
    try:
        status = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return QueryReport(query, "not started")
    except (OSError, ValueError) as error:
        return QueryReport(query, "unknown", f"{path} cannot be read ({type(error).__name__})")
    state, message = status["state"], status["message"]
    age = (datetime.now(UTC) - datetime.fromisoformat(status["updated_at"])).total_seconds()
    is_at_work = state in ("starting", "running", HELD)
    pid, start = status["pid"], status.get("process_start")  # a file of an older release does not tell the start
    # Another container has other processes; a host that was renamed meanwhile has the same.
    is_here = status.get("host", socket.gethostname()) == socket.gethostname() or pids.is_same(pid, start)
    is_reused = is_here and pids.is_reused(pid, start)
    if is_at_work and is_here and (is_reused or not is_alive(pid)):
        state, message = "dead", f"its process {pid} ended and left no message"
    elif is_at_work and age > SILENT_SECONDS:
        state, message = "silent", f"process {pid} has written no status for {age:.0f} s"
    last = {
        "id": status["batch_id"],
        "rows": status["batch_rows"],
        "seconds": status["batch_seconds"],
        "at": status["last_batch_at"],
        "placement": status.get("placement", ""),
    }
    return QueryReport(
        query,
        state,
        message or (status.get("progress", "") if is_at_work else ""),  # one that was stopped waits for nothing
        exit_code=status.get("exit_code"),  # one of an older release has none
        pid=pid if is_here and not is_reused else None,
        batch=last if status["batch_id"] is not None else None,
        progress_at=status.get("progress_at"),
        idle_at=status.get("idle_at"),
        rows_per_second=status["rows_per_second"],
        rows_total=status["rows_total"],
        phases=_phases(status),
    )


def _phases(status: dict[str, Any]) -> dict[str, float]:
    """Return the last batch's phases, and what its trigger spent beside them."""
    phases = {name: float(millis) for name, millis in status.get("phases", {}).items()}
    spark = status.get("spark_phases", {})
    if phases and {"triggerExecution", "addBatch"} <= spark.keys():
        phases["spark"] = float(spark["triggerExecution"] - spark["addBatch"])
    return phases


def is_alive(pid: int) -> bool:
    """Whether a process of this machine runs."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
