"""Find the table that has lost data files of its newest version: the error of a missing file may not name it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from deltalake.exceptions import DeltaError

from customer_activity.catalog import Table
from customer_activity.errors import ActivityError, RowsLost
from customer_activity.lake import deltalog, feeds


def files_of(lake: str, table: Table) -> RowsLost | None:
    """Say that a table lacks files of its newest version; None where all are there.

    Raises:
        ChangeFeedLost: entries of its log are gone.
    """
    version = deltalog.newest_version(lake, table)
    if not feeds.are_gone(lake, table, feeds.snapshot(lake, table, version)):
        return None
    return RowsLost(f"{table.label}: files of version {version}, the newest, are gone", remedy=feeds.LOST)


def first_of(lake: str, tables: Iterable[Table]) -> ActivityError | None:
    """Say which of some tables, the first one, lacks files or entries of its log; None where all have theirs."""
    for table in tables:
        with suppress(DeltaError, OSError):  # of a storage that does not answer there is no telling
            try:
                found: ActivityError | None = files_of(lake, table)
            except ActivityError as fault:
                found = fault
            if found is not None:
                return found
    return None
