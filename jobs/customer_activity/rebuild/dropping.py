"""`activity rebuild --drop`: remove what is kept of a correction, once no stream has to read it any more.

A stream that publishes reads the rows that a correction has added, and those that it has retracted, from what is kept
of it. Without them it could not go on.
"""

from __future__ import annotations

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.checkpoints import checkpoint
from customer_activity.errors import TransientError
from customer_activity.lake import corrections, delta, deltalog, named_operations
from customer_activity.lake.named_operations import Operation


def drop(lake: str, run: str) -> None:
    """Remove what is kept of a correction: it cannot be undone any more.

    Raises:
        SettingsError: there is none of that name.
        CorrectionUnfinished: one is at work.
        TransientError: a stream that is on has not read it yet.
        CheckpointMismatch: a stream's checkpoint does not tell whether it has.
    """
    corrections.refuse_unfinished(lake)
    correction = corrections.find(lake, run)
    changed = [label for label, change in correction.changes.items() if change.added.rows or change.retracted.rows]
    waiting = [
        f"{query} has not read it of {label}"
        for label in changed
        for query in topology.readers(Table.labelled(label))
        if not _has_read(lake, query, Table.labelled(label), run)
    ]
    if waiting:
        raise TransientError(
            f"correction {run} is still needed: {', '.join(waiting)}",
            remedy="let these streams read it, then drop it: `activity stream … --available-now`, and where quality "
            "holds publishing, `activity quality release --reason …` before",
        )
    corrections.drop(lake, run)


def _has_read(lake: str, query: str, table: Table, run: str) -> bool:
    """Whether a stream is through with the batch that has a correction of a table.

    One whose commit the log no longer has is read by nobody.
    """
    progress = checkpoint.progress(lake, query)
    read = -1 if progress is None else progress.table_versions.get(delta.table_id(lake, table), -1)
    for entry in deltalog.entries(lake, table, range(read + 1, deltalog.newest_version(lake, table) + 1)):
        commit = None if entry is None else named_operations.classify(entry.actions)
        if commit is not None and commit.operation is Operation.CORRECTION and commit.note.get("id") == run:
            return False
    return True
