"""A pipeline's life as data: what is sent, which hop takes it, where a driver dies, and what happens before the next.

A life is a list of steps. Whatever they are, each can be done at any time; so Hypothesis may leave out any of them, and
a life that found something can be kept as it is.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from hypothesis import strategies as st

from customer_activity.catalog import Table
from customer_activity.lake.failpoints import FailPoint
from support.streams import CURRENT, Query
from support.worlds import Sent, records


class Event(StrEnum):
    """What happens to a lake or a machine between two batches."""

    RESTARTED = "nothing else"
    INDEX_LOST = "local state lost"
    INDEX_OLD = "earlier local state restored"
    MACHINE_CHANGED = "another machine"
    LAYER_BACK = "a table restored"
    COMPACTED = "compaction"
    VACUUMED = "VACUUM"
    LOG_SHORTENED = "log shortened"
    FOREIGN_COMMIT = "foreign commit"
    GATE_SHUT = "gate shut and opened"
    OFF_FOR_LONG = "a stream off for long"
    DISK_FULL = "disk full"


class Place(NamedTuple):
    """Where a query's batch ends: when it comes to a fail point for the nth time."""

    query: Query
    point: FailPoint
    times: int = 1

    @property
    def name(self) -> str:
        """As drills call it."""
        return f"{self.query}:{self.point}"


class Happening(NamedTuple):
    """An event; which table or query it is about follows from the number."""

    event: Event
    number: int = 0


class Send(NamedTuple):
    """Records are sent."""

    records: tuple[Sent, ...]


class Take(NamedTuple):
    """A query takes what is there; those whose batches it reads have come as far first, or have not."""

    query: Query
    with_all_before: bool = False


class Crash(NamedTuple):
    """A query takes news and dies; something happens before the next driver repeats its batch."""

    place: Place
    news: tuple[Sent, ...] = ()
    then: tuple[Happening, ...] = ()


Step = Send | Take | Crash | Happening

PATH = (Table.PURCHASE_EVENTS, Table.PROFILE_EVENTS, Table.PURCHASES, Table.PROFILE_CHANGES, Table.ACTIVITY_CHANGES)
# Whose batches a query reads.
BEFORE: dict[Query, tuple[Query, ...]] = {
    Query.BRONZE: (),
    Query.SILVER: (Query.BRONZE,),
    Query.GOLD: (Query.BRONZE, Query.SILVER),
    Query.PUBLISH: (Query.BRONZE, Query.SILVER, Query.GOLD),
    Query.SUMMARIES: (Query.BRONZE, Query.SILVER),
    Query.PROFILES: (Query.BRONZE, Query.SILVER),
    Query.ACTIVITY: (Query.BRONZE, Query.SILVER, Query.GOLD),
}
NEXT = {query: tuple(other for other, before in BEFORE.items() if before[-1:] == (query,)) for query in Query}
WRITES = {Query.BRONZE: 3, Query.SILVER: 3}  # tables that a batch may write to; of the other queries one
POINTS = {
    query: (FailPoint.PLANNED, FailPoint.SENDING, FailPoint.PUBLISHED, FailPoint.WRITTEN)
    if query == Query.PUBLISH
    else (FailPoint.PLANNED, FailPoint.STAGED, FailPoint.COMMITTED, FailPoint.WRITTEN)
    for query in Query
}
PLACES = tuple(Place(query, point) for query in Query for point in POINTS[query])
ONCE = (FailPoint.PLANNED, FailPoint.WRITTEN, FailPoint.SENDING, FailPoint.PUBLISHED)
NUMBERS = 18  # of what an event may be about: a table and a way, a query, a machine
TABLES = (*PATH, Table.QUARANTINE, *CURRENT)


def places() -> st.SearchStrategy[Place]:
    """Every place at which a batch can end."""
    return st.sampled_from(PLACES).flatmap(
        lambda place: st.builds(
            Place,
            st.just(place.query),
            st.just(place.point),
            st.integers(1, 1 if place.point in ONCE else WRITES.get(place.query, 1)),
        )
    )


def happenings(events: tuple[Event, ...] = tuple(Event)) -> st.SearchStrategy[Happening]:
    """Events, about whatever they may be about."""
    return st.builds(Happening, st.sampled_from(events), st.integers(0, NUMBERS - 1))


def lives(
    sent: st.SearchStrategy[tuple[Sent, ...]] | None = None, events: tuple[Event, ...] = tuple(Event), steps: int = 12
) -> st.SearchStrategy[list[Step]]:
    """Lives of so many steps at most."""
    sent = records() if sent is None else sent
    step = st.one_of(
        st.builds(Take, st.sampled_from(Query), st.booleans()),
        st.builds(Send, sent),
        st.builds(Take, st.sampled_from((Query.GOLD, Query.PUBLISH)), st.just(value=True)),
        happenings(events),
        st.builds(Crash, places(), sent, st.lists(happenings(events), max_size=2).map(tuple)),
    )
    return st.lists(step, max_size=steps // 2) | st.lists(step, min_size=steps // 2, max_size=steps)
