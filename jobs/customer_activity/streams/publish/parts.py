"""Parts of a batch: what goes out in one Kafka transaction, bounded in records and bytes.

A part ends with a version of gold where it can. A version that is larger than a part is cut by the number of its rows,
in the order of its commit's files: the marker tells how many of them are out.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.contracts.columns import ACTIVITY_FIELDS
from customer_activity.kafka.marker import Marker

# A transaction must end well inside the broker's time-out of 60 s: 64 MB take one or two on two cores.
PART_RECORDS = 100_000
PART_BYTES = 64 << 20  # of keys and values

TEXTS = ["customer_id", *(column.name for column in ACTIVITY_FIELDS if column.type == pa.string())]  # key and value
OTHER_BYTES = 400  # of a record beside its texts: the names of its fields, times, numbers
VERSION, ROW = "_commit_version", "_row"

Numbers = npt.NDArray[np.int64]


class Part(NamedTuple):
    """What goes out together.

    Attributes:
        rows: of gold.activity_changes, with `_commit_version` and `_row`, the number of the row in its commit.
        marker: how far gold is out with it.
    """

    rows: pa.Table
    marker: Marker


def parts(
    feed: Iterable[pa.Table], begin: Marker, *, records: int = PART_RECORDS, size: int = PART_BYTES
) -> Iterator[Part]:
    """Cut a feed into parts.

    Args:
        feed: rows with `_commit_version` and `_row`, in the order of both.
        begin: what is out already: it is left out.
        records: how many a part has at most.
        size: how many bytes of keys and values it has at most, or one record.
    """
    held: list[pa.Table] = []
    weights = np.empty(0, np.int64)
    for read in feed:
        rows = behind(read, begin)
        if not rows.num_rows:
            continue
        held.append(rows)
        weights = np.append(weights, sizes(rows))
        while (fitting := _fitting(weights, records, size)) < len(weights):
            rows = pa.concat_tables(held)
            count, marker = _cut(rows, fitting, begin)
            yield Part(rows.slice(0, count), marker)
            held, weights = [rows.slice(count)], weights[count:]
    if len(weights):
        rows = pa.concat_tables(held)
        newest = rows.column(VERSION)[-1].as_py()
        yield Part(rows, begin._replace(version=newest, rows=0))


def behind(rows: pa.Table, marker: Marker) -> pa.Table:
    """Keep the rows that are not out."""
    version, number = rows.column(VERSION), rows.column(ROW)
    of_next = pc.and_(pc.equal(version, marker.version + 1), pc.greater_equal(number, marker.rows))
    return rows.filter(pc.or_(of_next, pc.greater(version, marker.version + 1)))


def _fitting(weights: Numbers, records: int, size: int) -> int:
    """Return how many of the first rows a part takes: one at least."""
    return max(1, min(records, int(np.searchsorted(np.cumsum(weights), size, side="right"))))


def _cut(rows: pa.Table, fitting: int, begin: Marker) -> tuple[int, Marker]:
    """Return how many rows go, and the marker: to the end of a version where there is one."""
    next_version = rows.column(VERSION)[fitting].as_py()
    versions = np.asarray(rows.column(VERSION).slice(0, fitting + 1))
    first = int(np.searchsorted(versions, next_version, side="left"))
    if first:
        return first, begin._replace(version=next_version - 1, rows=0)
    return fitting, begin._replace(version=next_version - 1, rows=rows.column(ROW)[fitting].as_py())


def sizes(rows: pa.Table) -> Numbers:
    """Return about how many bytes each row's key and value have on the topic."""
    texts = [pc.fill_null(pc.binary_length(rows.column(column)), 0).cast(pa.int64()) for column in TEXTS]
    return np.asarray(pc.add(functools.reduce(pc.add, texts), OTHER_BYTES), np.int64)


def numbered(rows: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Add `_row` to rows that are in the order of versions, and in each of its commit's files."""
    newest, count = -1, 0
    for table in rows:
        if not table.num_rows:
            continue
        versions = np.asarray(table.column(VERSION))
        first = np.searchsorted(versions, versions, side="left")
        numbers = np.arange(len(versions), dtype=np.int64) - first
        if versions[0] == newest:
            numbers[versions == newest] += count
        count = int(numbers[-1]) + 1
        newest = int(versions[-1])
        yield table.append_column(ROW, pa.array(numbers))
