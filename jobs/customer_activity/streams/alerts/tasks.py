"""What Spark's executors do of a large part of alerts: pure functions of files.

Two jobs. In the first, tasks tell when the purchases occur that decide about their share of the part, so that the
driver finds the files that may have them. In the second, `pack` brings purchases of the part, and those near them, to
the lane of their customer, and `judge` raises the alerts of a lane's purchases by the driver's own rules, and writes
them.

Executors import this module and need little for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.columns import UTC_MICROS
from customer_activity.engine import executors
from customer_activity.engine.executors import Parcel
from customer_activity.engine.merge_tasks import by_key
from customer_activity.lake import pieces
from customer_activity.lake.datafiles import FileWriter
from customer_activity.lake.pieces import Piece
from customer_activity.streams.alerts import rules
from customer_activity.streams.alerts.limits import Limits
from customer_activity.streams.alerts.rules import COLUMNS, SCHEMA
from customer_activity.streams.alerts.spans import Spans

BOUGHT, NEAR = range(2)  # kinds of parcels
MOST_SPANS = 32  # that a task reports: more of them would be bytes in the driver, and hardly fewer files


class Work(NamedTuple):
    """What is to be done: plain values, which Spark brings to its executors.

    Attributes:
        lake: where the tables are.
        limits: that alerts go by.
        shares: what each task reads: of the part, and of the table what may be near it (`Piece.is_past`).
        spans: when purchases occur that decide about the part's.
        lanes: how many tasks judge.
    """

    lake: str
    limits: Limits
    shares: Sequence[Sequence[Piece]]
    spans: Spans
    lanes: int


def look_back(
    lake: str, limits: Limits, shares: Sequence[Sequence[Piece]], numbers: Iterable[int]
) -> Iterator[dict[str, Any]]:
    """Report when the purchases occur that decide about those of some shares: begins and ends, some more included."""
    for number in numbers:
        found = Spans.of(np.empty(0, np.int64), np.empty(0, np.int64))
        for piece in shares[number]:
            for _, rows in pieces.read(lake, piece, COLUMNS):
                more = rules.decisive(limits, rows)
                found = Spans.of(np.r_[found.begins, more.begins], np.r_[found.ends, more.ends]).at_most(MOST_SPANS)
        yield {"begins": found.begins.tolist(), "ends": found.ends.tolist()}


def pack(work: Work, numbers: Iterable[int]) -> Iterator[Parcel]:
    """Pass on the purchases of the part, and those in the spans that decide about them."""
    for number in numbers:
        share = work.shares[number]
        read = (rows for piece in share for _, rows in pieces.read(work.lake, piece, COLUMNS))
        if share[0].is_past:
            read, kind = (_within(work.spans, rows) for rows in read), NEAR
        else:
            kind = BOUGHT
        yield from by_key(read, ["customer_id"], work.lanes, kind)


def _within(spans: Spans, purchases: pa.Table) -> pa.Table:
    times = np.asarray(purchases.column("occurred_at").cast(UTC_MICROS).cast(pa.int64()).to_numpy(), np.int64)
    return purchases.filter(pa.array(spans.meet(times, times)))


def judge(work: Work, packed: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Raise the alerts of a lane's purchases, and write them; report the file, and how many purchases there were."""
    found = executors.unpacked(packed)
    if BOUGHT not in found:
        return
    bought, near = found[BOUGHT], found.get(NEAR, SCHEMA.empty_table())
    # A compaction may have brought purchases of the part into files that are near it: each is there once.
    is_other = pc.invert(pc.is_in(near.column("purchase_id"), value_set=bought.column("purchase_id")))
    is_theirs = pc.is_in(near.column("customer_id"), value_set=pc.unique(bought.column("customer_id")))
    near = near.filter(pc.and_(is_other, is_theirs))
    writer = FileWriter(work.lake, Table.FRAUD_ALERTS)
    writer.write(rules.alerts_of(work.limits, bought, pa.concat_tables([bought, near])))
    yield {"file": writer.close(), "read": bought.num_rows}
