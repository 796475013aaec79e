"""Disturb a stream of good records: odd ones, exact repeats, conflicting repeats, bad records. Pure and seeded.

The same records with the same disturbance give the same stream. Nothing is reordered: good records keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from heapq import heappop, heappush
from itertools import cycle
from operator import itemgetter
from random import Random

import msgspec

from customer_activity import catalog
from customer_activity.demo.traffic import odd, poison, positions
from customer_activity.demo.traffic.record import (
    CONFLICT,
    DUPLICATE,
    PROFILE,
    PROFILE_CHANGE,
    PURCHASE,
    Purchase,
    Record,
    purchase,
)

REPEAT_WITHIN = 5_000  # records: a repeated purchase may fall into its own micro-batch or into a later one
CONFLICT_CENTS = 100  # how much dearer a conflicting repeat is

_decode_exactly = msgspec.json.Decoder(float_hook=Decimal).decode


@dataclass(frozen=True)
class Disturbance:
    """How much goes wrong. `bad_share` is of all records, the other shares are per good record."""

    duplicate_share: float = 0.0
    conflict_share: float = 0.0
    bad_share: float = 0.0
    currency: str = "EUR"
    seed: int = 0
    odd_share: float = 0.0
    has_payments: bool = False  # whether some of the bad records are payments


def disturbed(records: Iterable[Record], disturbance: Disturbance) -> Iterator[Record]:
    """Add duplicates, conflicts, odd and bad records, in this order: repeats are of good records only."""
    seed = disturbance.seed
    stream = iter(records)
    if disturbance.duplicate_share:
        stream = _echoed(stream, disturbance.duplicate_share, Random(f"{seed}/duplicates"), duplicate)
    if disturbance.conflict_share:
        stream = _echoed(stream, disturbance.conflict_share, Random(f"{seed}/conflicts"), conflict)
    if disturbance.odd_share:
        stream = positions.insert(stream, _odd(disturbance))
    if disturbance.bad_share:
        stream = positions.insert(stream, _bad(disturbance))
    return stream


def expected(records: int, disturbance: Disturbance) -> int:
    """Estimate the length of a disturbed stream, to within a few records."""
    repeated = records * (1 + disturbance.duplicate_share) * (1 + disturbance.conflict_share)
    return round(repeated * (1 + disturbance.odd_share) / (1 - disturbance.bad_share))


def duplicate(record: Record) -> Record | None:
    """Repeat a purchase or a profile update byte for byte; nothing else is repeated."""
    return record._replace(kind=DUPLICATE) if record.kind in {PURCHASE, PROFILE, PROFILE_CHANGE} else None


def conflict(record: Record) -> Record | None:
    """Repeat a purchase with another amount; nothing else can conflict."""
    if record.kind != PURCHASE or record.value is None:
        return None
    fields = _decode_exactly(record.value)
    original = Purchase(
        fields["purchaseId"],
        fields["customerId"],
        fields.get("productId"),
        int(fields["amount"] * 100),
        fields["currency"],
        fields["occurredAtEpochMillis"],
        fields.get("riskScore"),
    )
    return purchase(original._replace(amount_cents=original.amount_cents + CONFLICT_CENTS), CONFLICT)


def _echoed(
    records: Iterator[Record], share: float, random: Random, echo: Callable[[Record], Record | None]
) -> Iterator[Record]:
    """Follow a share of the records with an echo of each: a purchase's after a while, a profile's at once.

    A profile's repeat right behind it is what a producer's retry does. Later, behind a change or a tombstone, it would
    be another event: a stale update, or a profile that comes back.
    """
    waiting: list[tuple[int, int, Record]] = []  # a heap: position to echo at, position of the original, the echo
    marks = positions.marks(share, random)
    mark = next(marks)
    owed = 0  # a mark on a record that has no echo moves on to the next one that has
    for position, record in enumerate(records):
        yield record
        while position >= mark:
            owed += 1
            mark = next(marks)
        if owed and (repeated := echo(record)) is not None:
            owed -= 1
            if record.role == catalog.PURCHASES_ROLE:
                heappush(waiting, (position + random.randrange(REPEAT_WITHIN), position, repeated))
            else:
                yield repeated
        while waiting and waiting[0][0] <= position:
            yield heappop(waiting)[2]
    for _, _, repeated in sorted(waiting, key=itemgetter(0, 1)):
        yield repeated


def _odd(disturbance: Disturbance) -> Iterator[tuple[int, Record]]:
    """Yield odd records with their places, every kind in turn."""
    places = positions.marks(disturbance.odd_share, Random(f"{disturbance.seed}/odd"))
    for serial, (place, kind) in enumerate(zip(places, cycle(odd.KINDS), strict=False)):
        yield place, odd.record(kind, f"odd-{disturbance.seed}-{serial}", disturbance.currency)


def _bad(disturbance: Disturbance) -> Iterator[tuple[int, Record]]:
    """Yield bad records with their places, every kind as often as every other, ids that no good record has."""
    random = Random(f"{disturbance.seed}/bad")
    kinds = [*poison.KINDS, *(poison.OF_PAYMENTS if disturbance.has_payments else ())]
    random.shuffle(kinds)
    per_good_record = disturbance.bad_share / (1 - disturbance.bad_share)
    places = positions.marks(per_good_record, random)
    for serial, (place, kind) in enumerate(zip(places, cycle(kinds), strict=False)):
        yield place, poison.record(kind, f"bad-{disturbance.seed}-{serial}", disturbance.currency)
