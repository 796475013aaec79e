"""Conflicting duplicates: purchases that were counted with other content, as quarantine has them.

Spark's executors import this module, and need no delta-rs for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Reason, Table, table_path

if TYPE_CHECKING:
    from pyarrow import dataset

PLACE = ("partition", "offset")
ROWS_AT_A_TIME = 256  # that are read at once: each may have megabytes
IS_ONE = pc.field("reason") == Reason.CONFLICTING_DUPLICATE.value


def held(lake: str, columns: Sequence[str]) -> pa.Table:
    """Return some columns of the rows that quarantine has of them."""
    return _quarantine(lake).to_table(columns=list(columns), filter=IS_ONE)


def held_at(lake: str, places: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows that quarantine has of them at some coordinates (partition, offset)."""
    if not places.num_rows:
        return
    is_among = IS_ONE & pc.field("offset").isin(places.column("offset").unique())
    found = _quarantine(lake).to_batches(
        filter=is_among, batch_size=ROWS_AT_A_TIME, batch_readahead=1, fragment_readahead=1
    )
    for batch in found:
        yield at(pa.Table.from_batches([batch]), places)


def _quarantine(lake: str) -> dataset.Dataset:
    from deltalake import DeltaTable  # noqa: PLC0415 - executors have no use for it

    return DeltaTable(table_path(lake, Table.QUARANTINE)).to_pyarrow_dataset()


def landed(lake: str, places: pa.Table) -> Iterator[pa.Table]:
    """Yield the purchases that landed at some coordinates (partition, offset) as quarantine has conflicting ones."""
    from deltalake import DeltaTable  # noqa: PLC0415 - executors have no use for it

    events = DeltaTable(table_path(lake, Table.PURCHASE_EVENTS)).to_pyarrow_dataset()
    # Files tell their bounds of offsets, so few are opened; an offset may be there once a partition.
    is_among = pc.field("offset").isin(places.column("offset").unique())
    found = events.to_batches(filter=is_among, batch_size=ROWS_AT_A_TIME, batch_readahead=1, fragment_readahead=1)
    for batch in found:
        yield refused(at(pa.Table.from_batches([batch]), places))


def refused(events: pa.Table) -> pa.Table:
    """Give purchases as they landed the columns with which quarantine has them."""
    values = {
        "reason": pa.repeat(Reason.CONFLICTING_DUPLICATE.value, events.num_rows),
        "detail": pa.repeat("$.purchaseId: counted before with other content", events.num_rows),
        "quarantined_at": pa.repeat(pa.scalar(datetime.now(UTC), pa.timestamp("us", tz="UTC")), events.num_rows),
    }
    for name, column in values.items():
        events = events.append_column(name, column)
    return events


def at(rows: pa.Table, places: pa.Table) -> pa.Table:
    """Keep the rows at some coordinates (partition, offset)."""
    wanted = set(zip(*(column.to_pylist() for column in places.columns), strict=True))
    found = zip(*(rows.column(name).to_pylist() for name in places.column_names), strict=True)
    return rows.filter(pa.array([place in wanted for place in found], pa.bool_()))
