"""Pieces of a table's files: what one task on an executor reads.

Executors import this module and need little for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake.datafiles import ROW_GROUP_ROWS, whole
from customer_activity.storage.filesystem import filesystem

TASK_ROWS = 4 * ROW_GROUP_ROWS  # that a task reads
ROW_BYTES = 64  # of Parquet, as a purchase has: of a file that does not tell how many rows it has
LANE_ROWS, LANE_BYTES = 250_000, 32 << 20  # of Parquet, that come together in a task; it holds all of them


class File(Protocol):
    """A file of a table."""

    @property
    def path(self) -> str:
        """Below the table."""

    @property
    def rows(self) -> int:
        """In it."""

    @property
    def size(self) -> int:
        """Bytes."""


class Piece(NamedTuple):
    """Some row groups of a file.

    Attributes:
        table: that has the file.
        path: below the table.
        share: which of the equal shares of its row groups.
        shares: how many there are.
        file: number of the file among those that were divided.
        is_past: whether its rows are what is known already, and not what is new.
    """

    table: Table
    path: str
    share: int = 0
    shares: int = 1
    file: int = 0
    is_past: bool = False


def divided(table: Table, files: Iterable[File], *, is_past: bool = False) -> list[list[Piece]]:
    """Divide files into what one task reads: a part of a large file, or some small ones together."""
    shares: list[list[Piece]] = []
    room = 0
    for number, file in enumerate(files):
        of_file = file.rows or max(1, file.size // ROW_BYTES)
        count = -(-of_file // TASK_ROWS)
        for share in range(count):
            rows = of_file // count
            if room < rows or not shares:
                shares.append([])
                room = TASK_ROWS
            shares[-1].append(Piece(table, file.path, share, count, number, is_past))
            room -= rows
    return shares


def lanes(files: Sequence[File], at_once: int, most: int, least_rows: int = 0) -> int:
    """Return how many tasks get the rows of files by their keys, where so many run at once.

    They are fewer than run at once where each would get less than `least_rows`, unless these have many bytes.
    """
    rows, size = sum(file.rows for file in files), sum(file.size for file in files)
    busy = min(at_once, max(1, rows // least_rows)) if least_rows else at_once
    return min(most, max(busy, rows // LANE_ROWS, size // LANE_BYTES))


def read(lake: str, piece: Piece, columns: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
    """Yield a piece's rows by row group, each with the number of its first row in the file.

    A column that the file lacks is null. A file may have fewer row groups than shares.
    """
    with _opened(lake, piece) as file:
        for group, first in _groups(file):
            if group * piece.shares // file.num_row_groups == piece.share:
                yield first, _group(file, group, piece.table, columns)


def read_at(lake: str, piece: Piece, row: int, columns: Sequence[str]) -> pa.Table:
    """Return the row group that begins with a row of the file."""
    with _opened(lake, piece) as file:
        group = next(group for group, first in _groups(file) if first == row)
        return _group(file, group, piece.table, columns)


def _opened(lake: str, piece: Piece) -> pq.ParquetFile:
    files, folder = filesystem(table_path(lake, piece.table))
    return pq.ParquetFile(f"{folder}/{piece.path}", filesystem=files)


def _groups(file: pq.ParquetFile) -> Iterator[tuple[int, int]]:
    """Yield the number of each row group that has rows, and of its first one."""
    rows = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    firsts = accumulate(rows, initial=0)
    return ((group, first) for group, (count, first) in enumerate(zip(rows, firsts, strict=False)) if count)


def _group(file: pq.ParquetFile, group: int, table: Table, columns: Sequence[str]) -> pa.Table:
    schema = pa.schema([arrow_schema(table).field(name) for name in columns])
    there = [name for name in schema.names if name in file.schema_arrow.names]
    return pa.Table.from_batches(whole(file.read_row_group(group, columns=there).to_batches(), schema), schema)
