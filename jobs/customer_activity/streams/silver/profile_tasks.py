"""What Spark's executors do of a large part of silver's profiles: pure functions of files, as `tasks.py`.

A profile's record goes with all that it says to the task of its customer's bucket, which judges it by the driver's own
rule, beside the customer's last record in the bucket's sorted runs.

Executors import this module and need little for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import executors
from customer_activity.engine.executors import Parcel
from customer_activity.lake import pieces
from customer_activity.lake.datafiles import FileWriter
from customer_activity.state import profile_records, sorted_runs
from customer_activity.state.profile_records import HELD, Profile
from customer_activity.state.sorted_runs import BUCKETS
from customer_activity.streams.silver import profiles
from customer_activity.streams.silver.order import in_order
from customer_activity.streams.silver.tasks import Work

COLUMNS = arrow_schema(Table.PROFILE_CHANGES)
FORMAT = sorted_runs.made_by(HELD, profile_records.SEED)
NEW, PAST = range(2)  # kinds of parcels
NONE = {NEW: profiles.without_repeats(COLUMNS.empty_table()), PAST: COLUMNS.empty_table()}


def pack(work: Work, numbers: Iterable[int]) -> Iterator[Parcel]:
    """Pass records on, each to its customer's bucket."""
    for piece in chain.from_iterable(work.shares[number] for number in numbers):
        for _, read in pieces.read(work.lake, piece, COLUMNS.names):
            rows = read if piece.is_past else profiles.without_repeats(read)
            lane_of = sorted_runs.buckets_by_crc(rows.column("customer_id")) * work.lanes // BUCKETS
            yield from executors.parcels(lane_of, rows, PAST if piece.is_past else NEW)


def judge(work: Work, packed: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Judge the records of some buckets and write what changes; report verdicts, the file, and the buckets' runs."""
    given = executors.unpacked(packed)
    if not given:
        return
    updates, past = in_order(given.get(NEW, NONE[NEW])), profile_records.as_held(given.get(PAST, NONE[PAST]))
    customers = pc.unique(pa.chunked_array([*updates["customer_id"].chunks, *past["customer_id"].chunks], pa.string()))
    last = profile_records.newest(pa.concat_tables([*_held(work, customers), past]))
    current: Mapping[str, Profile] = {
        record.customer_id: record for record in profile_records.records(last) if not record.is_tombstone
    }
    verdicts, numbers = profiles.judge(profiles.each(updates), current)
    changes = updates.take(pa.array(numbers, pa.int64())).select(COLUMNS.names)
    judged = profiles.counted(verdicts, updates.column(profiles.REPEATS).to_pylist())
    writer = FileWriter(work.lake, Table.PROFILE_CHANGES)
    writer.write(changes)
    known = profile_records.newest(pa.concat_tables([last, profile_records.as_held(changes)]))
    runs = _runs(work, known) if work.adds else {}
    yield {"verdicts": judged, "file": writer.close(), "runs": runs}


def _held(work: Work, customers: pa.Array) -> Iterator[pa.Table]:
    """Yield what the runs have of customers: the last record of each."""
    high, low = sorted_runs.fingerprints(customers)
    of_bucket = sorted_runs.buckets_by_crc(customers)
    for bucket in np.unique(of_bucket).tolist():
        of_this = of_bucket == bucket
        for _, held in sorted_runs.look_up(work.folder, work.runs.get(bucket, ()), high[of_this], low[of_this]):
            yield held.select(HELD.names)


def _runs(work: Work, known: pa.Table) -> dict[int, list[sorted_runs.Run]]:
    """Add customers' last records to the runs of their buckets."""
    high, low = sorted_runs.fingerprints(known.column("customer_id"))
    rows = known.add_column(0, "hi", pa.array(high)).add_column(1, "lo", pa.array(low))
    of_bucket = sorted_runs.buckets_by_crc(known.column("customer_id"))
    return {
        bucket: sorted_runs.added(work.folder, work.runs.get(bucket, ()), rows.filter(pa.array(of_bucket == bucket)))
        for bucket in np.unique(of_bucket).tolist()
    }
