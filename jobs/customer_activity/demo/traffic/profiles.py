"""Profiles among purchases: when a customer's profile arrives, changes its address, or is deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import merge
from itertools import chain, repeat
from random import Random

from customer_activity import catalog
from customer_activity.demo.traffic import people, positions
from customer_activity.demo.traffic.people import Person
from customer_activity.demo.traffic.record import PROFILE, PROFILE_CHANGE, TOMBSTONE, Record

FIRST_ONE_IN = 3  # one profile in three is there before any purchase, when profiles are interleaved


class Arrival(StrEnum):
    """When profiles arrive: all before the first purchase, or a third before it and the others among the purchases."""

    FIRST = "first"
    INTERLEAVED = "interleaved"


@dataclass(frozen=True)
class ProfileTraffic:
    """What happens to profiles: how they arrive, how many addresses change, how many profiles are deleted."""

    arrival: Arrival = Arrival.INTERLEAVED
    changes: int = 0
    tombstones: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Population:
    """The customers that have a profile, by index in their order of arrival, and when all of them registered."""

    size: int
    person_of: Callable[[int], Person]
    registered_at_ms: int


def among(
    purchases: Iterator[Record], moments: Sequence[int], population: Population, plan: ProfileTraffic
) -> Iterator[Record]:
    """Insert the profiles of a population, their changes and tombstones, among purchases in time order.

    `moments` holds each purchase's time in milliseconds, ascending. A change carries the time of the purchase that it
    comes before, so a customer's updates never run backwards; it concerns a profile that has arrived, and after a
    tombstone it brings the profile back. Holds no more than one event at a time.
    """
    return positions.insert(purchases, _events(moments, population, plan))


def _events(moments: Sequence[int], population: Population, plan: ProfileTraffic) -> Iterator[tuple[int, Record]]:
    """Yield profile records with the position of the purchase that each comes before."""
    length = len(moments)
    if not population.size:
        return
    pick = Random(f"{plan.seed}/profiles/pick")
    places = {
        PROFILE: _arrivals(length, population.size, plan),
        PROFILE_CHANGE: positions.spread(plan.changes, length, Random(f"{plan.seed}/profiles/change")),
        TOMBSTONE: positions.spread(plan.tombstones, length, Random(f"{plan.seed}/profiles/tombstone")),
    }
    order = (PROFILE, PROFILE_CHANGE, TOMBSTONE)  # of events at one place: a profile arrives before it changes
    arrived = changes = 0
    for place, rank in merge(*(zip(places[kind], repeat(rank)) for rank, kind in enumerate(order))):
        kind = order[rank]
        if kind == PROFILE:
            yield place, people.profile(population.person_of(arrived), population.registered_at_ms)
            arrived += 1
            continue
        who = population.person_of(pick.randrange(arrived))
        if kind == TOMBSTONE:
            yield place, Record(catalog.PROFILES_ROLE, who.customer_id.encode(), None, kind=TOMBSTONE)
            continue
        changes += 1
        changed_at_ms = moments[min(place, length - 1)] if length else population.registered_at_ms + changes
        moved = who._replace(address=people.address(who.customer_id, changes))
        yield place, people.profile(moved, changed_at_ms, PROFILE_CHANGE)


def _arrivals(length: int, size: int, plan: ProfileTraffic) -> Iterator[int]:
    """Yield the position at which each profile arrives."""
    if plan.arrival is Arrival.FIRST:
        return repeat(0, size)
    first = -(-size // FIRST_ONE_IN)
    later = positions.spread(size - first, length, Random(f"{plan.seed}/profiles/arrival"))
    return chain(repeat(0, first), later)
