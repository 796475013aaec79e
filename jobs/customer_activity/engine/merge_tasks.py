"""What Spark's executors do of a large merge into current rows: pure functions of files.

Nearly every file of a table has a row of some key that changes, so the whole table is rewritten, whoever merges.
`pack` reduces changes, piece by piece, and reads the rows of the table, each to the lane of its key, or of the part of
it that keeps apart what may be joined. `fold` brings the changes of a lane to one a key, folds them into the lane's
rows as the stream's MERGE does (`lake/folding.py`), and writes all rows as one file, and beside it those that differ,
for the table's change data feed.

Executors import this module and need little for it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import executors
from customer_activity.engine.executors import Parcel
from customer_activity.engine.merge_rules import MergeRules
from customer_activity.lake import folding, pieces
from customer_activity.lake.datafiles import ROW_GROUP_BYTES, ROW_GROUP_ROWS, FileWriter, in_parts, wide
from customer_activity.lake.folding import Folded
from customer_activity.lake.pieces import Piece

CHANGES, HELD = range(2)  # kinds of parcels
MOST_LANES = 256
BETWEEN = "\x00"  # the columns of a key, as one text
CHANGE_FILES = "_change_data"  # the folder of a table that Delta has them in


class Work(NamedTuple):
    """What is to be done: plain values, which Spark brings to its executors.

    Attributes:
        lake: where the tables are.
        stream: whose merge it is.
        shares: what each task reads: changes, and rows of the table (`Piece.is_past`).
        lanes: how many there are.
        has_rows: whether the table has a file; into an empty one there are inserts alone, which its feed reads from it.
    """

    lake: str
    stream: MergeRules
    shares: Sequence[Sequence[Piece]]
    lanes: int
    has_rows: bool


def pack(work: Work, numbers: Iterable[int]) -> Iterator[Parcel]:
    """Reduce changes, and pass the rows of the table on."""
    stream = work.stream
    for number in numbers:
        share = work.shares[number]
        if share[0].is_past:
            names = arrow_schema(stream.target).names
            groups, kind = _read(work, share, names), HELD
        else:
            changes = (batch for rows in _read(work, share, stream.columns) for batch in rows.to_batches())
            groups, kind = iter([stream.marked(stream.reduce(changes))]), CHANGES
        yield from by_key(groups, stream.lane_key, work.lanes, kind)


def _read(work: Work, share: Sequence[Piece], columns: Sequence[str]) -> Iterator[pa.Table]:
    return (rows for piece in share for _, rows in pieces.read(work.lake, piece, columns))


def by_key(groups: Iterable[pa.Table], key: Sequence[str], lanes: int, kind: int) -> Iterator[Parcel]:
    """Pack rows of a kind by the lane of their key."""
    batches = (batch for rows in groups for batch in rows.to_batches())
    for rows in in_parts(batches, ROW_GROUP_ROWS, ROW_GROUP_BYTES):
        yield from executors.parcels(_lanes_of(rows.select(key), lanes), rows, kind)


def _lanes_of(keys: pa.Table, lanes: int) -> npt.NDArray[np.int64]:
    """Return which of some lanes gets each key."""
    return checksums(keys).astype(np.int64) * lanes >> 32


def checksums(keys: pa.Table) -> npt.NDArray[np.uint32]:
    """Return 32 bits of each key, which others may share: a fifth of what a fingerprint costs."""
    texts = [column.cast(pa.string()) for column in keys.columns]
    joined = pc.binary_join_element_wise(*texts, BETWEEN, null_handling="replace")
    return np.fromiter(map(crc32, joined.cast(pa.binary()).to_pylist()), np.uint32, keys.num_rows)


def fold(work: Work, packed: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Fold the changes of a lane into its rows and write these; report both files, and numbers of rows.

    Raises:
        KeyMissing: a change has no value in a column of the key.
    """
    found = executors.unpacked(packed)
    if not found:
        return
    stream = work.stream
    changes = stream.together(found[CHANGES]) if CHANGES in found else stream.reduce(())
    held = found.get(HELD, arrow_schema(stream.target).empty_table())
    changes = stream.with_held(changes, held)
    if any(changes.column(name).null_count for name in stream.key):
        raise executors.KeyMissing
    folded = folding.folded(wide(held, but=stream.key), changes, stream.key, stream.aggregates, stream.deletes)
    rewritten = written(work.lake, stream.target, folded, has_rows=work.has_rows)
    yield {**rewritten, "held": held.num_rows}


def written(lake: str, table: Table, folded: Folded, *, has_rows: bool) -> dict[str, Any]:
    """Write a lane's rows of a table, and those that differ; return what is reported of them."""
    files = FileWriter(lake, table)
    files.write(folded.rows)
    changed = FileWriter(lake, table, _change_file(), more=(folding.CHANGE_TYPE,))
    if has_rows:
        changed.write(folded.differing)
    counted = {"differing": folded.differing.num_rows, "changes": folded.changes}
    return {"file": files.close(), "changed": changed.close(), **counted}


def _change_file() -> str:
    return f"{CHANGE_FILES}/cdc-{uuid.uuid4()}.snappy.parquet"
