"""How often each fail point, event and kind of record came together; lives that bring them together; a table of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import product
from random import Random
from typing import NamedTuple

from support.expected import MEETS, Kind, meets
from support.lives import NUMBERS, ONCE, PLACES, WRITES, Crash, Event, Happening, Place, Send, Step, Take
from support.streams import Query
from support.worlds import Everything

ENOUGH = 3
AT_REST = 0.4  # how often something happens at rest, too
# What may happen between the same two drivers without hiding each other; "nothing else" is alone.
TOGETHER = (
    (Event.RESTARTED,),
    (Event.INDEX_LOST, Event.COMPACTED, Event.GATE_SHUT),
    (Event.INDEX_OLD, Event.VACUUMED, Event.OFF_FOR_LONG),
    (Event.MACHINE_CHANGED, Event.LOG_SHORTENED, Event.FOREIGN_COMMIT),
    (Event.LAYER_BACK, Event.DISK_FULL),
)
CRASHES_A_LIFE = 5
ROUND = -(-len(PLACES) * len(TOGETHER) // CRASHES_A_LIFE)  # lives in which each of them was everywhere once


class Triple(NamedTuple):
    """A fail point of a query, what happened before its batch was repeated, and a kind of record in that batch."""

    place: str
    event: Event
    kind: Kind


def impossible(place: Place, kind: Kind) -> str:
    """Return why a query's batch cannot die with a kind of record in it; empty where it can."""
    return "" if place.query in meets(kind) else MEETS[kind][1]


POSSIBLE = tuple(
    Triple(place.name, event, kind)
    for place, event, kind in product(PLACES, Event, Kind)
    if not impossible(place, kind)
)


class Visits:
    """How often each triple was visited."""

    def __init__(self) -> None:
        """Count from nothing."""
        self.seen: Counter[Triple] = Counter()
        self.seconds = 0.0
        self.lives: dict[str, dict[int, int]] = defaultdict(dict)

    def add(self, place: Place, event: Event, kinds: frozenset[Kind]) -> None:
        """A batch with these kinds of records died at a place, and this happened before it was repeated."""
        self.seen.update(Triple(place.name, event, kind) for kind in kinds)

    def note(self, what: str, seed: int, lives: int) -> None:
        """So many lives of a seed were lived."""
        self.lives[what][seed] = lives

    def rare(self, enough: int = ENOUGH) -> list[Triple]:
        """Return the triples that were visited less often."""
        return [triple for triple in POSSIBLE if self.seen[triple] < enough]

    def rare_pairs(self) -> list[tuple[str, str]]:
        """Return what of two never came together: fail point and event, fail point and kind, event and kind."""
        return sorted({pair for triple in POSSIBLE for pair in _pairs(triple)} - self._seen_pairs())

    def unseen_of_pairs(self) -> list[Triple]:
        """Return triples none of which has to be visited more often for any two to have come together."""
        seen, found = self._seen_pairs(), []
        for triple in POSSIBLE:
            if not seen.issuperset(_pairs(triple)):
                found.append(triple)
                seen |= _pairs(triple)
        return found

    def _seen_pairs(self) -> set[tuple[str, str]]:
        return {pair for triple in self.seen for pair in _pairs(triple)}

    def unexpected(self) -> list[Triple]:
        """Return visited triples that are listed as impossible."""
        return sorted(set(self.seen) - set(POSSIBLE))


def _pairs(triple: Triple) -> set[tuple[str, str]]:
    place, event, kind = triple
    return {(place, event), (place, kind), (event, kind)}


def crashes_of(triples: Collection[Triple]) -> list[tuple[Place, list[Event]]]:
    """Return the fail points of some triples, with those of their events that may happen together."""
    wanted = {(triple.place, triple.event) for triple in triples}
    found = (
        (place, [event for event in group if (place.name, event) in wanted])
        for place, group in product(PLACES, TOGETHER)
    )
    return [(place, events) for place, events in found if events]


