"""What Spark's executors do of a large part of silver's purchases: pure functions of files.

Three tasks, one after the other. `pack` reads purchases and tells of each row its fingerprint, a digest of what it says
and where it is: 68 bytes, whatever a row has. Those of a bucket come together, and `judge` compares them with the
bucket's past, by the same rules as the driver, and adds to its sorted runs. `write` reads the rows once more and writes
those that count, and what conflicts to quarantine. Nothing is committed here: files of a task that was lost, or that
ran twice, are named by nobody.

Executors import this module and need little for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import executors
from customer_activity.engine.executors import Parcel
from customer_activity.lake import conflicts, pieces
from customer_activity.lake.datafiles import FileWriter
from customer_activity.lake.microbatch import ACCEPTED, QUARANTINED
from customer_activity.lake.pieces import Piece
from customer_activity.state import sorted_runs
from customer_activity.state.columns import UNNUMBERED
from customer_activity.state.sorted_runs import BUCKETS, Run
from customer_activity.streams.silver import purchases
from customer_activity.streams.silver.purchases import First

PAST = -1  # the number of a file whose rows are counted already
FIRST = pa.schema(  # a run's columns: what `First` has of an id
    [(name, pa.int64()) for name in ("hi", "lo", "said_hi", "said_lo")]
    + [("partition", pa.int32()), ("offset", pa.int64())]
)
KEYS = pa.schema([*FIRST, *((name, pa.int64()) for name in ("landing", "file", "row"))])
FORMAT = sorted_runs.made_by(FIRST, purchases.CONTENT, purchases.CONTENT_SQL)  # SQL says what `contents` does, too
REFUSED = pa.schema([("file", pa.int64()), ("row", pa.int64()), ("is_conflict", pa.bool_())])

Numbers = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]
Columns = Mapping[str, npt.NDArray[Any]]


class Work(NamedTuple):
    """What is to be done: plain values, which Spark brings to its executors.

    Attributes:
        lake: where the tables are.
        folder: where the sorted runs are.
        shares: what each task reads.
        lanes: how many tasks judge.
        runs: by bucket.
        adds: whether what is learnt goes into them.
    """

    lake: str
    folder: str
    shares: Sequence[Sequence[Piece]]
    lanes: int
    runs: Mapping[int, Sequence[Run]]
    adds: bool = True


def pack(work: Work, numbers: Iterable[int]) -> Iterator[Parcel]:
    """Tell of each row what KEYS has."""
    for number in numbers:
        for piece in work.shares[number]:
            for first, rows in pieces.read(work.lake, piece, (*purchases.COLUMNS, "landing")):
                high, low = sorted_runs.fingerprints(rows.column("purchase_id"))
                said_high, said_low = sorted_runs.digests(purchases.contents(rows))
                columns = {
                    "hi": high,
                    "lo": low,
                    "said_hi": said_high,
                    "said_lo": said_low,
                    "partition": rows.column("partition"),
                    "offset": rows.column("offset"),
                    "landing": rows.column("landing").fill_null(UNNUMBERED),
                    "file": np.full(rows.num_rows, PAST if piece.is_past else piece.file),
                    "row": np.arange(first, first + rows.num_rows),
                }
                lane_of = sorted_runs.buckets(high) * work.lanes // BUCKETS
                yield from executors.parcels(lane_of, pa.table(columns, schema=KEYS))


def judge(work: Work, packed: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Judge the rows of some buckets; report verdicts, the runs of each bucket, and which rows do not count."""
    for given in executors.unpacked(packed).values():
        yield _judged(work, {name: given.column(name).to_numpy() for name in KEYS.names})


