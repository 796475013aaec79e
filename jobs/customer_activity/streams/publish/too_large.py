"""Rows that a topic does not take: they go into quarantine, each once, and the publisher goes on without them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

from customer_activity.catalog import Reason, Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.logs import log
from customer_activity.engine.stream import Append, Steps
from customer_activity.lake import deltalog
from customer_activity.lake.microbatch import MicroBatch

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

    Where the table is put back, the same version is another commit, and its rows are to be kept, too: so it is the
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
