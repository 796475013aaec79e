"""A correction from its record in the lake to its end; what interrupts it, it is finished from there.

Each table gets one fenced commit, once; the tables of current rows follow. Checkpoints are written as if each query had
read all that there is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.checkpoints import checkpoint
from customer_activity.checkpoints.offsets import OffsetRange
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import audit, corrections, deltalog
from customer_activity.lake.corrections import Change, Correction
from customer_activity.lake.microbatch import COUNTED, QUARANTINED, REMOVED
from customer_activity.lake.named_operations import REBUILD, Fence, Operation
from customer_activity.lake.replacing import replace, settle
from customer_activity.operations import current_rows
from customer_activity.settings import Settings

FencingEpoch = Callable[[str], int]


def begin(lake: str, correction: Correction, fencing_epoch: FencingEpoch) -> None:
    """Note that a correction has begun, unless another driver has taken over while it was made.

    From here on a driver that starts finds the note; one that has started before has the lease.

    Raises:
        LeaseLost: another driver has.
        StorageUnavailable: whether one has cannot be told.
    """
    _require_lease(fencing_epoch)  # a suspended process may have lost its lease
    corrections.begin(lake, correction)
    try:
        _require_lease(fencing_epoch)
    except BaseException:
        corrections.withdraw(lake, correction.run)
        raise


def _require_lease(fencing_epoch: FencingEpoch) -> None:
    for query in topology.names():
        fencing_epoch(query)


def finish(settings: Settings, fencing_epoch: FencingEpoch, failpoint: Callable[[str], None] = lambda _: None) -> None:
    """Do what is left of the correction that is at work.

    Args:
        settings: whose lake; no driver may run on it.
        fencing_epoch: tells the epoch that is held of each query.
        failpoint: called after each thing that was done.

    Raises:
        LeaseLost: another driver has taken a query over.
    """
    lake = settings.lake
    correction = corrections.at_work(lake)
    if correction is None:
        raise RuntimeError(f"{lake}: no correction is at work")
    fence = Fence(Operation.CORRECTION, correction.run, correction.reason, fencing_epoch, lake)
    if change := correction.changes.get(Table.QUARANTINE.label):
        counts = {QUARANTINED: change.added.rows, REMOVED: change.retracted.rows}
        note = {"query": REBUILD, "generation": correction.run, "batch_id": 0}
        commit(fence, Table.QUARANTINE, change, {**note, "counts": {settings.purchase_topic: counts}})
        failpoint("quarantine")
    rebuilt = topology.rebuilt()
    for spec in rebuilt:
        query = spec.name
        batch = current_rows.as_read(lake, query, correction.generations[query], current_rows.opened(lake, query))
        for table in spec.telling:
            note = json.loads(batch.metadata())
            if table.label in correction.counted:
                note |= {COUNTED: correction.counted[table.label], deltalog.LANDED: correction.landed}
            commit(fence, table, correction.changes[table.label], note)
            failpoint(table.label)
        checkpoint.set_aside(lake, query, datetime.now(UTC))
        checkpoint.write(lake, query, batch.generation, batch.batch_id, OffsetRange(**batch.cut), is_committed=True)
        failpoint(f"checkpoint of {query}")
    for spec in topology.following():
        checkpoint.set_aside(lake, spec.name, datetime.now(UTC))
        current_rows.make(lake, spec.name, fencing_epoch(spec.name))
        failpoint(spec.name)
    changed = {label: [change.retracted.rows, change.added.rows] for label, change in correction.changes.items()}
    details = {"id": correction.run, "undoes": correction.undoes, "retracted_and_added": changed}
    audit.append(lake, datetime.now(UTC), Operation.CORRECTION, rebuilt[0].name, correction.reason, **details)
    corrections.finish(lake, correction)


def commit(fence: Fence, table: Table, change: Change, note: Mapping[str, Any]) -> None:
    """Make a correction's commit to a table, unless it has been made."""
    if fence.is_in(table):
        settle(fence.lake, table)  # it may have ended between the two
        return
    keys = pa.Table.from_batches(
        corrections.read(fence.lake, table, change.retracted, change.key), _only(arrow_schema(table), change.key)
    )
    going = keys.group_by(list(change.key)).aggregate([]).to_batches()
    coming = corrections.read(fence.lake, table, change.added)
    replace(fence.lake, table, change.key, going, coming, fence.properties(table, **note, **corrections.noted(change)))


def _only(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])
