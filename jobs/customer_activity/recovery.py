"""A checkpoint and the tables it writes: whether they agree, and a checkpoint written anew from what the tables say.

The lake is the record. Every commit of a query carries its checkpoint's generation, its batch, and the sources' offsets
at the batch's begin and end. So a checkpoint that is lost, damaged or of another time can be written again as it was
when the newest batch was planned. Spark repeats that batch: what is in the tables is left out by its transaction id,
what is not is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from customer_activity import audit, checkpoints, delta, history, lease
from customer_activity.catalog import FLOWS, Query, Table, checkpoint_path
from customer_activity.checkpoints import Cut
from customer_activity.errors import CheckpointMismatch


class Written(NamedTuple):
    """The newest batch of a query that is in any of its tables."""

    table: Table
    generation: str
    batch_id: int
    cut: Cut | None


class Recovered(NamedTuple):
    """What was done: the checkpoint starts with this batch again (None: from the beginning); the old one is there."""

    query: Query
    batch_id: int | None
    set_aside: str | None


def check_agreement(lake: str, queries: Iterable[Query]) -> None:
    """Refuse to start queries that would skip or repeat what their tables have.

    Raises:
        CheckpointMismatch: a checkpoint is damaged, missing, of another generation, or older than the table; bronze's
            tables lack a batch that its checkpoint has committed.
    """
    for query in queries:
        state, written = checkpoints.state(lake, query), newest_batch(lake, query)
        if fault := _disagreement(query, state, written):
            raise CheckpointMismatch(
                f"{query}: {fault} (checkpoint {checkpoint_path(lake, query)})",
                remedy="put the one back that belongs to the other, or let the checkpoint be written anew from "
                f"what the tables say: `activity recover {query} --reason …`",
            )


def _disagreement(query: Query, state: checkpoints.State | None, written: Written | None) -> str:
    if written is None:
        return _lack(query, state, None)
    at = f"{written.table.label} has batch {written.batch_id}"
    if state is None:
        return f"{at}, and there is no checkpoint"
    if state.generation != written.generation:
        return f"{at} of generation {written.generation}, and the checkpoint is of generation {state.generation}"
    if state.planned is None or state.planned < written.batch_id:
        return f"{at}, and the checkpoint knows of none after {state.planned}"
    return _lack(query, state, written.batch_id)


def _lack(query: Query, state: checkpoints.State | None, newest: int | None) -> str:
    """Say that tables lack a committed batch. Only bronze writes with each; others may have had nothing to write."""
    committed = None if query is not Query.BRONZE or state is None else state.committed
    if committed is None or (newest is not None and newest >= committed):
        return ""
    return f"the checkpoint has committed batch {committed}, and the newest in the tables is {newest}"


def newest_batch(lake: str, query: Query) -> Written | None:
    """Return the newest batch of a query that is in any of its tables, as far back as their logs go.

    Publish notes on the topic how far it is; what it now and then puts into quarantine says nothing about that.
    """
    found: list[Written] = []
    if query is Query.PUBLISH:
        return None
    for name in next(flow.writes for flow in FLOWS if flow.query is query):
        if ":" in name:
            continue
        if metadata := history.newest_note(lake, Table(name), query):
            cut = metadata.get("cut")
            found.append(
                Written(Table(name), metadata["generation"], metadata["batch_id"], Cut(**cut) if cut else None)
            )
    return max(found, key=lambda written: written.batch_id, default=None)


def recover(lake: str, query: Query, reason: str) -> Recovered:
    """Write a query's checkpoint anew from what its tables say, and note in the lake that and why it was done.

    Raises:
        CheckpointMismatch: the newest commit does not tell the offsets (it is of an older release).
        SettingsError: there is no lake.
        QueryAlreadyRunning: a driver runs the query.
    """
    delta.require_tables(lake)
    with lease.kept_out(lake, [query]):
        return _recover(lake, query, reason)


def _recover(lake: str, query: Query, reason: str) -> Recovered:
    written = newest_batch(lake, query)
    if written is not None and written.cut is None:
        raise CheckpointMismatch(
            f"{query}: batch {written.batch_id} in {written.table.label} does not tell which offsets it read",
            remedy="put the checkpoint back from a backup, or move the lake away to build it anew from Kafka",
        )
    now = datetime.now(UTC)
    aside = checkpoints.set_aside(lake, query, now)
    if written is not None and written.cut is not None:
        checkpoints.write(lake, query, written.generation, written.batch_id, written.cut)
    done = Recovered(query, written.batch_id if written else None, aside)
    audit.note(lake, now, "recover", query, reason, batch_id=done.batch_id, set_aside=aside)
    return done