def aimed(seed: int, triples: Collection[Triple]) -> Iterator[list[Step]]:
    """Yield lives that come to some triples alone, each of them some times, after a batch of everything."""
    random = Random(seed)
    everything = Everything(random, large_share=1 if any(triple.kind is Kind.LARGE for triple in triples) else 0)
    crashes = crashes_of(triples)
    while True:
        random.shuffle(crashes)
        for start in range(0, len(crashes), CRASHES_A_LIFE):
            everything.begin()
            steps: list[Step] = [Send(tuple(everything.records())), Take(Query.PUBLISH, with_all_before=True)]
            for place, events in crashes[start : start + CRASHES_A_LIFE]:
                then = tuple(Happening(event, random.randrange(NUMBERS)) for event in events)
                steps.append(Crash(place, tuple(everything.records()), then))
            yield steps


def guided(seed: int) -> Iterator[list[Step]]:
    """Yield lives that come to every fail point with every group of events and nearly every kind of record, and again.

    One round has each fail point with each group once, in another order and with other records each time. What hides
    among many records shows when one comes alone: now and then something happens at rest, and one record after it.
    """
    random = Random(seed)
    everything = Everything(random)
    while True:
        crashes = [*product(PLACES, TOGETHER)]
        random.shuffle(crashes)
        for start in range(0, len(crashes), CRASHES_A_LIFE):
            everything.begin()
            steps: list[Step] = []
            for place, events in crashes[start : start + CRASHES_A_LIFE]:
                times = random.randint(1, 1 if place.point in ONCE else WRITES.get(place.query, 1))
                then = tuple(Happening(event, random.randrange(NUMBERS)) for event in events)
                steps.append(Crash(place._replace(times=times), tuple(everything.records()), then))
                if random.random() < AT_REST:
                    at_rest = Happening(random.choice([*Event]), random.randrange(NUMBERS))
                    first, second = everything.alone()
                    to_gold = Take(Query.GOLD, with_all_before=True)
                    steps += [to_gold, Send((first,)), to_gold, at_rest, Send((second,)), to_gold]
            yield steps


def table(visits: Visits) -> str:
    """Return Markdown: a line an event, a column a query, in it the least and the median visits of its triples."""
    queries = list(dict.fromkeys(place.query for place in PLACES))
    lines = [
        "| what happened | " + " | ".join(str(query) for query in queries) + " |",
        "|---" * (len(queries) + 1) + "|",
    ]
    for event in Event:
        cells = []
        for query in queries:
            counts = sorted(
                visits.seen[triple]
                for triple in POSSIBLE
                if triple.event is event and triple.place.startswith(f"{query}:")
            )
            cells.append(f"{counts[0]} / {counts[len(counts) // 2]}")
        lines.append(f"| {event} | " + " | ".join(cells) + " |")
    by_kind: dict[Kind, int] = defaultdict(int)
    for triple, times in visits.seen.items():
        by_kind[triple.kind] += times
    lines += ["", "| kind of record | batches that died with it | not met by |", "|---|---|---|"]
    for kind in Kind:
        missing = [query for query in queries if query not in meets(kind)]
        why = f"{', '.join(missing)}: {MEETS[kind][1]}" if missing else ""
        lines.append(f"| {kind} | {by_kind[kind]} | {why} |")
    return "\n".join([*lines, "", lived(visits)])


def lived(visits: Visits) -> str:
    """Say which lives these were, and how long they took."""
    lives = sum(sum(of_seeds.values()) for of_seeds in visits.lives.values())
    which = (
        f"{sum(of_seeds.values()):,} {what} (seeds {_ranges(of_seeds)})" for what, of_seeds in visits.lives.items()
    )
    return f"{lives:,} lives in {visits.seconds / 60:.0f} minutes: {', '.join(which)}."


def _ranges(numbers: Iterable[int]) -> str:
    """Say which numbers, those in a row as their first and last."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
