"""Corrections as a lake keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import DeltaTable

from customer_activity import topology
from customer_activity.catalog import REPLAY, Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import corrections
from customer_activity.lake.corrections import Change, Correction
from customer_activity.lake.named_operations import Fence, Operation
from customer_activity.lease import lease
from customer_activity.rebuild import finishing
from support import tables

NOON = datetime(2026, 11, 22, 10, 15, tzinfo=UTC)
BLANK = Correction(
    run="20261122T101500Z",
    at=NOON,
    reason="rebuild --apply",
    undoes="",
    changes={},
    generations={},
    landed={},
    counted={},
    counted_before={},
)


def count_wrongly(lake: str, purchase_id: str) -> None:
    """Have silver count a purchase that bronze does not know, like another one: as a wrong rule would."""
    held = DeltaTable(table_path(lake, Table.PURCHASES)).to_pyarrow_table().to_pylist()
    (row,) = (row for row in held if row["purchase_id"] == purchase_id)
    wrong = row | {"purchase_id": "P-X", "amount": Decimal("100.00"), "offset": 10_000}
    tables.append(lake, Table.PURCHASES, wrong, query=REPLAY)  # as one of the pipeline's own commits


def correction_of(changes: dict[Table, Change], **values: Any) -> Correction:
    """Return a correction of some tables."""
    return msgspec.structs.replace(BLANK, changes={table.label: change for table, change in changes.items()}, **values)


def correct(
    lake: str, table: Table, key: tuple[str, ...], retracted: Sequence[dict[str, Any]], added: Sequence[dict[str, Any]]
) -> Change:
    """Make one commit of a correction to a table, as a correction of the whole lake makes it."""
    run = corrections.new_run(lake, datetime.now(UTC))
    kept = [
        corrections.keep(lake, table, run, what, pa.Table.from_pylist(list(rows), arrow_schema(table)).to_batches())
        for what, rows in (("retracted", retracted), ("added", added))
    ]
    change = Change(key, *kept)
    with lease.kept_out(lake, topology.names()) as held:
        fence = Fence(Operation.CORRECTION, run, "a test", held.fencing_epoch, lake)
        finishing.commit(fence, table, change, {"query": topology.writers(table)[0]})
    return change
