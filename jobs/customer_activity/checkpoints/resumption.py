"""Where a stream resumes: up to where it had read, by its newest commit to each table that it writes.

A batch is worked on in parts, and each part's commit notes up to which version of each source it has read. So what is
done of a batch that is repeated is told by the tables it writes, part by part, and not by the batch's number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from customer_activity.catalog import Table
from customer_activity.checkpoints import offsets
from customer_activity.errors import TransientError
from customer_activity.lake import deltalog, history

Versions = Mapping[Table, tuple[int, int]]

NOTHING = -1  # the version that was read last of a table of which nothing was read


class Written:
    """What a query's newest commits to some tables had read; kept up to date by `note`.

    Attributes:
        read: by written table and source, the newest version that was read.
        landed: by label of a table of events, the newest landing that was read.
    """

    def __init__(self, lake: str, query: str, tables: Iterable[Table], ids: Mapping[Table, str]) -> None:
        """Read the newest notes in `tables`, which the stream writes; `ids` are those of the tables that it reads."""
        notes = {table: history.latest_metadata(lake, table, query) for table in tables}
        self.read = {table: read_by(note, ids) for table, note in notes.items()}
        self.landed: dict[str, int] = {}
        for note in notes.values():
            for label, landing in note.get(deltalog.LANDED, {}).items():
                self.landed[label] = max(landing, self.landed.get(label, landing))

    def left(self, versions: Versions, by: Mapping[Table, Table]) -> dict[Table, tuple[int, int]]:
        """Return what is left of a batch's versions; `by` names the table that tells how far a source was read."""
        return {
            source: (min(upto, max(after, self.read[by[source]].get(source, NOTHING))), upto)
            for source, (after, upto) in versions.items()
        }

    def note(self, table: Table, versions: Versions) -> None:
        """Take note of a commit to a table."""
        self.read[table] = self.read[table] | {source: upto for source, (_, upto) in versions.items()}


def refuse_snapshot(note: Mapping[str, Any], query: str, table: Table, then: str) -> None:
    """Make sure that the batch of a commit was past the initial snapshot of a table: before, no version tells how far.

    Raises:
        TransientError: it was not; `then` says what to do when it is.
    """
    if any('"isStartingVersion":true' in source for source in note.get("cut", {}).get("end", []) if source):
        raise TransientError(
            f"{query} is still reading the initial snapshot of {table.label}: how far is unknown",
            remedy=f"{then} when it has caught up",
        )


def read_by(note: Mapping[str, Any], ids: Mapping[Table, str]) -> dict[Table, int]:
    """Return up to which version a commit's batch had read each of its sources, of those with these ids."""
    if positions := deltalog.noted(note):
        return {table: at.version for table, at in positions.items() if ids.get(table) == at.table_id}
    # A commit of the release before tells the offsets of its batch alone.
    versions = offsets.table_versions(note.get("cut", {}).get("end", ()))
    return {table: versions[table_id] for table, table_id in ids.items() if table_id in versions}
