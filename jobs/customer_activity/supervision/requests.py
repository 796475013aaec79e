"""How a command has the running driver do something between two batches: by some files in `ACTIVITY_RUN_DIR`.

The command writes one and waits for another. A driver that starts meanwhile finds the request, too. It expires when the
command's wait is over, unless a third file says that it is begun.
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

    What is `asked` is in JSON's types.

    Raises:
        TransientError: it has not done it in time, or something else of this kind is asked for.
        ActivityError: it tried, and this is why it could not.
    """
    deadline = time.monotonic() + wait_seconds
    run_dir, request = settings.run_dir, ""
    try:
        while running.stream_pids(settings):
            if (found := answered(run_dir, kind, request)) is not None:
                return _checked(found)
            if time.monotonic() > deadline:
                withdraw(run_dir, kind, request)  # what is not begun by now is begun no more
                late = _late(run_dir, kind, request, wait_seconds)
                if (found := answered(run_dir, kind, request)) is None:
                    raise late
                return _checked(found)
            waiting = _written(run_dir, kind)
            if waiting is None and not answered(run_dir, kind, request):
                request = ask(settings, kind, asked, deadline - time.monotonic())
            elif waiting is not None and waiting["request"] != request:
                raise TransientError(
                    f"another {kind} is still waiting for the driver", remedy="try again when that is done"
                )
            time.sleep(LOOK_SECONDS)
        found = answered(run_dir, kind, request)  # by a driver that ended right after it
        return None if found is None else _checked(found)
    finally:
        withdraw(run_dir, kind, request)


def ask(settings: Settings, kind: str, asked: Mapping[str, Any], wait_seconds: float) -> str:
    """Ask for something; return the request's id."""
    request = uuid.uuid4().hex
    until = time.time() + wait_seconds
    content = {"request": request, "until": until, "lake": settings.lake, "asked": asked}
    write_whole(str(_path(settings.run_dir, kind, "asked")), json.dumps(content).encode())
    return request


def pending(settings: Settings, kind: str) -> Request | None:
    """Return the request that waits for this driver; None when there is none. One for another lake is refused."""
    found = _written(settings.run_dir, kind)
    if found is None:
        return None
    request = Request(found["request"], found["asked"])
    if found["lake"] != settings.lake:
        fault = TerminalError(
            "the driver that runs with this ACTIVITY_RUN_DIR works on another lake",
            remedy="set ACTIVITY_LAKE and ACTIVITY_RUN_DIR to those that belong together",
        )
        refuse(settings.run_dir, kind, request.id, fault)
        return None
    return request


def begin(run_dir: Path, kind: str, request: str) -> bool:
    """Say that a request is begun, and will be completed whether anybody waits or not; False where nobody does."""
    # In this order: who stops waiting takes the request back first, and then looks whether it is begun.
    write_whole(str(_path(run_dir, kind, "begun")), json.dumps({"request": request}).encode())
    if (found := _written(run_dir, kind)) is not None and found["request"] == request:
        return True
    leave(run_dir, kind)
    return False


def leave(run_dir: Path, kind: str) -> None:
    """Say that what was begun is left until later, or for good."""
    _path(run_dir, kind, "begun").unlink(missing_ok=True)


def answer(run_dir: Path, kind: str, request: str, done: Mapping[str, Any]) -> None:
    """Say what was done; the request does not wait any longer."""
    write_whole(str(_path(run_dir, kind, "done")), json.dumps({"request": request, **done}).encode())
    leave(run_dir, kind)
    withdraw(run_dir, kind, request)


def refuse(run_dir: Path, kind: str, request: str, fault: ActivityError) -> None:
    """Say why it was not done."""
    answer(run_dir, kind, request, {"fault": [fault.what, fault.remedy, fault.exit_code]})


def answered(run_dir: Path, kind: str, request: str) -> dict[str, Any] | None:
    """Return what was done; None as long as it is not."""
    found = _read(_path(run_dir, kind, "done"))
    return found if found is not None and found.get("request") == request else None


def withdraw(run_dir: Path, kind: str, request: str) -> None:
    """Take a request back, unless another one has taken its place."""
    if (found := _written(run_dir, kind)) is not None and found["request"] == request:
        _path(run_dir, kind, "asked").unlink(missing_ok=True)


def _written(run_dir: Path, kind: str) -> dict[str, Any] | None:
    """Return what is asked for; what has expired, or is of another release, is none, and goes."""
    path = _path(run_dir, kind, "asked")
    found = _read(path)
    if found is None:
        return None
    if not found.keys() >= {"request", "until", "lake", "asked"} or found["until"] < time.time():
        path.unlink(missing_ok=True)
        return None
    return found


def _late(run_dir: Path, kind: str, request: str, seconds: float) -> TransientError:
    """Say that the driver has not done something in time, and whether it will."""
    if (_read(_path(run_dir, kind, "begun")) or {}).get("request") == request:
        return TransientError(
            f"the driver has begun it, and not ended it within {seconds:.0f} s",
            remedy=f"it completes it, and its log says what came of it; another {kind} waits for this one, and a "
            "longer --wait for its answer",
        )
    return TransientError(
        f"the driver has not done it within {seconds:.0f} s",
        remedy="`activity status` shows whether it makes progress; it does this between two batches, if all streams "
        "run in one driver",
    )


def _checked(found: dict[str, Any]) -> dict[str, Any]:
    if (fault := found.get("fault")) is None:
        return found
    what, remedy, code = fault
    raise (TransientError if code == EXIT_TRY_AGAIN else TerminalError)(what, remedy=remedy)


def _path(run_dir: Path, kind: str, state: str) -> Path:
    return run_dir / f"{kind}.{state}.json"


def _read(path: Path) -> dict[str, Any] | None:
    data = read_whole(str(path))
    try:
        return None if data is None else dict(json.loads(data))
    except (ValueError, TypeError):  # not a request file
        return {}
