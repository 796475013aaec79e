"""What a version changed in a table of current rows: one row a key, as it is after it, beside what it was before.

The change feed is delta-rs's (`load_cdf`), of one version at a time. Its rows are in no order, so they are sorted by
their keys: a publisher that was ended between two parts of a version counts on the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import ChangeFeedLost
from customer_activity.lake import feeds
from customer_activity.storage.filesystem import filesystem

BEFORE, AFTER = ("delete", "update_preimage"), ("insert", "update_postimage")
ROWS_AT_A_TIME = 65_536


class Changed(NamedTuple):
    """Rows of a table, in an order that stays the same.

    Attributes:
        rows: as they are now; of a key that is gone, as it was last.
        is_gone: of each row, whether its key has none now.
        before: as they were, in the same order; all columns are null for a key that had none.
    """

    rows: pa.Table
    is_gone: pa.Array
    before: pa.Table

    def slice(self, offset: int, length: int | None = None) -> Changed:
        """Return some of them."""
        return Changed(*(each.slice(offset, length) for each in self))


def in_version(lake: str, table: Table, key: Sequence[str], version: int) -> Changed:
    """Return the rows that a version changed, in the order of their keys; those that it rewrote as they were are not.

    Raises:
        ChangeFeedLost: its files, or its entry of the log, are gone.
    """
    schema = arrow_schema(table)
    try:
        log = DeltaTable(table_path(lake, table))
        feed = pa.table(log.load_cdf(starting_version=version, ending_version=version, allow_out_of_range=True))
    except (DeltaError, OSError) as error:
        raise lost(table, version) from error
    kind = feed.column("_change_type").cast(pa.string())
    rows = feed.select(schema.names).cast(schema)
    old, new = (rows.filter(pc.is_in(kind, pa.array(kinds))) for kinds in (BEFORE, AFTER))
    places = {each: place for place, each in enumerate(_keys(old, key))}
    kept = list(_keys(new, key))
    here = set(kept)
    gone = [place for each, place in places.items() if each not in here]
    all_of_them = pa.concat_tables([new, old.take(pa.array(gone, pa.int64()))])
    before = old.take(pa.array([*(places.get(each) for each in kept), *gone], pa.int64()))
    is_gone = pa.array(np.arange(all_of_them.num_rows) >= new.num_rows)
    differs = pc.or_(is_gone, pc.invert(_alike(all_of_them, before)))
    order = pc.sort_indices(all_of_them, [(name, "ascending") for name in key])
    order = order.filter(differs.take(order))
    return Changed(all_of_them.take(order), is_gone.take(order), before.take(order))


def snapshot(lake: str, table: Table, version: int) -> Iterator[Changed]:
    """Yield a table's rows at a version, as if that version had added them all: file by file, in the order of names.

    Raises:
        ChangeFeedLost: its log or its files are gone.
    """
    files, folder = filesystem(table_path(lake, table))
    schema = arrow_schema(table)
    for added in sorted(feeds.snapshot(lake, table, version), key=lambda each: each.path):
        try:
            with pq.ParquetFile(f"{folder}/{added.path}", filesystem=files) as opened:
                for batch in opened.iter_batches(ROWS_AT_A_TIME, columns=schema.names):
                    rows = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
                    nothing = pa.nulls(rows.num_rows, pa.int64())
                    yield Changed(rows, pa.repeat(pa.scalar(value=False), rows.num_rows), rows.take(nothing))
        except FileNotFoundError as error:
            raise lost(table, version) from error


def lost(table: Table, version: int) -> ChangeFeedLost:
    """Say that what a version changed cannot be read any more."""
    return ChangeFeedLost(
        f"{table.label}: what version {version} changed is gone, and it is not published yet",
        remedy="find out what removed it; `activity resync STREAM --reason …` sends what differs",
    )


def _keys(rows: pa.Table, key: Sequence[str]) -> Iterator[tuple[object, ...]]:
    return zip(*(rows.column(name).to_pylist() for name in key), strict=True)


def _alike(rows: pa.Table, others: pa.Table) -> pa.ChunkedArray:
    """Return which rows are the same, column by column; null is like null."""
    alike = pa.chunked_array([np.ones(rows.num_rows, bool)])
    for one, other in zip(rows.columns, others.columns, strict=True):
        same = pc.fill_null(pc.equal(one, other), fill_value=False)
        alike = pc.and_(alike, pc.or_(same, pc.and_(pc.is_null(one), pc.is_null(other))))
    return alike
