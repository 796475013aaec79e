"""What the running queries tell: a status file each for `activity status`, and one log line a batch."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import stat
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from customer_activity import shown
from customer_activity.lake.microbatch import Placement

log = logging.getLogger("customer_activity")

HELD = "held"  # a publisher's state while quality holds its gate shut
STANDARD_ERROR = 2
LOG_BYTES = 64 * 2**20  # of a driver's log: most of a day


class _Lines(logging.Formatter):
    """One line an event, with nothing in it that commands a terminal or forges another line; times in UTC."""

    converter = staticmethod(time.gmtime)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Escape what the data brought."""
        return shown.in_a_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Write the stack trace in lines of its own."""
        return shown.stack(ei[1])


def configure_logging() -> None:
    """Log to standard error, one line an event, times in UTC."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    for chatty in ("py4j", "pyspark"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def keep_log_short(folder: Path, most: int = LOG_BYTES) -> None:
    """Rotate this process's log when it has grown large: what was in `<name>.log` is in `<name>.log.1` then.

    The JVM below writes there, too, and cannot be told to open another file. So the log is copied and cut, and what is
    said in the instant between is in neither (as with logrotate's copytruncate). A log elsewhere is left alone.

    Args:
        folder: where logs of detached processes are.
        most: its bytes; below them nothing is done.

    Raises:
        OSError: it cannot be copied, and is as it was.
    """
    said = os.fstat(STANDARD_ERROR)
    if not stat.S_ISREG(said.st_mode) or said.st_size < most:
        return
    for log_file in folder.glob("*.log"):
        if os.path.samestat(log_file.stat(), said):
            shutil.copyfile(log_file, log_file.with_name(f"{log_file.name}.1"))
            os.truncate(log_file, 0)


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
        progress: how far a batch is that takes its time, in words; empty for the others.
        progress_at: when that was told, UTC.
        idle_at: when it last looked for something to read and found nothing, UTC; Spark tells so every ten seconds.
    """

    query: str
    state: str = "starting"
    pid: int = field(default_factory=os.getpid)
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
    progress: str = ""
    progress_at: str | None = None
    idle_at: str | None = None

    def moved(self, progress: str) -> None:
        """Note how far the batch at work is: supervision takes it for a sign of life."""
        self.progress, self.progress_at = progress, now()

    def finished(
        self,
        batch_id: int,
        rows: int,
        seconds: float,
        phases: Mapping[str, float],
        placement: Placement | None = None,
    ) -> None:
        """Note a finished batch and log it."""
        self.placement = "" if placement is None else f"{placement.place}: {placement.why}"
        self.phases = {name: round(millis, 1) for name, millis in phases.items()}
        self.batch_id, self.batch_rows, self.batch_seconds = batch_id, rows, round(seconds, 3)
        self.rows_per_second = round(rows / seconds, 1) if seconds else 0.0
        self.rows_total += rows
        self.last_batch_at = now()
        self.progress, self.progress_at = "", None
        log.info(
            "query=%s batch_id=%d rows=%d seconds=%.3f rows_per_second=%.0f %s%s",
            self.query,
            batch_id,
            rows,
            seconds,
            self.rows_per_second,
            " ".join(f"{name}={millis:.0f}ms" for name, millis in self.phases.items()),
            f" placement={self.placement!r}" if self.placement else "",
        )

    def write(self, run_dir: Path) -> None:
        """Write the status file; a reader never sees half of one."""
        self.updated_at = now()
        folder = run_dir / "status"
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{self.query}.{self.pid}"
        draft.write_text(json.dumps(asdict(self)), encoding="utf-8")
        draft.replace(folder / f"{self.query}.json")
