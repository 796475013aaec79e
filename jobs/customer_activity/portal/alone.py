"""One portal a folder: the store has one writer."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from customer_activity.errors import EnvironmentFault
from customer_activity.storage.filesystem import keep_private


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Be the only one who writes the stores of a folder, until the block ends or this process is gone.

    Raises:
        EnvironmentFault: another portal is.
    """
    keep_private(folder)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise EnvironmentFault(
                f"another portal runs on {folder}", remedy="stop it, or give this one another ACTIVITY_RUN_DIR"
            ) from None
        yield
