"""Whose a process's number is: the system gives numbers out again, and a container that starts again the same ones."""

from __future__ import annotations

from pathlib import Path

import psutil

STARTED = 19  # of the fields of /proc/<pid>/stat after the name of the program (proc(5), starttime)


def start_time(pid: int) -> float | None:
    """Return when a process started; None when none has this number. It tells one process from another, no more.

    On Linux in clock ticks since the machine booted: psutil's `create_time` changes where the clock is set.
    """
    try:
        if psutil.LINUX:
            return float(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[STARTED])
        return float(psutil.Process(pid).create_time())
    except (OSError, psutil.Error, LookupError):
        return None


def is_same(pid: int, start: float | None) -> bool:
    """Whether a number is known to be of the process that has this start."""
    return start is not None and start_time(pid) == start


def is_reused(pid: int, start: float | None) -> bool:
    """Whether a number went to another process since one with this start had it; no where its start is unknown."""
    return start is not None and start_time(pid) not in (None, start)
