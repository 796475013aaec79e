"""The clock of view versions: whoever reads the view takes the row with the greater one for the newer."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from customer_activity.catalog import Table, table_path


class ViewClock:
    """Gives each batch a view version greater than every one before.

    A hybrid logical clock: the time in milliseconds, or one more than the last version where time has not moved on.
    So versions grow over deletes, restarts and rebuilds of the table without being stored anywhere else.
    """

    def __init__(self, newest: int = 0, *, now: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        """Start above the newest version known; `now` counts milliseconds."""
        self.newest = newest
        self.now = now

    @classmethod
    def of(cls, lake: str) -> ViewClock:
        """Start above the newest version in gold, as its files' statistics tell it."""
        files = pa.table(DeltaTable(table_path(lake, Table.ACTIVITY_CHANGES)).get_add_actions(flatten=True))
        column = "max.view_version"
        newest = pc.max(files.column(column)).as_py() if column in files.column_names else None
        return cls(newest or 0)

    def next(self) -> int:
        """Return the next version."""
        self.newest = max(self.now(), self.newest + 1)
        return self.newest
