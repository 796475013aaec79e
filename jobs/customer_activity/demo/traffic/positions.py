"""Seeded places in a stream: where something is inserted, without knowing the stream's length or holding it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, islice
from random import Random

from customer_activity.demo.traffic.record import Record


def marks(density: float, random: Random) -> Iterator[int]:
    """Endless ascending positions, `density` of them a record: one at a random place of each stretch of 1 / density.

    The number of marks before any position is therefore within one of density x position, whatever the seed.
    """
    if density <= 0:
        return
    for stretch in count():
        yield int((stretch + random.random()) / density)


def spread(number: int, length: int, random: Random) -> Iterator[int]:
    """Exactly `number` ascending positions among `length` records, one at a random place of each equal stretch."""
    return (int((stretch + random.random()) * length / number) for stretch in range(number))


def insert(records: Iterable[Record], insertions: Iterable[tuple[int, Record]]) -> Iterator[Record]:
    """Insert each record before the one at its position (ascending, counted without the insertions).

    Endless insertions end with the stream; those placed beyond its end are left out.
    """
    stream = iter(records)
    position = 0
    for place, inserted in insertions:
        if place > position:
            yield from islice(stream, place - position - 1)
            following = next(stream, None)  # the one before the place: missing when the stream has ended
            if following is None:
                return
            yield following
            position = place
        yield inserted
    yield from stream
