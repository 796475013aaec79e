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

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import ChangeFeedLost
from customer_activity.lake import deltalog, feeds
from customer_activity.storage.filesystem import filesystem

BEFORE, AFTER = ("delete", "update_preimage"), ("insert", "update_postimage")
ROWS_AT_A_TIME = 65_536
NOT_FOUND = "not found"  # in object_store's words for a file that is gone


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
    if deltalog.entry(lake, table, version) is None:  # delta-rs takes it for a version without rows
        raise lost(table, version)
    try:
        log = DeltaTable(table_path(lake, table))
        feed = pa.table(log.load_cdf(starting_version=version, ending_version=version, allow_out_of_range=True))
    except (DeltaError, OSError, pa.ArrowInvalid) as error:
        if NOT_FOUND not in str(error):  # a store that does not answer has lost nothing
            raise
        raise lost(table, version) from error
    kind = feed.column("_change_type").cast(pa.string())
    rows = feed.select(schema.names).cast(schema)
    old, new = (rows.filter(pc.is_in(kind, pa.array(kinds))) for kinds in (BEFORE, AFTER))
    here, there = (
        side.select(key).append_column(name, pa.array(np.arange(side.num_rows)))
        for name, side in (("_here", new), ("_there", old))
    )
    paired = here.join(there, list(key), join_type="full outer")
    is_gone, before = pc.is_null(paired.column("_here")), old.take(paired.column("_there"))
    # Of what is gone the place among the old rows, which come after the new ones.
    places = pc.if_else(is_gone, pc.add(paired.column("_there"), new.num_rows), paired.column("_here"))
    found = pa.concat_tables([new, old]).take(places)
    differs = pc.or_(is_gone, pc.invert(_alike(found, before)))
    order = pc.sort_indices(found, [(name, "ascending") for name in key])
    order = order.filter(differs.take(order))
    return Changed(found.take(order), is_gone.take(order), before.take(order))


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
    """Say that what a version changed cannot be read any more, and by which commands its topics get it all the same."""
    publishers = [stream for stream in topology.readers(table) if topology.spec(stream).is_publisher]
    commands = " and ".join(f"`activity resync {stream} --reason …`" for stream in publishers)
    return ChangeFeedLost(
        f"{table.label}: what version {version} changed is gone, and it is not published yet",
        remedy=f"find out what removed it; {commands} {'sends' if len(publishers) == 1 else 'send'} what differs",
    )


def _alike(rows: pa.Table, others: pa.Table) -> pa.ChunkedArray:
    """Return which rows are the same, column by column; null is like null."""
    alike = pa.chunked_array([np.ones(rows.num_rows, bool)])
    for one, other in zip(rows.columns, others.columns, strict=True):
        same = pc.fill_null(pc.equal(one, other), fill_value=False)
        alike = pc.and_(alike, pc.or_(same, pc.and_(pc.is_null(one), pc.is_null(other))))
    return alike
