"""A request for maintenance, which the driver picks up between batches: two files in `ACTIVITY_RUN_DIR`.

Whoever asks writes the one and waits for the other. A driver that starts meanwhile finds the request, too.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from customer_activity.maintenance.maintenance import Tended
from customer_activity.storage.filesystem import read_whole, write_whole


def ask(run_dir: Path) -> str:
    """Ask for maintenance; return the request's name. One that waits already is this one, too."""
    if (waiting := pending(run_dir)) is not None:
        return waiting
    request = uuid.uuid4().hex
    _write(_asked(run_dir), {"request": request})
    return request


def pending(run_dir: Path) -> str | None:
    """Return the request that waits; None when there is none."""
    asked = _read(_asked(run_dir))
    return None if asked is None else str(asked["request"])


def answer(run_dir: Path, request: str, tables: Sequence[Tended]) -> None:
    """Say what was done to which table; the request does not wait any longer."""
    _write(_answered(run_dir), {"request": request, "tables": [table._asdict() for table in tables]})
    withdraw(run_dir)


def answered(run_dir: Path, request: str) -> list[Tended] | None:
    """Return what was done; None as long as it is not."""
    found = _read(_answered(run_dir))
    if found is None or found["request"] != request:
        return None
    return [Tended(**{**table, "behind": tuple(table["behind"])}) for table in found["tables"]]


def withdraw(run_dir: Path) -> None:
    """Take a request back."""
    _asked(run_dir).unlink(missing_ok=True)


def _asked(run_dir: Path) -> Path:
    return run_dir / "maintenance.asked.json"


def _answered(run_dir: Path) -> Path:
    return run_dir / "maintenance.done.json"


def _read(path: Path) -> dict[str, Any] | None:
    data = read_whole(str(path))
    return None if data is None else dict(json.loads(data))


def _write(path: Path, content: dict[str, Any]) -> None:
    write_whole(str(path), json.dumps(content).encode())
