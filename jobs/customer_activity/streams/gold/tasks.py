"""What Spark's executors do of a large part of gold: pure functions of files.

`pack` sums purchases up by customer, piece by piece: a customer with a third of them is one row of each. Changes of
profiles go as they are. Those of a bucket come together, and `change` computes what differs by the driver's own rule
(`rows.py`), from what the bucket's sorted runs have of these customers. It writes the rows of gold, and what is known
of the customers since as one more run.

Executors import this module and need little for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import executors
from customer_activity.engine.executors import Parcel
from customer_activity.lake import pieces
from customer_activity.lake.datafiles import FileWriter
from customer_activity.lake.pieces import Piece
from customer_activity.state import profile_records, sorted_runs
from customer_activity.state.sorted_runs import BUCKETS, Longs, Numbers, Run
from customer_activity.streams.gold.rows import KNOWN, different, has_profile, known, parts, since
from customer_activity.streams.gold.state import NEEDS, with_an_end
from customer_activity.streams.gold.sums import summarised, totalled

SIDES = {holding.table: list(holding.columns) for holding in NEEDS.holdings}
KINDS = [(table, is_past) for table in SIDES for is_past in (False, True)]  # of parcels, by number
RUN = pa.schema([("hi", pa.int64()), ("lo", pa.int64()), *KNOWN])
FORMAT = sorted_runs.made_by(RUN, NEEDS.tables, *(holding.seed for holding in NEEDS.holdings))


class Work(NamedTuple):
    """What is to be done: plain values, which Spark brings to its executors.

    Attributes:
        lake: where the tables are.
        folder: where the sorted runs are.
        shares: what each task reads.
        lanes: how many there are.
        runs: by bucket.
        currency: the deployment's.
        view_version: of the rows.
        had_a_row: of customers whose row was frozen, whether they had one in gold before the part, as far as that was
            looked up.
        adds: whether what is learnt goes into the runs.
    """

    lake: str
    folder: str
    shares: Sequence[Sequence[Piece]]
    lanes: int
    runs: Mapping[int, Sequence[Run]]
    currency: str
    view_version: int
    had_a_row: Mapping[str, bool] = {}
    adds: bool = True


def pack(work: Work, numbers: Iterable[int]) -> Iterator[Parcel]:
    """Sum purchases up by customer, and pass profile changes on."""
    for piece in chain.from_iterable(work.shares[number] for number in numbers):
        groups: Iterable[pa.Table] = (rows for _, rows in pieces.read(work.lake, piece, SIDES[piece.table]))
        if piece.table is Table.PURCHASES:
            groups = map(summarised, _whole(groups))
        for rows in groups:
            lane_of = sorted_runs.buckets_by_crc(rows.column("customer_id")) * work.lanes // BUCKETS
            yield from executors.parcels(lane_of, rows, KINDS.index((piece.table, piece.is_past)))


def _whole(groups: Iterable[pa.Table]) -> list[pa.Table]:
    """Put a piece's row groups together; it may have none."""
    read = list(groups)
    return [pa.concat_tables(read)] if read else []


class _FrozenAndEnded(Exception):
    """Raised, with the customers, where it takes a look at gold's table to tell whether a frozen row has to end."""


def change(work: Work, packed: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Compute what differs for the customers of some buckets; report the file with it, the runs, who is beyond range.

    The report has `frozen` alone, customers, where gold's table has to be asked first whether they had a row.
    """
    found = {KINDS[kind]: rows for kind, rows in executors.unpacked(packed).items()}
    if not found:
        return
    ids = [chunk for rows in found.values() for chunk in rows.column("customer_id").chunks]
    customers = pc.unique(pa.chunked_array(ids, pa.string())).sort()
    high, low = sorted_runs.fingerprints(customers)
    of_bucket = sorted_runs.buckets_by_crc(customers)
    past, new = (_of(customers, found, is_past=is_past) for is_past in (True, False))
    before = since(_held(work, customers, high, low, of_bucket), past)
    after = since(before, new)
    changes = found.get((Table.PROFILE_CHANGES, False))
    try:
        written = _written(work, before, after, [] if changes is None else with_an_end(changes))
    except _FrozenAndEnded as error:
        yield {"frozen": list(error.args)}
        return
    runs = {}
    rows = after.add_column(0, "hi", pa.array(high)).add_column(1, "lo", pa.array(low))
    for bucket in np.unique(of_bucket).tolist() if work.adds else ():
        of_this = rows.take(pa.array(np.flatnonzero(of_bucket == bucket)))
        runs[bucket] = sorted_runs.added(work.folder, work.runs.get(bucket, ()), of_this)
    yield {**written, "runs": runs}


def _of(customers: pa.Array, found: Mapping[tuple[Table, bool], pa.Table], *, is_past: bool) -> pa.Table:
    """Return what parcels tell of customers, as KNOWN has it."""
    sums = totalled(filter(None, [found.get((Table.PURCHASES, is_past))]))
    changes = found.get((Table.PROFILE_CHANGES, is_past), arrow_schema(Table.PROFILE_CHANGES).empty_table())
    return known(customers, sums, profile_records.newest(changes))


def _held(work: Work, customers: pa.Array, high: Longs, low: Longs, of_bucket: Numbers) -> pa.Table:
    """Return what the runs have of customers."""
    found = [RUN.empty_table()]
    for bucket in np.unique(of_bucket).tolist():
        of_this = np.flatnonzero(of_bucket == bucket)
        runs = work.runs.get(bucket, ())
        found += [held for _, held in sorted_runs.look_up(work.folder, runs, high[of_this], low[of_this])]
    return known(customers, pa.concat_tables(found).select(KNOWN.names))


def _written(work: Work, before: pa.Table, after: pa.Table, ended: Sequence[str]) -> dict[str, Any]:
    def in_gold(frozen: Sequence[str]) -> Iterable[str]:
        """Tell who has a row in gold: nobody who has no profile, and had none since before the part."""
        had_a_profile = before.column("customer_id").filter(has_profile(before)).to_pylist()
        asked = set(had_a_profile).union(ended).intersection(frozen)
        if asked - work.had_a_row.keys():
            raise _FrozenAndEnded(*asked)
        return [customer for customer in asked if work.had_a_row[customer]]

    writer = FileWriter(work.lake, Table.ACTIVITY_CHANGES)
    changed = different(before, after, ended, in_gold)
    for rows in parts(changed.rows, work.currency, work.view_version):
        writer.write(rows)
    return {"file": writer.close(), "beyond": changed.beyond}
