"""What Spark's executors do of a large part of payments: pure functions of files.

`pack` brings the part's purchases and payments to the lane of their purchase's id, and what the tables had before: all
rows of those that are rewritten, and of the others the purchases that the part has a payment of, or whose time to be
paid ends with it. Who reads those reads the part's ids first, so a lane has no more than the part calls for, however
large the tables are. `join_lane` applies the driver's own rule (`joining.py`) to the rows of a lane, and writes what
comes of them: rows of silver.paid_purchases, and all rows of the other two tables.

Executors import this module and need little for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import executors, merge_tasks
from customer_activity.engine.executors import Parcel
from customer_activity.lake import folding, pieces
from customer_activity.lake.datafiles import FileWriter
from customer_activity.lake.pieces import Piece
from customer_activity.streams.payments.joining import GONE, Due, join
from customer_activity.streams.payments.matching import PAYMENT, PURCHASE
from customer_activity.streams.payments.past import Past

KEY = ("purchase_id",)  # of a lane
BOUGHT, PAYMENTS = Table.TIMED_PURCHASES, Table.PAYMENT_EVENTS  # what a part has
LOOKED_UP = (Table.TIMED_PURCHASES, Table.PAID)  # of which a lane has the rows that the part calls for
REWRITTEN = (Table.UNPAID, Table.UNMATCHED_PAYMENTS)  # of which lanes have all rows
COLUMNS = {
    (BOUGHT, False): PURCHASE,
    (PAYMENTS, False): PAYMENT,
    (Table.TIMED_PURCHASES, True): [*PURCHASE, "landing"],
    **{(table, True): arrow_schema(table).names for table in (Table.PAID, *REWRITTEN)},
}
KINDS = list(COLUMNS)  # of parcels, by number: of which table, and whether it is what was there before
READ = len(KINDS)  # of parcels that tell how many rows a share has, of which a lane gets some
COUNTED = [(table, is_past) for table, is_past in KINDS if table not in REWRITTEN]  # the others are by what was folded
Checksums = npt.NDArray[np.uint32]


class Work(NamedTuple):
    """What is to be done: plain values, which Spark brings to its executors.

    Attributes:
        lake: where the tables are.
        shares: what each task reads, all of one table: of the part, and of what was there before (`Piece.is_past`).
        lanes: how many there are.
        due: whose time to be paid is over.
        landed_to: purchases of later landings are not read yet.
        keys: of the tables that are rewritten, the columns that tell their rows apart.
        with_rows: those of them that have a file; into an empty one there are inserts alone, which its feed reads from
            it.
    """

    lake: str
    shares: Sequence[Sequence[Piece]]
    lanes: int
    due: Due
    landed_to: int
    keys: Mapping[Table, tuple[str, ...]]
    with_rows: frozenset[Table]


def pack(work: Work, numbers: Iterable[int]) -> Iterator[Parcel]:
    """Bring the rows of the part, and of what was there before, to the lanes of their purchases."""
    for number in numbers:
        share = work.shares[number]
        kind = (share[0].table, share[0].is_past)
        groups = _read(work, share, COLUMNS[kind])
        if share[0].is_past and share[0].table in LOOKED_UP:
            read: list[int] = []
            called_for = _called_for(work, share[0].table, _noted(groups, read))
            yield from merge_tasks.by_key(called_for, KEY, work.lanes, KINDS.index(kind))
            told = pa.table({"kind": [KINDS.index(kind)], "rows": [sum(read)]})
            yield executors.parcel(number % work.lanes, told, READ)
        else:
            yield from merge_tasks.by_key(groups, KEY, work.lanes, KINDS.index(kind))


def _noted(groups: Iterable[pa.Table], read: list[int]) -> Iterator[pa.Table]:
    """Pass rows on, and note how many they are."""
    for rows in groups:
        read.append(rows.num_rows)
        yield rows


def _read(work: Work, share: Iterable[Piece], columns: Sequence[str]) -> Iterator[pa.Table]:
    return (rows for piece in share for _, rows in pieces.read(work.lake, piece, columns))


def _called_for(work: Work, table: Table, groups: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Keep the purchases that may be among those that the part is about."""
    asked = asked_for(work, table)
    for rows in groups:
        yield rows.filter(pc.or_(pa.array(_are_among(rows, asked)), work.due.ends(rows)))


def asked_for(work: Work, table: Table) -> Checksums:
    """Return the checksums of the ids that a part asks a table for, in order, each once: 4 bytes an id.

    What has the checksum of one by chance is a row more for a lane, which asks for ids: one among 1,700 where the part
    has 2.5 million ids.
    """
    # Purchases that are new bring themselves; whether they are paid already only silver.paid_purchases can tell.
    sides = (PAYMENTS,) if table is BOUGHT else (PAYMENTS, BOUGHT)
    asking = (piece for share in work.shares for piece in share if not piece.is_past and piece.table in sides)
    found = [merge_tasks.checksums(ids) for ids in _read(work, asking, KEY)]
    return np.unique(np.concatenate([np.empty(0, np.uint32), *found]))


def _are_among(rows: pa.Table, asked: Checksums) -> npt.NDArray[np.bool_]:
    if not len(asked):
        return np.zeros(rows.num_rows, np.bool_)
    found = merge_tasks.checksums(rows.select(KEY))
    is_among: npt.NDArray[np.bool_] = asked[np.searchsorted(asked, found).clip(max=len(asked) - 1)] == found
    return is_among


def join_lane(work: Work, packed: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Join the purchases and payments of a lane; report the files with what comes of them."""
    found = executors.unpacked(packed)
    if not found:
        return
    of = {kind: found.get(number, _none(kind)) for number, kind in enumerate(KINDS)}
    past = Past.among({table: rows for (table, is_past), rows in of.items() if is_past}, work.landed_to)
    joined = join(of[BOUGHT, False], of[PAYMENTS, False], past, work.due)
    paid = FileWriter(work.lake, Table.PAID)
    paid.write(joined.paid)
    told: dict[str, Any] = {"read": _counts(of, found.get(READ)), Table.PAID.label: {"file": paid.close()}}
    for table, changes in zip(REWRITTEN, (joined.unpaid, joined.unmatched), strict=True):
        held = of[table, True]
        folded = folding.folded(held, changes, work.keys[table], gone=GONE)
        rewritten = merge_tasks.written(work.lake, table, folded, has_rows=table in work.with_rows)
        told[table.label] = {**rewritten, "held": held.num_rows}
    yield told


def _counts(of: Mapping[tuple[Table, bool], pa.Table], told: pa.Table | None) -> list[int]:
    """Return how many rows of each COUNTED kind have come: by what shares told of those that are looked up."""
    counts = {kind: 0 if kind[1] else of[kind].num_rows for kind in COUNTED}
    for number, rows in zip(*told.to_pydict().values(), strict=True) if told is not None else ():
        counts[KINDS[number]] += rows
    return list(counts.values())


def _none(kind: tuple[Table, bool]) -> pa.Table:
    return pa.schema([arrow_schema(kind[0]).field(name) for name in COLUMNS[kind]]).empty_table()
