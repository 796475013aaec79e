"""The log of a process of ours: text for people, or one JSON object an event (`ACTIVITY_LOG_FORMAT`).

An event is one line, with nothing in it that commands a terminal or forges another line; times are UTC. What an event
has besides its words goes into `extra` of the call, by the names of FIELDS: text leaves it out, JSON has it as fields.
No event has a payload: no record, no row, no key; of unexpected errors not even the words (`unforeseen`).
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

from pythonjsonlogger.json import JsonFormatter

from customer_activity import shown, unforeseen
from customer_activity.errors import ActivityError, Stopping

log = logging.getLogger("customer_activity")

TEXT, JSON = "text", "json"
OF_BATCHES = "py4j.clientserver"  # whose logger tells what was raised in a batch that the JVM called
STANDARD_ERROR = 2
LOG_BYTES = 64 * 2**20  # of a driver's log: most of a day
TIME, MILLIS = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"

# What an event may have besides time, level, logger and message, and what it means: the names are the same everywhere.
FIELDS = {
    "query": "the stream",
    "batch": "number of the batch",
    "rows": "that came in with the batch",
    "seconds": "that it took",
    "phases": "milliseconds by phase: read, compute, write, commit, publish",
    "place": "where it was worked on: driver or executors",
    "why": "why there",
    "offsets": "what it read of Kafka, by topic and partition: first offset, and the one after the last",
    "versions": "what it read of tables: the version before the first, and the last",
    "written": "version of each table that it wrote",
    "table": "the table",
    "files": "number of files",
    "bytes": "of these files",
    "commits": "number of commits",
    "remedy": "what to do",
    "exit_code": "with which the process ends",
    "stack": "of an exception, in one text",
    "dropped": "number of lineage events that were not sent",
}


class Lines(logging.Formatter):
    """One line an event for people; a stack trace in lines of its own."""

    converter = staticmethod(time.gmtime)
    default_msec_format = MILLIS

    def __init__(self) -> None:
        """Know the line."""
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", TIME)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Escape what the data brought."""
        return shown.in_a_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Write the stack trace in lines of its own."""
        return unforeseen.stack(ei[1])


class Objects(JsonFormatter):
    """One JSON object an event; texts are escaped as in text, so that whoever shows one is safe, too."""

    converter = staticmethod(time.gmtime)
    default_time_format = TIME
    default_msec_format = MILLIS

    def __init__(self) -> None:
        """Know the names of what every event has."""
        super().__init__(
            ["asctime", "levelname", "name", "message"],
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger", "exc_info": "stack"},
        )

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        """Escape what the data brought."""
        return {name: value if name == "stack" else _harmless(value) for name, value in log_data.items()}

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Return the stack trace as one text."""
        return unforeseen.stack(ei[1])


def _harmless(value: Any) -> Any:
    if isinstance(value, str):
        return shown.in_a_line(value)
    if isinstance(value, dict):
        return {shown.escaped(name): _harmless(each) for name, each in value.items()}
    return [_harmless(each) for each in value] if isinstance(value, list | tuple) else value


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to what is standard error at that moment."""

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, stream: TextIO) -> None:
        """Stay with standard error."""


def configure_logging(log_format: str = TEXT, level: int = logging.INFO) -> None:
    """Log to standard error from here on, in this format; may be called again.

    Args:
        log_format: `text` or `json`.
        level: of the events that are told.
    """
    handler = _StandardError()
    handler.setFormatter(Objects() if log_format == JSON else Lines())
    root = logging.getLogger()
    root.handlers = [*(each for each in root.handlers if not isinstance(each, _StandardError)), handler]
    root.setLevel(level)
    for chatty in ("py4j", "pyspark", "openlineage"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    logging.getLogger(OF_BATCHES).addFilter(_is_unexpected)
    logging.captureWarnings(log_format == JSON)
    threading.excepthook = _tell_thread


def _is_unexpected(record: logging.LogRecord) -> bool:
    """Whether what ended a batch is told by its stack trace; what ends one on purpose is told by us, or is no error."""
    return record.exc_info is None or not isinstance(record.exc_info[1], ActivityError | Stopping)


def is_json() -> bool:
    """Whether this process logs JSON."""
    return any(isinstance(handler.formatter, Objects) for handler in logging.getLogger().handlers)


def tell_end(error: BaseException, exit_code: int) -> None:
    """Log why the process ends, as its last event."""
    if isinstance(error, ActivityError):
        log.error("%s", error.what, extra={"remedy": error.remedy, "exit_code": exit_code})
    else:
        log.error("an error that nobody foresaw", exc_info=error, extra={"exit_code": exit_code})


def _tell_thread(found: threading.ExceptHookArgs) -> None:
    name = found.thread.name if found.thread else "?"
    log.error("thread %s has ended", name, exc_info=found.exc_value)


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
