"""The share of bad records over ten minutes, and over restarts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from customer_activity.errors import BadShareExceeded
from customer_activity.streams.bronze.bad_share import BadShareGuard

START = 1_000_000.0 * 60


def outcomes(good: int, bad: int = 0) -> dict[tuple[str, str | None], int]:
    found: dict[tuple[str, str | None], int] = {("purchases", None): good}
    return found | ({("purchases", "not_json"): bad} if bad else {})


class Lives:
    """A guard that is made again from what its last batch noted, as by a new driver."""

    def __init__(self, max_share: float = 0.05) -> None:
        self.max_share = max_share
        self.seconds = START
        self.noted: dict[str, Any] = {}
        self.number = 0
        self.restart()

    def restart(self) -> None:
        noted = json.loads(json.dumps(self.noted))
        self.guard = BadShareGuard(self.max_share, clock=lambda: self.seconds, noted=noted)

    def land(self, good: int, bad: int = 0, *, repeats: bool = False) -> None:
        number = self.number + (not repeats)
        noted = self.guard.judge(outcomes(good, bad), ("g", number))
        self.number, self.noted = number, {"generation": "g", "batch_id": number, **noted}


@pytest.mark.parametrize("restarts", [False, True], ids=["one driver", "a restart between"])
def test_batches_add_up(restarts: bool) -> None:
    lives = Lives()
    for _ in range(4):
        lives.land(19, 1)
        if restarts:
            lives.restart()
    with pytest.raises(BadShareExceeded, match=r"6 of 100 .*not_json 6"):
        lives.land(18, 2)


def ten_minutes_after_many(*, restarts: bool) -> Lives:
    """Return a guard behind a bad batch that landed beside many good records, which count no more."""
    lives = Lives()
    lives.land(10_000)
    lives.seconds += 599
    lives.land(100, 100)  # few of all
    lives.seconds += 100
    if restarts:
        lives.restart()
    return lives


@pytest.mark.parametrize("restarts", [False, True], ids=["one driver", "a restart between"])
def test_what_is_older_than_ten_minutes_counts_no_more(restarts: bool) -> None:
    lives = ten_minutes_after_many(restarts=restarts)
    with pytest.raises(BadShareExceeded, match="101 of 201"):
        lives.land(0, 1)


@pytest.mark.parametrize("restarts", [False, True], ids=["one driver", "a restart between"])
def test_a_batch_that_is_repeated_counts_once(restarts: bool) -> None:
    lives = Lives()
    lives.land(96, 4)
    for _ in range(5):
        if restarts:
            lives.restart()
        lives.land(96, 4, repeats=True)
    with pytest.raises(BadShareExceeded, match="6 of 102"):
        lives.land(0, 2)


def half_landed_later(max_share: float) -> Lives:
    """Return a guard that repeats a batch of 92 good and 8 bad records, when many before it count no more."""
    lives = Lives(max_share)
    lives.land(1_000)
    lives.seconds += 300
    lives.land(92, 8)
    lives.seconds += 900
    lives.max_share = 0.05
    lives.restart()
    lives.land(92, 8, repeats=True)
    return lives


def test_a_batch_that_was_let_pass_is_let_pass_whenever_it_is_repeated() -> None:
    """Its bad records may be in quarantine already. They are not of these ten minutes."""
    lives = half_landed_later(0.05)
    lives.land(99, 1)
    with pytest.raises(BadShareExceeded, match="6 of 105"):
        lives.land(0, 5)


def test_a_batch_that_landed_without_a_limit_is_repeated_with_one_and_does_not_count() -> None:
    lives = half_landed_later(1.0)
    lives.land(99, 1)
    with pytest.raises(BadShareExceeded, match="6 of 105"):
        lives.land(0, 5)


def test_a_batch_that_is_refused_does_not_count() -> None:
    lives = Lives()
    lives.land(95, 5)
    for _ in range(3):
        lives.number += 1
        with pytest.raises(BadShareExceeded, match="6 of 101"):
            lives.guard.judge(outcomes(0, 1), ("g", lives.number))


def test_what_the_release_before_noted_is_no_share() -> None:
    guard = BadShareGuard(0.05, noted={"generation": "g", "batch_id": 7, "counts": {"t": {"quarantined": 50}}})
    guard.judge(outcomes(99, 1), ("g", 8))


def test_what_is_noted_stays_small() -> None:
    lives = Lives(0.99)
    for _ in range(3_000):
        lives.seconds += 1
        lives.land(500, 20)
    assert len(json.dumps(lives.noted)) < 1_000


def test_good_records_land_after_a_bad_deploy_was_let_into_quarantine() -> None:
    lives = Lives(1.0)
    lives.land(1_000, 5_000)
    lives.max_share = 0.05
    lives.seconds += 120
    lives.restart()
    lives.land(300)
    lives.land(299, 1)
    with pytest.raises(BadShareExceeded, match="101 of 800"):
        lives.land(100, 100)


@pytest.mark.parametrize("restarts", [False, True], ids=["one driver", "a restart between"])
def test_a_batch_without_a_bad_record_lands_whatever_came_before(restarts: bool) -> None:
    lives = ten_minutes_after_many(restarts=restarts)
    lives.land(1)
    with pytest.raises(BadShareExceeded, match="101 of 202"):
        lives.land(0, 1)


def test_minutes_of_a_clock_that_ran_ahead_do_not_count() -> None:
    lives = Lives()
    lives.seconds += 5 * 3600
    lives.land(10_000)
    lives.seconds += 540
    lives.land(0, 400)
    lives.seconds += 120  # the good ones are older than ten minutes
    lives.land(10)
    lives.seconds = START
    lives.land(100, 1)


class Landed(NamedTuple):
    minute: int
    good: int
    bad: int


def counted_at(seconds: float, judged: Sequence[Landed]) -> list[Landed]:
    now = int(seconds // 60)
    return [each for each in judged if now - 10 <= each.minute <= now and (each.minute + 11) * 60 > seconds]


@given(st.data())
def test_a_batch_is_refused_for_what_was_let_pass_in_ten_minutes(data: st.DataObject) -> None:
    """Whatever clocks, restarts and limits do: batches with bad records, by all that a limit below 1 has judged."""
    lives, judged, last = Lives(), list[Landed](), None
    for _ in range(data.draw(st.integers(1, 12), "batches")):
        lives.seconds += data.draw(st.sampled_from([0, 1, 59, 60, 300, 601, -61, -4_000]), "seconds")
        if data.draw(st.booleans(), "restarts"):
            lives.max_share = data.draw(st.sampled_from([0.05, 0.05, 0.3, 1.0]), "limit")
            lives.restart()
            if last is not None and data.draw(st.booleans(), "repeats the last one that landed"):
                lives.land(last.good, last.bad, repeats=True)
                judged = [] if lives.max_share == 1 else judged
        now = int(lives.seconds // 60)
        landed = Landed(now, data.draw(st.sampled_from([0, 90, 1_000]), "good"), data.draw(st.integers(0, 60), "bad"))
        counted = counted_at(lives.seconds, judged)
        bad = sum(each.bad for each in counted) + landed.bad
        records = sum(each.good for each in counted) + landed.good + bad
        is_over = landed.bad > 0 and records >= 100 and bad > lives.max_share * records
        if lives.max_share < 1 and is_over:
            with pytest.raises(BadShareExceeded, match=f"{bad} of {records} "):
                lives.land(landed.good, landed.bad)
            continue
        lives.land(landed.good, landed.bad)
        last = landed
        # Where all is let pass nothing is judged, and what was before is left behind.
        judged = [] if lives.max_share == 1 else [*counted, landed]


def test_the_stream_that_stops_is_named() -> None:
    guard = BadShareGuard(0.05, stream="payment_events")
    with pytest.raises(BadShareExceeded, match="payment_events: 50 of 100 records"):
        guard.judge(outcomes(50, 50), ("g", 1))
