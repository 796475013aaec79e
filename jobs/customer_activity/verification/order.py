"""Where bronze put each record: the landing in the tables' rows, compared with Kafka's own order.

Rows of one landing and one moment that follow each other in a partition are kept as one run: few, however many rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import REPLAY, Reason
from customer_activity.verification.comparison import BRONZE, PAYMENTS, Check, Differences
from customer_activity.verification.records import BEFORE_NUMBERS, NEWEST_RULES, NOWHERE, Place

# Rows of quarantine that are in bronze's events, too, or have no coordinates: not bronze wrote them.
NOT_BRONZE = (Reason.CONFLICTING_DUPLICATE, Reason.TOO_LARGE_TO_PUBLISH, Reason.TOTAL_OUT_OF_RANGE)
COLUMNS = ("topic", "partition", "offset", "landing", "landed_at")


class Notes(NamedTuple):
    """What commits say of the landings."""

    rules: Mapping[int, int]  # version of the contract's rules by landing
    replays: frozenset[int]  # landings that brought records back from quarantine

    @classmethod
    def of(cls, metadata: Iterable[Mapping[str, Any]], stream: str = BRONZE) -> Notes:
        """Read them from the `userMetadata` of commits: those of one of the streams that land records."""
        noted = [note for note in metadata if type(note.get("landing")) is int and _stream_of(note) == stream]
        return cls(
            {landing: int(note.get("rules", NEWEST_RULES)) for note in noted for landing in _landings(note)},
            frozenset(landing for note in noted if note.get("query") == REPLAY for landing in _landings(note)),
        )

    def place(self, landing: int | None, landed_at: int | None) -> Place:
        """Return the place of a row; a landing that no commit tells of any more was judged as the oldest known."""
        if landing is None:
            return BEFORE_NUMBERS
        rules = self.rules.get(landing)
        return Place(landing, landed_at, min(self.rules.values(), default=NEWEST_RULES) if rules is None else rules)


def _stream_of(note: Mapping[str, Any]) -> str:
    """Return whose landing a commit tells of: bronze's, where it does not say."""
    query = note.get("query")
    return PAYMENTS if query == PAYMENTS else str(note.get("replayed_to", BRONZE))


def _landings(note: Mapping[str, Any]) -> Iterable[int]:
    """Return the landings that a commit tells of: one, or those of a replay from the first to the last."""
    first, last = note.get("first_landing"), note["landing"]
    return range(first if type(first) is int else last, last + 1)


class Run(NamedTuple):
    """Rows of a partition from the first offset to the last that have one place."""

    first: int
    last: int
    place: Place


@dataclass
class Order:
    """The runs of a topic, by partition, in the order of their offsets."""

    runs: dict[int, list[Run]] = field(default_factory=dict)
    firsts: dict[int, list[int]] = field(default_factory=dict)

    def add(self, partition: int, run: Run) -> None:
        """Add the next run of a partition."""
        self.runs.setdefault(partition, []).append(run)
        self.firsts.setdefault(partition, []).append(run.first)

    def of(self, partition: int, offset: int) -> Run:
        """Return the run that has a record; one of its own at `NOWHERE` where it has not landed."""
        number = bisect_right(self.firsts.get(partition, ()), offset) - 1
        if number < 0 or offset > self.runs[partition][number].last:
            return Run(offset, offset, NOWHERE)
        return self.runs[partition][number]


def read(rows: pa.Table, topic: str, notes: Notes) -> Order:
    """Find a topic's runs in rows of COLUMNS, `landed_at` in milliseconds; a record that is there twice counts once.

    A row without coordinates is in no order; that it is there is found where rows are compared with the topic.
    """
    order = Order()
    rows = rows.filter(pc.equal(rows.column("topic"), topic))
    rows = rows.filter(pc.and_(pc.is_valid(rows.column("partition")), pc.is_valid(rows.column("offset"))))
    rows = rows.sort_by([("partition", "ascending"), ("offset", "ascending")])
    columns = [rows.column(name).to_numpy(zero_copy_only=False) for name in ("partition", "offset")]
    landings, moments = rows.column("landing"), rows.column("landed_at")
    moments = pc.if_else(pc.is_null(landings), pa.scalar(None, pa.int64()), moments)
    keys = [*columns, *(pc.fill_null(column, -1).to_numpy() for column in (landings, moments))]
    bounds = [0, *_changes(keys), rows.num_rows] if rows.num_rows else [0]
    last_of: dict[int, int] = {}
    for begin, end in pairwise(bounds):
        partition, first, landing, moment = (int(key[begin]) for key in keys)
        first = max(first, last_of.get(partition, -1) + 1)  # a row that is there twice
        last = int(columns[1][end - 1])
        if first > last:
            continue
        place = notes.place(None if landing < 0 else landing, None if moment < 0 else moment)
        order.add(partition, Run(first, last, place))
        last_of[partition] = last
    return order


def _changes(keys: list[Any]) -> list[int]:
    """Return the row numbers where partition, landing or moment are not those of the row before."""
    partitions, _, landings, moments = keys
    is_new = (partitions[1:] != partitions[:-1]) | (landings[1:] != landings[:-1]) | (moments[1:] != moments[:-1])
    return [int(number) + 1 for number in is_new.nonzero()[0]]


def compare(topic: str, order: Order, replays: frozenset[int]) -> Check:
    """Hold the landings against Kafka's order: in a partition a later offset landed with an earlier one or after it.

    A record that came back from quarantine landed when it did.
    """
    differences = Differences()
    runs = 0
    for partition, of_partition in sorted(order.runs.items()):
        newest, at = -1, -1
        for first, last, (landing, *_) in of_partition:
            runs += 1
            if landing in replays:
                continue
            number = -1 if landing is None else landing
            if number < newest:
                differences.add(
                    f"{topic}-{partition}@{first} landed", _named(landing), f"though @{at} landed", _named(newest)
                )
            newest, at = max((newest, at), (number, last))
    return differences.check(f"landing order of {topic}", runs, runs - differences.count)


def _named(landing: int | None) -> str:
    return "before landings had numbers" if landing is None or landing < 0 else f"in {landing}"