def _judged(work: Work, given: Columns) -> dict[str, Any]:
    # What counts already comes first of its id, then records are in their order.
    order = np.lexsort(
        (given["offset"], given["partition"], given["landing"], given["file"] != PAST, given["lo"], given["hi"])
    )
    rows = {name: values[order] for name, values in given.items()}
    first_of = sorted_runs.first_of_each(rows["hi"], rows["lo"])
    id_of = np.repeat(np.arange(len(first_of)), np.diff(np.append(first_of, len(order))))
    counts = {name: rows[name][first_of] for name in FIRST.names}  # by id, the record that counts
    of_bucket = sorted_runs.buckets(counts["hi"])
    is_held = _looked_up(work, counts, of_bucket)
    is_new = rows["file"] != PAST
    is_alone = (np.bincount(id_of) == 1) & ~is_held
    suspects = np.flatnonzero(is_new & ~is_alone[id_of])
    suspected = np.unique(id_of[suspects])
    counted = suspected[(is_held | ~is_new[first_of])[suspected]]
    known = dict(zip(counted.tolist(), _firsts(counts, counted), strict=True))
    verdicts = purchases.judge(zip(id_of[suspects].tolist(), _firsts(rows, suspects), strict=True), known)
    refused = [
        (number, verdict) for number, verdict in zip(suspects.tolist(), verdicts, strict=True) if verdict != ACCEPTED
    ]
    runs = {}
    for bucket in np.unique(of_bucket[~is_held]).tolist() if work.adds else ():
        is_added = ~is_held & (of_bucket == bucket)
        new = pa.table({name: counts[name][is_added] for name in FIRST.names}, schema=FIRST)
        runs[bucket] = sorted_runs.added(work.folder, work.runs.get(bucket, ()), new)
    return {
        "verdicts": Counter(verdicts) + Counter({ACCEPTED: int(is_new.sum()) - len(suspects)}),
        "runs": runs,
        "refused": _noted(work.folder, rows, refused) if refused else None,
    }


def _looked_up(work: Work, counts: dict[str, npt.NDArray[Any]], of_bucket: Numbers) -> Marks:
    """Replace what counts of each id by what a run has of it; return which ids a run has."""
    is_held = np.zeros(len(of_bucket), bool)
    for bucket in np.unique(of_bucket).tolist():
        of_this = np.flatnonzero(of_bucket == bucket)
        high, low = counts["hi"][of_this], counts["lo"][of_this]
        for which, held in sorted_runs.look_up(work.folder, work.runs.get(bucket, ()), high, low):
            for name in FIRST.names:
                counts[name][of_this[which]] = held.column(name).to_numpy()
            is_held[of_this[which]] = True
    return is_held


def _firsts(columns: Columns, which: Numbers) -> Iterator[First]:
    said = zip(columns["said_hi"][which].tolist(), columns["said_lo"][which].tolist(), strict=True)
    places = (columns[name][which].tolist() for name in ("partition", "offset"))
    return map(First._make, zip(*places, said, strict=True))


def _noted(folder: str, rows: Columns, refused: Sequence[tuple[int, str]]) -> str:
    """Write down which rows of which file do not count, in their order; return the file's name."""
    numbers = np.array([number for number, _ in refused])
    is_conflict = pa.array([verdict == QUARANTINED for _, verdict in refused])
    found = pa.table([rows["file"][numbers], rows["row"][numbers], is_conflict], schema=REFUSED)
    return sorted_runs.write(folder, found.sort_by([("file", "ascending"), ("row", "ascending")])).path


def write(work: Work, refused: Sequence[str], numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Write the rows that count, and those that conflict with one that does; report each file."""
    lists = [sorted_runs.read(work.folder, path) for path in refused]
    counted, conflicting = FileWriter(work.lake, Table.PURCHASES), FileWriter(work.lake, Table.QUARANTINE)
    for number in numbers:
        for piece in work.shares[number]:
            for first, rows in pieces.read(work.lake, piece, counted.schema.names):
                refused_rows, is_conflict = _among(lists, piece.file, first, rows.num_rows)
                counts = np.ones(rows.num_rows, bool)
                counts[refused_rows] = False
                counted.write(rows.filter(pa.array(counts)))
                if is_conflict.any():
                    raw = pieces.read_at(work.lake, piece, first, arrow_schema(piece.table).names)
                    conflicting.write(conflicts.refused(raw.take(pa.array(refused_rows[is_conflict]))))
    for writer in (counted, conflicting):
        if (file := writer.close()) is not None:
            yield {"table": writer.table.value, "file": file}


def _among(lists: Sequence[pa.Table], file: int, first: int, rows: int) -> tuple[Numbers, Marks]:
    """Return which of some rows of a file are refused, counted from the first of them, and which of those conflict."""
    numbers, is_conflict = [np.empty(0, np.int64)], [np.empty(0, bool)]
    for of_task in lists:
        begin, end = np.searchsorted(of_task.column("file").to_numpy(), [file, file + 1])
        of_file = of_task.slice(begin, end - begin)
        row = of_file.column("row").to_numpy()
        low, high = np.searchsorted(row, [first, first + rows])
        numbers.append(row[low:high] - first)
        is_conflict.append(of_file.column("is_conflict").slice(low, high - low).to_numpy())
    return np.concatenate(numbers), np.concatenate(is_conflict)
