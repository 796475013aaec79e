"""What Spark's executors do of a compaction: pure functions of files, as all tasks.

Executors import this module and need little for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import pieces
from customer_activity.lake.datafiles import ROW_GROUP_ROWS, FileWriter
from customer_activity.lake.pieces import Piece


class Work(NamedTuple):
    """Files that are rewritten: those of a share, in their order, become one."""

    lake: str
    table: Table
    shares: Sequence[Sequence[str]]  # paths below the table


def rewrite(work: Work, numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Write the rows of each share to a file, and report it; a column that a file lacks is null."""
    columns = arrow_schema(work.table).names
    for number in numbers:
        writer = FileWriter(work.lake, work.table)
        for path in work.shares[number]:
            for _, rows in pieces.read(work.lake, Piece(work.table, path), columns):
                for part in rows.to_batches(max_chunksize=ROW_GROUP_ROWS):  # older files may have a million
                    writer.write(part)
        yield {"share": number, "file": writer.close()}
