"""The product's own processes: start them detached, find them again, read the end of their logs, stop them.

A detached process leads its own session, so that Ctrl-C in the terminal does not reach it, and so that everything
it started (the JVM, Spark's Python workers, which leave its process group) is found again by the session's id.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from customer_activity.engine import pids
from customer_activity.settings import Settings
from customer_activity.storage.filesystem import PRIVATE

PACKAGE = "customer_activity"
# One of these is in the command line of a process of ours: of Python, of the JVM that pyspark started, of Airflow's.
OURS = (PACKAGE, "pyspark", "airflow")
STARTED = "start="  # before the time, in the second line of a pid file: no number, which scripts would take for a pid
SCRIPT = "activity"  # or Python runs the console script of this name
POLL_SECONDS = 0.1
END_SECONDS = 5.0  # between SIGKILL and the process table showing it
LAST_LINES = 20
TRACEBACK = "Traceback (most recent call last)"
JVM_FRAME = re.compile(r"\s+at\b|\s*\.\.\. \d+ more")


def command(*arguments: str) -> list[str]:
    """Return the command line that runs `activity` with this very interpreter."""
    return [sys.executable, "-m", PACKAGE, *arguments]


def environment(settings: Settings) -> dict[str, str]:
    """Return the environment of a child: this one's, with the settings as they are here."""
    return {**os.environ, **settings.environment()}


def start(settings: Settings, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
    """Start `activity …` detached; its log is `<run_dir>/<name>.log`, the one before it `<name>.log.1`."""
    return launch(settings, name, command(*arguments), environment(settings))


def launch(settings: Settings, name: str, line: list[str], variables: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a command line detached, with a log and a pid file of its name.

    A Python process that a native library crashes leaves each thread's stack in the log.
    """
    settings.run_dir.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
    log = log_path(settings, name)
    if log.exists():
        log.replace(log.with_name(f"{log.name}.1"))
    with log.open("ab") as output:  # appended to, so that it can be cut while it is written
        process = subprocess.Popen(  # noqa: S603 - programs that set-up installed, and our own arguments
            line,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={"PYTHONFAULTHANDLER": "1", **variables},
            start_new_session=True,
        )
    start_time = pids.start_time(process.pid)
    lines = [str(process.pid), *([] if start_time is None else [f"{STARTED}{start_time}"])]
    pid_path(settings, name).write_text("\n".join(lines), encoding="utf-8")
    return process


def recorded(settings: Settings, name: str) -> int | None:
    """Return the number of the process that was last started under a name; None where it went to another since.

    A number is not given out again while something that its process started still runs in its session: where it was,
    there are no left-overs to look for.
    """
    try:
        number, *more = pid_path(settings, name).read_text(encoding="utf-8").split()
        pid = int(number)
        start_time = next((float(line.removeprefix(STARTED)) for line in more if line.startswith(STARTED)), None)
    except (FileNotFoundError, ValueError):
        return None
    return None if pids.is_reused(pid, start_time) else pid  # the file of an older release has the number alone


def running(settings: Settings, name: str) -> psutil.Process | None:
    """Return the process that was started under a name, when it still runs."""
    pid = recorded(settings, name)
    return ours(pid) if pid is not None else None


def ours(pid: int) -> psutil.Process | None:
    """Return a process if it runs and its command line is one of the pipeline's."""
    try:
        process = psutil.Process(pid)
        return process if is_running(process) and _is_ours(process.cmdline()) else None
    except psutil.Error:
        return None


def is_running(process: psutil.Process) -> bool:
    """Whether a process still runs; one that ended and that nobody has waited for does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def family(leader: int) -> list[psutil.Process]:
    """List a process and everything it started that still runs, also when the process itself is gone.

    The session is taken whole only when the process leads it: a process started by hand shares the terminal's.
    """
    found: dict[int, psutil.Process] = {}
    process = ours(leader)
    if process is not None:
        try:
            found = {child.pid: child for child in [process, *process.children(recursive=True)]}
        except psutil.Error:  # it ended just now; its session tells what is left
            found = {}
    for pid in psutil.pids():
        if pid not in found and _session(pid) == leader and (member := ours(pid)) is not None:
            found[pid] = member
    return [member for member in found.values() if is_running(member)]


def stop(leader: int, *, seconds: float, how: signal.Signals = signal.SIGTERM) -> bool:
    """End a process and all it started; return whether everything ended by itself within `seconds`.

    Only the leader is asked. Were the JVM below it told at the same time, it would close under a batch in progress.
    What is left is killed.
    """
    members = family(leader)
    process = ours(leader)
    if process is not None:
        _send(process, how)
        _wait(members, seconds)
    left = {member.pid: member for member in [*family(leader), *members] if is_running(member)}
    for member in left.values():
        _send(member, signal.SIGKILL)
    _wait(list(left.values()), END_SECONDS)
    return not left


def last_lines(settings: Settings, name: str, count: int = LAST_LINES) -> str:
    """Return what a log says last: its last error when there is one, else its end; without the JVM's stack frames."""
    try:
        text = log_path(settings, name).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    lines = [line for line in text.splitlines() if line.strip() and not JVM_FRAME.match(line)]
    if words := next(filter(None, map(_why_it_ended, reversed(lines[-count:]))), ""):
        return words
    begins = [number for number, line in enumerate(lines) if line.startswith("error:") or TRACEBACK in line]
    if not begins:
        return "\n".join(lines[-count:])
    error = lines[begins[-1] :]
    if error[0].startswith("error:"):
        return "\n".join(error[:count])
    # What was raised comes after a traceback: at its end, or below the frame that it is drawn in.
    bottom = next((number + 1 for number, line in enumerate(error) if line.startswith("╰")), None)
    return "\n".join(error[-count:] if bottom is None else error[bottom:][:count])


def _why_it_ended(line: str) -> str:
    """Return what the last event of a process says whose log is JSON; empty where the line is another."""
    if not line.startswith("{"):
        return ""
    try:
        event = json.loads(line)
        if "exit_code" not in event:
            return ""
        words = f"error: {event['message']}"
        return (
            f"{words}\n  → {event['remedy']}" if event.get("remedy") else f"{words}\n{event.get('stack', '')}".rstrip()
        )
    except (ValueError, KeyError):
        return ""


def log_path(settings: Settings, name: str) -> Path:
    """Where a detached process logs."""
    return settings.run_dir / f"{name}.log"


def pid_path(settings: Settings, name: str) -> Path:
    """Where a detached process's number is."""
    return settings.run_dir / f"{name}.pid"


def _is_ours(line: list[str]) -> bool:
    return any(word in " ".join(line) for word in OURS) or any(Path(word).name == SCRIPT for word in line[:2])


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _send(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.Error:  # it has ended
        return


def _wait(members: list[psutil.Process], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(is_running(member) for member in members) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
