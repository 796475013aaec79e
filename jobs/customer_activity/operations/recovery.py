"""A checkpoint and the tables it writes: whether they agree, and a checkpoint written again from what the tables say.

The lake is the record. Every commit of a query carries its checkpoint's generation, its batch, and the sources' offsets
at the batch's begin and end. So a checkpoint that is lost, damaged or of another time can be written again as it was
when the newest batch was planned. Spark repeats that batch: what is in the tables is left out by its transaction id,
what is not is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from customer_activity import topology
from customer_activity.catalog import Table, checkpoint_path
from customer_activity.checkpoints import agreement, checkpoint
from customer_activity.checkpoints.offsets import OffsetRange
from customer_activity.errors import ChangeFeedLost, CheckpointMismatch, ForeignCommit
from customer_activity.lake import audit, delta, deltalog, feeds, history
from customer_activity.lease import lease
from customer_activity.operations import current_rows


class Written(NamedTuple):
    """The newest batch of a query that is in any of its tables."""

    table: Table
    generation: str
    batch_id: int
    cut: OffsetRange | None


class Recovered(NamedTuple):
    """What was done.

    Attributes:
        query: whose checkpoint was written.
        batch_id: it starts with this batch again; None: from the beginning.
        is_planned: the batch is in no table: its checkpoint had planned it, and what it was to read is kept.
        set_aside: where the old checkpoint is.
        rebuilt: the table of current rows that was rebuilt from all that it reads.
    """

    query: str
    batch_id: int | None
    set_aside: str | None
    rebuilt: Table | None = None
    is_planned: bool = False


def check_agreement(lake: str, queries: Iterable[str]) -> None:
    """Refuse to start queries that would skip or repeat what their tables have.

    Raises:
        CheckpointMismatch: a checkpoint is damaged, missing, of another generation, or older than the table; a table
            that the query writes or reads was restored from a backup.
    """
    ids = {table: delta.table_id(lake, table) for table in topology.tables()}
    for query in queries:
        state, written = checkpoint.state(lake, query), newest_batch(lake, query)
        if fault := _disagreement(state, written):
            raise CheckpointMismatch(
                f"{query}: {fault} (checkpoint {checkpoint_path(lake, query)})",
                remedy="put the one back that belongs to the other, or let the checkpoint be written again from "
                f"what the tables say: `activity recover {query} --reason …`",
            )
        if found := agreement.find(lake, query, state, ids):
            raise CheckpointMismatch(f"{query}: {found.what}", remedy=found.remedy)


def _disagreement(state: checkpoint.State | None, written: Written | None) -> str:
    if written is None:
        return ""
    at = f"{written.table.label} has batch {written.batch_id}"
    if state is None:
        return f"{at}, and there is no checkpoint"
    if state.generation != written.generation:
        return f"{at} of generation {written.generation}, and the checkpoint is of generation {state.generation}"
    if state.planned is None or state.planned < written.batch_id:
        return f"{at}, and the checkpoint knows of none after {state.planned}"
    return ""


def newest_batch(lake: str, query: str) -> Written | None:
    """Return the newest batch of a query that is in any of its tables, as far back as their logs go.

    Publish notes on the topic how far it is; what it now and then puts into quarantine says nothing about that.
    """
    found: list[Written] = []
    for table in topology.spec(query).telling:
        if metadata := history.latest_metadata(lake, table, query):
            cut = metadata.get("cut")
            found.append(
                Written(table, metadata["generation"], metadata["batch_id"], OffsetRange(**cut) if cut else None)
            )
    return max(found, key=lambda written: written.batch_id, default=None)


def recover(lake: str, query: str, reason: str) -> Recovered:
    """Write a query's checkpoint again from what its tables say, and note in the lake that and why it was done.

    Raises:
        CheckpointMismatch: the newest commit does not tell the offsets (it is of an older release).
        SettingsError: there is no lake.
        QueryAlreadyRunning: a driver runs the query.
    """
    delta.require_tables(lake)
    with lease.kept_out(lake, [query]) as held:
        return _recover(lake, query, reason, held.fencing_epoch)


def _recover(lake: str, query: str, reason: str, fencing_epoch: Callable[[str], int]) -> Recovered:
    written = newest_batch(lake, query)
    if written is not None and written.cut is None:
        raise CheckpointMismatch(
            f"{query}: batch {written.batch_id} in {written.table.label} does not tell which offsets it read",
            remedy="restore the checkpoint, or move the lake away to build another one from Kafka",
        )
    now = datetime.now(UTC)
    planned = _planned(lake, query) if written is None and topology.spec(query).topics else None
    first = None if written is None else _first(lake, query, written.generation)
    aside = checkpoint.set_aside(lake, query, now)
    if topology.spec(query) in topology.following() and written is not None and not _reaches(lake, query, written):
        made = current_rows.make(lake, query, fencing_epoch(query))
        audit.append(lake, now, "recover", query, reason, rebuilt=made.label, set_aside=aside)
        return Recovered(query, None, aside, made)
    if written is not None and written.cut is not None:
        checkpoint.write(lake, query, written.generation, written.batch_id, written.cut, begin=first)
    if planned is not None:  # else it would begin with what Kafka has by now, and what is lost would not be missed
        checkpoint.write(lake, query, planned.generation, planned.batch_id, planned.cut, begin=planned.first)
    newest = written or planned
    done = Recovered(query, newest.batch_id if newest else None, aside, is_planned=planned is not None)
    audit.append(lake, now, "recover", query, reason, batch_id=done.batch_id, set_aside=aside)
    return done


class Planned(NamedTuple):
    """A batch that a checkpoint has planned, and where the first one begins."""

    generation: str
    batch_id: int
    cut: OffsetRange
    first: str | None


def _planned(lake: str, query: str) -> Planned | None:
    """Return the first batch of a query where its checkpoint has planned it, and nothing is through; else None.

    A checkpoint that knows of more was of tables that are lost: these are filled from the beginning.
    """
    try:
        state = checkpoint.state(lake, query)
        if state is None or state.planned is None or (cut := checkpoint.cut(lake, query, state.planned)) is None:
            return None
        if state.committed is not None:
            return None
        return Planned(state.generation, state.planned, cut, checkpoint.first(lake, query))
    except CheckpointMismatch:
        return None


def _first(lake: str, query: str, generation: str) -> str | None:
    """Return where a query's first batch begins, where its checkpoint tells, and is not another one's."""
    try:
        return checkpoint.first(lake, query) if checkpoint.generation(lake, query) in (None, generation) else None
    except CheckpointMismatch:
        return None


def _goes_on(lake: str, table: Table, since: int) -> bool:
    """Whether all that a table got since a version can be read, and comes after what it had before.

    A correction may retract of that, and what it adds may belong before it.
    """
    try:
        feed = feeds.read(lake, {table: []}, {table: (since, deltalog.newest_version(lake, table))})
    except ChangeFeedLost:  # or Corrected
        return False
    except ForeignCommit:  # the query says so when it is started
        return True
    return not feed.corrections and not feed.is_gone(table)


def _reaches(lake: str, query: str, written: Written) -> bool:
    """Whether what a query reads is what it has read, and all that came after its newest batch's begin is still there.

    The log tells less than the files: on a quiet lake it reaches back for long, and what compaction replaced is gone.
    """
    noted = deltalog.noted(history.latest_metadata(lake, written.table, query))
    if not all(agreement.reaches(lake, table, position) for table, position in noted.items()):
        return False
    if not all(_goes_on(lake, table, position.version) for table, position in noted.items()):
        return False
    begin = None if written.cut is None else written.cut.begin
    if begin is None:
        return all(delta.first_version(lake, table) == 0 for table in topology.spec(query).sources)
    read = agreement.by_id(query, begin)
    return all(agreement.reaches(lake, table, position) for table, position in read.items())
