"""The drivers that run with the given settings, as processes: find, check and stop them."""

from __future__ import annotations

import signal
import subprocess

from customer_activity.errors import ActivityError, TransientError
from customer_activity.inspection import query_status
from customer_activity.settings import Settings
from customer_activity.supervision import processes

STREAM = "stream"  # the command, and the name of its log and pid file
STOP_SECONDS = 30.0  # promised: a batch in progress is finished, then the session closes
LIVE_STATES = ("starting", "running", "held", "silent")


def stream_pids(settings: Settings, *, left_overs: bool = False) -> list[int]:
    """List the drivers that run streams with these settings, whoever started them.

    With `left_overs` also one that is gone while something that it started is not.
    """
    pids = {
        state.pid for state in query_status.states(settings) if state.state in LIVE_STATES and state.pid is not None
    }
    leader = processes.recorded(settings, STREAM)
    if leader is not None and left_overs and processes.family(leader):
        return sorted({leader} | {pid for pid in pids if processes.ours(pid)})
    return sorted(pid for pid in {*pids, *([leader] if leader is not None else [])} if processes.ours(pid))


def is_up(settings: Settings, child: subprocess.Popen[bytes] | None) -> bool:
    """Whether the streams wait for input: all of a driver that this run started, whatever runs of another's."""
    return child is None or all_run(settings, child.pid)


def all_run(settings: Settings, driver: int) -> bool:
    """Whether all queries run, and the driver with this number runs them."""
    return all(state.state in ("running", "held") and state.pid == driver for state in query_status.states(settings))


def check_stream(settings: Settings, child: subprocess.Popen[bytes] | None) -> None:
    """Make sure that the streams run.

    A child runs until it is reaped; in its first moments it has no command line yet, by which others are known.

    Raises:
        ActivityError: they ended; carries their exit code and last lines.
    """
    code = child.poll() if child is not None else None
    if code:
        raise ended(settings, STREAM, code)
    if code == 0 or (child is None and not stream_pids(settings)):
        raise TransientError(
            "the streams were stopped while the run was going on", remedy="`activity run` goes on from there"
        )


def end_streams(settings: Settings) -> list[bool]:
    """End the drivers that run, or what is left of one; return of each whether it ended by itself."""
    return [processes.stop(pid, seconds=STOP_SECONDS) for pid in stream_pids(settings, left_overs=True)]


def end(child: subprocess.Popen[bytes], seconds: float) -> None:
    """End a process that this one started, with all that it started."""
    processes.stop(child.pid, seconds=seconds)
    child.wait()


def ended(settings: Settings, name: str, code: int) -> ActivityError:
    """Make the error for a part that ended: its last words, and its exit code as ours."""
    how = f"ended with exit code {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"
    error = ActivityError(
        f"`activity {name}` {how}:\n{processes.last_lines(settings, name)}",
        remedy=f"the whole log is {processes.log_path(settings, name)}",
    )
    error.exit_code = code if code > 0 else 128 - code  # as a shell says it
    return error
