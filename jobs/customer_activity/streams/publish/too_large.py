"""Rows that a topic does not take: they go into quarantine, each once, and the publisher goes on without them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable

from customer_activity import topology
from customer_activity.catalog import Reason, Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.logs import log
from customer_activity.engine.stream import Append, Steps
from customer_activity.lake import deltalog
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.lake.named_operations import epochs_of
from customer_activity.lake.replacing import replace as replace_rows
from customer_activity.lease import lease
from customer_activity.storage import s3

VERSION_SHIFT = 32  # a version has fewer rows than that many bits count


class TooLarge(NamedTuple):
    """A record that a topic does not take.

    Attributes:
        place: of its row in the table, as `position` numbers them.
        topic: which one.
        key, value: of the record.
    """

    place: int
    topic: str
    key: bytes
    value: bytes


def position(version: int, rows: int) -> int:
    """Return one number for so many rows of a version, greater than that of every place before."""
    return (version << VERSION_SHIFT) + rows


def keep(lake: str, batch: MicroBatch, table: Table, table_id: str, found: Iterable[TooLarge], max_bytes: int) -> Steps:
    """Put records into quarantine, each once, however batches and parts are cut.

    Where the table is restored, the same version is another commit, and its rows are to be kept, too: so it is the
    commit by which Delta knows what was kept.

    Args:
        lake: where quarantine is.
        batch: which is at work.
        table: which is published.
        table_id: its id.
        found: the records.
        max_bytes: what the topic takes.
    """
    quarantine = DeltaTable(table_path(lake, Table.QUARANTINE))
    in_order = sorted(found, key=lambda each: each.place)
    for version, of_version in groupby(in_order, lambda each: each.place >> VERSION_SHIFT):
        commit = deltalog.position(lake, table, table_id, version).commit or table_id
        own = replace(batch, generation=commit, batch_id=0, versions={})
        kept = quarantine.transaction_version(own.transaction(Table.QUARANTINE)[0]) or 0
        new = [each for each in of_version if each.place > kept]
        if not new:
            continue
        own = replace(own, batch_id=new[-1].place)
        yield Append(
            Table.QUARANTINE, as_quarantined(new, max_bytes), by=own, reasons={Reason.TOO_LARGE_TO_PUBLISH: len(new)}
        )
        batch.commits += 1
        extra = {"query": batch.query, "batch": batch.batch_id, "rows": len(new)}
        log.warning(
            "%s: %d rows are larger than the topic takes: they are in quarantine", batch.query, len(new), extra=extra
        )


def keep_new(
    lake: str, query: str, fencing_epoch: Callable[[str], int], found: Sequence[TooLarge], max_bytes: int
) -> None:
    """Put records that a resync cannot send into quarantine, but for those that are there already.

    Args:
        lake: where quarantine is.
        query: whose records they are.
        fencing_epoch: tells the epoch that the resync holds of it.
        found: the records.
        max_bytes: what the topic takes.

    Raises:
        LeaseLost: another driver has taken over.
        QueryAlreadyRunning: the lake is a folder, and another stream runs that writes quarantine. Delta's commits of
            one process may overwrite those of another there.
    """
    if not found:
        return
    topics = pa.array({each.topic for each in found}, pa.string())
    is_held = (pc.field("reason") == Reason.TOO_LARGE_TO_PUBLISH.value) & pc.field("topic").isin(topics)
    columns = ["topic", "key", "value"]
    held = DeltaTable(table_path(lake, Table.QUARANTINE)).to_pyarrow_dataset().to_table(columns, filter=is_held)
    known = set(zip(*(held.column(name).to_pylist() for name in columns), strict=True))
    new = [each for each in found if (each.topic, each.key, each.value) not in known]
    if not new:
        return
    others = [each for each in topology.writers(Table.QUARANTINE) if each != query]
    with nullcontext() if s3.is_on(lake) else lease.kept_out(lake, others):
        fence = CommitProperties(
            app_transactions=epochs_of(lake, Table.QUARANTINE, fencing_epoch, [query]),
            custom_metadata={"userMetadata": json.dumps({"query": query, "operation": "resync", "rows": len(new)})},
        )
        replace_rows(lake, Table.QUARANTINE, (), (), as_quarantined(new, max_bytes).to_batches(), fence)


def as_quarantined(found: Iterable[TooLarge], max_bytes: int) -> pa.Table:
    """Return quarantine's rows of records that never went out, so they have no coordinates."""
    now = datetime.now(UTC)
    rows = [
        {
            "reason": Reason.TOO_LARGE_TO_PUBLISH.value,
            "detail": f"key and value: {len(each.key) + len(each.value)} bytes, and the topic takes {max_bytes}",
            "key": each.key,
            "value": each.value,
            "topic": each.topic,
            "quarantined_at": now,
        }
        for each in found
    ]
    return pa.Table.from_pylist(rows, arrow_schema(Table.QUARANTINE))
