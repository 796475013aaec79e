"""Whether somebody still looks after a driver: a file that its supervisor touches.

A supervisor may die with everything it knew. A driver that was told to be looked after stops by itself when nobody has
done so for a while: gracefully, so that whoever comes next starts it where it stopped.
"""

from __future__ import annotations

import time
from pathlib import Path

from customer_activity.storage.filesystem import PRIVATE


def touch(run_dir: Path) -> None:
    """Say that somebody looks after the driver."""
    run_dir.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
    _path(run_dir).touch()


def is_stale(run_dir: Path, seconds: float) -> bool:
    """Whether nobody has looked after the driver for so long."""
    try:
        return time.time() - _path(run_dir).stat().st_mtime > seconds
    except FileNotFoundError:
        return True


def _path(run_dir: Path) -> Path:
    return run_dir / "attention"
