"""Gold's change feeds for readers outside the pipeline: how far back they reach, how far they are promised to reach.

Maintenance knows the pipeline's own readers and waits for them. Of others it knows nothing but the promise: for so many
hours after a commit, its entry in the log and the files of its changes are there.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from pyarrow import fs

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import TABLES
from customer_activity.lake import deltalog
from customer_activity.settings import Settings
from customer_activity.storage.filesystem import filesystem

GOLD = "gold/"
LEAST = timedelta(hours=1)  # for a query that has begun
ENTRY = re.compile(r"(\d{20})\.json")


class Reach(NamedTuple):
    """How far back a table's change feed reaches.

    Attributes:
        table: its label.
        promised: how long every change is promised to be there.
        first: the first version whose changes can be read.
        since: when that was committed.
        newest: the newest version.
    """

    table: str
    promised: timedelta
    first: int
    since: datetime
    newest: int

    def is_kept(self, now: datetime) -> bool:
        """Whether all changes are there that are promised."""
        return self.first == 0 or self.since <= now - self.promised


def promise(settings: Settings, table: Table) -> timedelta:
    """Return how long a table's changes are promised to be readable; nothing but of gold's tables of current rows."""
    is_promised = TABLES[table].is_current and table.value.startswith(GOLD)
    return timedelta(hours=settings.change_feed_hours) if is_promised else timedelta(0)


def reaches(settings: Settings) -> list[Reach]:
    """Return how far back the promised change feeds reach, of those tables that are there."""
    found = []
    for table in topology.tables():
        if promised := promise(settings, table):
            files, folder = filesystem(f"{table_path(settings.lake, table)}/_delta_log")
            entries = files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
            commits = {int(name[1]): entry.mtime for entry in entries if (name := ENTRY.fullmatch(entry.base_name))}
            if commits:
                first = min(commits)
                found.append(Reach(table.label, promised, first, commits[first], max(commits)))
    return found


def read_upto(lake: str, table: Table, versions: Sequence[int], promised: timedelta) -> int:
    """Return the version that a reader has read last who is as far behind as he may be; -1: nothing yet.

    Args:
        lake: where the table is.
        table: which one.
        versions: those of the log's entries, in their order.
        promised: how far he may be behind.
    """
    files, folder = filesystem(f"{table_path(lake, table)}/_delta_log")
    since = datetime.now(UTC) - promised

    def is_promised(version: int) -> bool:
        entry = files.get_file_info(f"{folder}/{version:020}.json")
        return bool(entry.type == fs.FileType.File and entry.mtime >= since)

    first = bisect_left(versions, True, key=is_promised)  # noqa: FBT003
    return versions[first - 1] if first else -1


def files_kept(lake: str, table: Table) -> timedelta:
    """Return for how long files that were replaced are kept, whatever is promised: as the table's declaration says.

    Of current rows no longer than the log goes back: older files are in no version that anybody could open, and a merge
    every two seconds would leave 300,000 of them in a week.
    """
    declared = timedelta(hours=TABLES[table].kept.files_hours)
    oldest = deltalog.first_whole_version(lake, table) if TABLES[table].is_current else None
    if not oldest:  # the log has everything since the table was made, or not even a version of its own
        return declared
    files, folder = filesystem(f"{table_path(lake, table)}/_delta_log")
    entry = files.get_file_info(f"{folder}/{oldest:020}.json")
    return declared if entry.mtime is None else min(declared, max(LEAST, datetime.now(UTC) - entry.mtime))
