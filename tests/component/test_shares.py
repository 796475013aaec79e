"""Shares of the model's lives: they follow from their seeds, add up, and tell what went wrong."""

from __future__ import annotations

import logging
from itertools import islice

import pytest

from customer_activity.lake.failpoints import FailPoint
from support import shares
from support import visits as counted
from support.expected import Kind
from support.lives import Crash, Event, Place, Send
from support.streams import Query
from support.visits import ENOUGH, POSSIBLE, Triple, Visits, aimed, guided
from support.worlds import LARGE_BYTES

GOLD, SILVER = Place(Query.GOLD, FailPoint.STAGED).name, Place(Query.SILVER, FailPoint.WRITTEN).name
RARE = (
    Triple(GOLD, Event.INDEX_LOST, Kind.LARGE),
    Triple(GOLD, Event.COMPACTED, Kind.RETURN),
    Triple(SILVER, Event.DISK_FULL, Kind.REPEAT),
)


def test_lives_that_aim_come_to_their_triples_and_to_nothing_else() -> None:
    (share,) = shares.aimed_shares(RARE, number=0, shares=1)
    steps = [step for life in islice(aimed(share.seed, share.aims), share.lives) for step in life]
    crashes = [step for step in steps if isinstance(step, Crash)]
    came_to = {(crash.place.name, happening.event) for crash in crashes for happening in crash.then}
    assert came_to == {(place, event) for place, event, _ in RARE}
    assert all(any(len(sent.record.value or b"") > LARGE_BYTES for sent in crash.news) for crash in crashes)
    assert isinstance(steps[0], Send), "a profile returns only where something came before"


def test_a_seed_gives_the_same_lives_again() -> None:
    once, again, others = ([*islice(guided(seed), 3)] for seed in (1, 1, 2))
    assert once == again
    assert once != others


@pytest.mark.parametrize("lives", [1, 17, 100, 1_720])
def test_shares_add_up(lives: int) -> None:
    made = shares.made_up_shares(lives)
    assert sum(share.lives for share in made) == lives
    assert len({share.seed for share in made}) == len(made)


def test_what_goes_wrong_in_a_share_is_told_with_its_seed_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "disable", lambda: None)
    monkeypatch.setattr(shares, "guided", lambda _: iter([["no step"]]))
    _, seen, fault = shares._lived(shares.Share(7, 1, is_guided=True), ())
    assert "life 1 of the guided lives of seed 7" in fault
    assert not seen


def test_one_triple_is_aimed_at_for_each_pair_that_never_came_together() -> None:
    visits = Visits()
    visits.seen.update({triple: 1 for triple in POSSIBLE if triple.place != GOLD or triple.event is not Event.VACUUMED})
    assert visits.rare_pairs() == [(GOLD, Event.VACUUMED)]
    (wanted,) = visits.unseen_of_pairs()
    assert (wanted.place, wanted.event) == (GOLD, Event.VACUUMED)
    visits.seen[wanted] += 1
    assert (visits.rare_pairs(), visits.unseen_of_pairs()) == ([], [])
    assert len(visits.rare(ENOUGH)) == len(POSSIBLE)


def test_a_table_says_which_seeds_were_lived() -> None:
    visits = Visits()
    for number in (5, 1, 2, 3):
        visits.note("made-up lives", number, 100)
    visits.note("guided lives", 1, 28)
    visits.seconds = 90
    assert counted.table(visits).endswith(
        "\n428 lives in 2 minutes: 400 made-up lives (seeds 1 to 3, 5), 28 guided lives (seeds 1)."
    )
