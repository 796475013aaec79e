"""What a command asks of the driver that runs, which does it between two batches: two files in `ACTIVITY_RUN_DIR`.

The command writes the one and waits for the other. A driver that starts meanwhile finds the request, too; one that
nobody waits for any more has expired.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from customer_activity.errors import EXIT_TRY_AGAIN, ActivityError, TerminalError, TransientError
from customer_activity.settings import Settings
from customer_activity.storage.filesystem import read_whole, write_whole
from customer_activity.supervision import running

LOOK_SECONDS = 0.5
MAINTENANCE, REPLAY = "maintenance", "replay"  # what can be asked for


class Request(NamedTuple):
    """A request that waits: its id, and what is asked for."""

    id: str
    asked: Mapping[str, Any]


def by_driver(settings: Settings, kind: str, asked: Mapping[str, Any], wait_seconds: float) -> dict[str, Any] | None:
    """Have the driver that runs with these settings do something; return its answer, None where none runs.

    Args:
        settings: whose driver.
        kind: what is asked for.
        asked: how; in JSON's types.
        wait_seconds: so long the driver may take.

    Raises:
        TransientError: it did not come to it, or something else of this kind is asked for.
        ActivityError: it tried, and this is why it could not.
    """
    deadline = time.monotonic() + wait_seconds
    request: str | None = None
    try:
        while running.stream_pids(settings):
            request = request or ask(settings.run_dir, kind, asked, wait_seconds)
            if (answer := answered(settings.run_dir, kind, request)) is not None:
                return _checked(answer)
            if time.monotonic() > deadline:
                raise TransientError(
                    f"the driver has not come to it within {wait_seconds:.0f} s",
                    remedy="`activity status` shows whether it gets on; it does this between two batches, where all "
                    "streams run in one driver",
                )
            time.sleep(LOOK_SECONDS)
    finally:
        if request is not None:
            withdraw(settings.run_dir, kind, request)
    return None


def ask(run_dir: Path, kind: str, asked: Mapping[str, Any], wait_seconds: float) -> str:
    """Ask for something; return the request's id. The same that waits already is this one, too.

    Raises:
        TransientError: another one waits.
    """
    if (waiting := pending(run_dir, kind)) is not None:
        if waiting.asked != asked:
            raise TransientError(
                f"another {kind} is asked for, and the driver has not done it yet", remedy="try again when it has"
            )
        return waiting.id
    request = uuid.uuid4().hex
    _write(_path(run_dir, kind, "asked"), {"request": request, "until": time.time() + wait_seconds, "asked": asked})
    return request


def pending(run_dir: Path, kind: str) -> Request | None:
    """Return the request that waits; None when there is none."""
    found = _read(_path(run_dir, kind, "asked"))
    return None if found is None or found["until"] < time.time() else Request(found["request"], found["asked"])


def answer(run_dir: Path, kind: str, request: str, done: Mapping[str, Any]) -> None:
    """Say what was done; the request does not wait any longer."""
    _write(_path(run_dir, kind, "done"), {"request": request, **done})
    withdraw(run_dir, kind, request)


def refuse(run_dir: Path, kind: str, request: str, fault: ActivityError) -> None:
    """Say why it was not done."""
    answer(run_dir, kind, request, {"fault": [fault.what, fault.remedy, fault.exit_code]})


def answered(run_dir: Path, kind: str, request: str) -> dict[str, Any] | None:
    """Return what was done; None as long as it is not."""
    found = _read(_path(run_dir, kind, "done"))
    return found if found is not None and found["request"] == request else None


def withdraw(run_dir: Path, kind: str, request: str) -> None:
    """Take a request back, unless another one has taken its place."""
    path = _path(run_dir, kind, "asked")
    if (found := _read(path)) is not None and found["request"] == request:
        path.unlink(missing_ok=True)


def _checked(found: dict[str, Any]) -> dict[str, Any]:
    if (fault := found.get("fault")) is None:
        return found
    what, remedy, code = fault
    raise (TransientError if code == EXIT_TRY_AGAIN else TerminalError)(what, remedy=remedy)


def _path(run_dir: Path, kind: str, state: str) -> Path:
    return run_dir / f"{kind}.{state}.json"


def _read(path: Path) -> dict[str, Any] | None:
    data = read_whole(str(path))
    return None if data is None else dict(json.loads(data))


def _write(path: Path, content: dict[str, Any]) -> None:
    write_whole(str(path), json.dumps(content).encode())
