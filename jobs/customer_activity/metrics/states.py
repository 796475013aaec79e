"""How large local state is. Its rows are counted beside the looks, which do not wait for a large one."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path
from typing import NamedTuple

from customer_activity.state import files

COUNT_SHARE = 100  # rows are counted again after so many times what it took: a hundredth of a core
WAIT_SECONDS = 1.0  # so long a look waits for a count; a larger one is for a later look

UNKNOWN = (0.0, None)  # nothing is counted, and may be now


class State(NamedTuple):
    """A stream's local state: its rows, None where they have not been counted, and its bytes."""

    rows: int | None
    size_bytes: int


class States:
    """The local state in a folder, and what has been counted of it. For one thread that asks."""

    def __init__(self, folder: Path, *, wait: float = WAIT_SECONDS) -> None:
        """Begin with nothing counted."""
        self.folder = folder
        self.wait = wait
        self.counted: dict[str, tuple[float, int]] = {}  # rows of a state, and from when on again
        self.counting: threading.Thread | None = None  # one at a time

    def read(self) -> dict[str, State]:
        """Return each stream's state, with the rows that were counted last."""
        names = files.streams(self.folder)
        due = [name for name in names if time.monotonic() >= self.counted.get(name, UNKNOWN)[0]]
        if due and not (self.counting and self.counting.is_alive()):
            self.counting = threading.Thread(target=self._count, args=(due,), name="metrics-count", daemon=True)
            self.counting.start()
            self.counting.join(self.wait)
        return {name: State(self.counted.get(name, UNKNOWN)[1], files.size(self.folder, name)) for name in names}

    def _count(self, names: list[str]) -> None:
        for name in names:
            began = time.monotonic()
            try:
                rows = files.rows(self.folder, name)
            except sqlite3.Error:  # it is being made: the next look counts
                self.counted.pop(name, None)
                continue
            ended = time.monotonic()
            self.counted[name] = ended + COUNT_SHARE * (ended - began), rows
