"""The clock of event time: how far each Kafka partition has come, and up to when all is expected to be there.

Everything here follows from the purchases in the order of (landing, partition, offset), and from nothing else: neither
from how batches were cut, nor from the time of day. All moments are microseconds since 1970.

- `partition_time` of a purchase is the latest event time before it in its partition.
- A landing is whole in one batch; records of before landings were numbered need not be, so they decide nothing.
- The watermark after a landing is the least latest event time of all partitions that are not idle, floored to the
  minute so that it moves seldom; it never goes back. Partitions that never brought a purchase do not count.
- A partition is idle when the topic's clock, its latest Kafka timestamp, has moved on by more than a setting since the
  partition brought one last.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

BEFORE_NUMBERS = -1  # the landing of records that landed before landings were numbered
MINUTE = 60_000_000
ORDER = ("landing", "partition", "offset")
READ = (*ORDER, "occurred_at", "kafka_timestamp")  # what is read of a purchase

Numbers = npt.NDArray[np.int64]

# The stamps once more, as a query over all purchases and the watermarks that are stored: what `activity verify` holds
# the tables of windows against.
EXPECTED = """
WITH numbered AS (SELECT *, coalesce(landing, -1) AS place FROM purchases),
stamped AS (
    SELECT *, max(occurred_at) OVER (
        PARTITION BY "partition" ORDER BY place, "offset" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS partition_time
    FROM numbered
)
SELECT stamped.* EXCLUDE (place), before.watermark AS watermark, after.watermark AS next_watermark
FROM stamped
ASOF LEFT JOIN watermarks AS before ON stamped.place > before.landing
ASOF LEFT JOIN watermarks AS after ON stamped.place >= after.landing
"""


class Place(NamedTuple):
    """How far a partition has come: last offset, latest event time, and the topic's clock when it last brought one."""

    offset: int
    event_time: int
    heard_at: int


class Closing(NamedTuple):
    """A landing that moved the watermark, and what each partition was at: its number, place, and whether it is idle."""

    landing: int
    watermark: int
    positions: Sequence[tuple[int, Place, bool]]


@dataclass(frozen=True)
class Clock:
    """How far event time has come.

    Attributes:
        landing: the last one that is in it.
        watermark: None before the first purchase.
        topic_time: the latest Kafka timestamp.
        partitions: by number.
    """

    landing: int = BEFORE_NUMBERS - 1
    watermark: int | None = None
    topic_time: int = 0
    partitions: Mapping[int, Place] = field(default_factory=dict)

    def noted(self) -> dict[str, Any]:
        """Return it as a commit notes it."""
        places = {str(number): list(place) for number, place in self.partitions.items()}
        return {**vars(self), "partitions": places}

    @classmethod
    def of(cls, note: Mapping[str, Any] | None) -> Clock:
        """Return it as it was noted; a new one where none was."""
        if note is None:
            return cls()
        return cls(
            **{**note, "partitions": {int(number): Place(*place) for number, place in note["partitions"].items()}}
        )


class Stamped(NamedTuple):
    """What purchases get, in their order as given; and the clock after them.

    Attributes:
        columns: partition_time, watermark and next_watermark.
        closings: of the landings that moved the watermark.
        clock: after them all.
    """

    columns: Mapping[str, pa.Array]
    closings: Sequence[Closing]
    clock: Clock


def stamp(purchases: pa.Table, clock: Clock, idle: int | None, known: Mapping[int, int] | None = None) -> Stamped:
    """Stamp purchases that come after those of the clock.

    Args:
        purchases: the columns of READ; in any order, but all of a landing that are not in the clock.
        clock: before them.
        idle: microseconds after which a partition that brings nothing is idle; None: nothing is decided, only followed.
        known: watermarks by landing that were decided before, as far as the last of these: nothing is decided anew.
    """
    columns = {name: _numbers(purchases, name) for name in READ}
    order = np.lexsort([columns[name] for name in reversed(ORDER)])
    times = np.empty(len(order), np.int64)
    is_first = np.zeros(len(order), bool)
    partitions = columns["partition"][order]
    for number in np.unique(partitions):
        rows = order[partitions == number]
        latest = np.maximum.accumulate(columns["occurred_at"][rows])
        times[rows[1:]] = latest[:-1]
        if (place := clock.partitions.get(int(number))) is None:
            is_first[rows[0]] = True
            continue
        times[rows] = np.maximum(times[rows], place.event_time)
        times[rows[0]] = place.event_time
    decided = list(_decided(purchases, columns["landing"], clock, idle, known or {}))
    at = pa.array(np.searchsorted([after.landing for _, after in decided], columns["landing"]))
    return Stamped(
        {
            "partition_time": pa.array(times, pa.int64(), mask=is_first),
            "watermark": pa.array([before for before, _ in decided], pa.int64()).take(at),
            "next_watermark": pa.array([after.watermark for _, after in decided], pa.int64()).take(at),
        },
        [_closing(after, idle) for before, after in decided if after.watermark not in {before, None}],
        decided[-1][1] if decided else clock,
    )


def _decided(
    purchases: pa.Table, landings: Numbers, clock: Clock, idle: int | None, known: Mapping[int, int]
) -> Iterator[tuple[int | None, Clock]]:
    """Yield the watermark before each landing, and the clock after it."""
    stored = sorted(known)
    last_known = stored[-1] if stored else BEFORE_NUMBERS - 1
    ends = (
        purchases.set_column(purchases.column_names.index("landing"), "landing", pa.array(landings))
        .group_by(["landing", "partition"])
        .aggregate([("offset", "max"), ("occurred_at", "max"), ("kafka_timestamp", "max")])
        .sort_by([("landing", "ascending"), ("partition", "ascending")])
    )
    names = ("landing", "partition", "offset_max", "occurred_at_max", "kafka_timestamp_max")
    rows = list(zip(*(_numbers(ends, name).tolist() for name in names), strict=True))
    for landing, of_landing in _grouped(rows):
        # Landings may be stored of which a correction has left no row. They moved the watermark all the same.
        if (earlier := bisect_left(stored, landing)) and stored[earlier - 1] > clock.landing:
            clock = replace(clock, watermark=known[stored[earlier - 1]])
        before = clock.watermark
        topic_time = max(clock.topic_time, *(row[-1] for row in of_landing))
        partitions = dict(clock.partitions)
        for _, number, offset, event_time, sent_at in of_landing:
            heard_at = sent_at if landing == BEFORE_NUMBERS else topic_time
            held = partitions.get(number, Place(offset, event_time, heard_at))
            partitions[number] = Place(*map(max, Place(offset, event_time, heard_at), held))
        clock = Clock(landing, clock.watermark, topic_time, partitions)
        if landing in known:
            clock = replace(clock, watermark=known[landing])
        elif landing > max(last_known, BEFORE_NUMBERS) and idle is not None:
            least = min(place.event_time for place in partitions.values() if topic_time - place.heard_at <= idle)
            floored = least // MINUTE * MINUTE
            clock = replace(clock, watermark=floored if clock.watermark is None else max(floored, clock.watermark))
        yield before, clock


def _grouped(rows: Iterable[tuple[int, ...]]) -> Iterator[tuple[int, list[tuple[int, ...]]]]:
    found: list[tuple[int, ...]] = []
    for row in rows:
        if found and found[0][0] != row[0]:
            yield found[0][0], found
            found = []
        found.append(row)
    if found:
        yield found[0][0], found


def _closing(clock: Clock, idle: int | None) -> Closing:
    positions = [
        (number, place, idle is not None and clock.topic_time - place.heard_at > idle)
        for number, place in sorted(clock.partitions.items())
    ]
    return Closing(clock.landing, clock.watermark or 0, positions)


def _numbers(rows: pa.Table, name: str) -> Numbers:
    values = pc.fill_null(rows.column(name).cast(pa.int64()), BEFORE_NUMBERS)
    return np.asarray(values.to_numpy(), np.int64)
