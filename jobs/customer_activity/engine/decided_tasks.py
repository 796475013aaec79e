"""What Spark's executors do of a large part of a stream that goes by decisions: pure functions of files.

A row of the source leads to rows by itself, so a task reads its share of the part, derives what it leads to by the
driver's own function, and writes one file.

Executors import this module and need little for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from customer_activity.catalog import Table
from customer_activity.engine.decisions import Decisions, landings_of
from customer_activity.lake import pieces
from customer_activity.lake.datafiles import FileWriter
from customer_activity.lake.pieces import Piece

# What rows of the source lead to, given for each the decision that is for its landing.
Derive = Callable[[pa.Table, pa.Table], pa.Table]


class Work(NamedTuple):
    """What is to be done: plain values, which Spark brings to its executors.

    Attributes:
        lake: where the tables are.
        source: the table that is followed.
        target: the one that follows from it.
        columns: what is read of the source.
        shares: what each task reads of it.
        decisions: for all landings of the part.
    """

    lake: str
    source: Table
    target: Table
    columns: Sequence[str]
    shares: Sequence[Sequence[Piece]]
    decisions: Decisions


def write(work: Work, derive: Derive, numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Derive what shares lead to and write it; report the file of each, and how many rows were read for it."""
    for number in numbers:
        yield written(work, number, derive)


def written(work: Work, number: int, derive: Derive) -> dict[str, Any]:
    """Derive what one share leads to and write it; return what is to be reported."""
    writer, read = FileWriter(work.lake, work.target), 0
    for piece in work.shares[number]:
        for _, rows in pieces.read(work.lake, piece, work.columns):
            writer.write(derive(rows, work.decisions.at(landings_of(rows))))
            read += rows.num_rows
    return {"file": writer.close(), "read": read}
