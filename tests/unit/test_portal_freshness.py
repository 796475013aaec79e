"""How fresh the portal's answers are: what is told of it after each thing that may happen, in any order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from customer_activity.portal.freshness import Freshness, State, Watch

STALE_SECONDS = 10.0


class Clocks:
    """A wall clock, which may be set, and a monotonic one."""

    def __init__(self) -> None:
        self.wall, self.tick = 1_000_000.0, 50.0

    def go(self, seconds: float) -> None:
        self.wall += seconds
        self.tick += seconds


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def watch(clocks: Clocks) -> Watch:
    """Return what watches a store that has offsets up to 10 and 20."""
    watch = Watch(STALE_SECONDS, lambda: clocks.wall, lambda: clocks.tick)
    watch.begin({0: 10, 1: 20}, 0)
    watch.restored()
    return watch


def hear(watch: Watch, *ends: int) -> None:
    watch.heard(watch.moment(), dict(enumerate(ends)), watch.positions)


def test_a_store_that_is_not_whole_is_restoring(clocks: Clocks) -> None:
    watch = Watch(STALE_SECONDS, lambda: clocks.wall, lambda: clocks.tick)
    watch.begin({0: 0}, 0)
    hear(watch, 0)
    watch.restoring(0.25)
    now = watch.now()
    assert (now.state, now.restored, now.is_served, now.is_stale) == (State.RESTORING, 0.25, False, True)


def test_nothing_is_current_before_the_broker_was_heard(watch: Watch, clocks: Clocks) -> None:
    watch.begin({0: 10}, clocks.wall)  # the file says that it was, a moment ago
    watch.restored()
    assert watch.now().state is State.SILENT


def test_a_store_that_has_all_is_current_and_complete_until_it_was_asked(watch: Watch, clocks: Clocks) -> None:
    hear(watch, 10, 20)
    asked = clocks.wall
    clocks.go(0.7)
    now = watch.now()
    assert (now.state, now.complete_until, now.lag_records) == (State.CURRENT, asked, 0)
    assert now.behind_seconds == pytest.approx(0.7)


def test_a_store_that_lacks_records_is_behind_after_the_limit(watch: Watch, clocks: Clocks) -> None:
    hear(watch, 10, 20)
    for _ in range(11):
        clocks.go(1)
        hear(watch, 10, 25)
    now = watch.now()
    assert (now.state, now.lag_records) == (State.BEHIND, 5)
    assert now.behind_seconds == pytest.approx(11)


def test_a_store_that_keeps_up_with_a_topic_that_grows_is_current(watch: Watch, clocks: Clocks) -> None:
    hear(watch, 10, 20)
    for second in range(60):  # what was committed in one second is in the store in the next: it never has all
        hear(watch, 11 + second, 20)
        clocks.go(1)
        watch.applied({0: 10 + second})
    now = watch.now()
    assert (now.state, now.lag_records) == (State.CURRENT, 1)
    assert now.behind_seconds == pytest.approx(2)


def test_a_broker_that_does_not_answer_is_silent(watch: Watch, clocks: Clocks) -> None:
    hear(watch, 10, 20)
    clocks.go(STALE_SECONDS + 1)
    watch.failed("asking", "no answer from Kafka")
    now = watch.now()
    assert (now.state, now.problem, now.heard_seconds_ago) == (State.SILENT, "no answer from Kafka", 11)


@pytest.mark.parametrize("step", [-3600.0, 3600.0], ids=["set back", "set forward"])
def test_a_clock_that_is_set_makes_nothing_fresh_and_nothing_stale(watch: Watch, clocks: Clocks, step: float) -> None:
    hear(watch, 10, 20)
    clocks.wall += step
    assert watch.now().state is State.CURRENT
    clocks.go(STALE_SECONDS + 1)
    assert watch.now().state is State.SILENT


def test_a_topic_that_ends_before_what_was_read_of_it_is_another(watch: Watch) -> None:
    hear(watch, 10, 20)
    assert not watch.heard(watch.moment(), {0: 10, 1: 5}, watch.positions)
    now = watch.now()
    assert (now.state, now.lag_records) == (State.BEHIND, None)
    watch.applied({0: 11})  # whatever is read meanwhile
    assert watch.now().state is State.BEHIND
    assert watch.heard(watch.moment(), {0: 11, 1: 20}, watch.positions)
    assert (watch.now().state, watch.now().lag_records) == (State.CURRENT, 0)


def test_what_was_read_while_the_broker_answered_is_not_beyond_the_end(watch: Watch) -> None:
    had, asked = watch.positions, watch.moment()
    watch.applied({0: 15})
    assert watch.heard(asked, {0: 12, 1: 20}, had)
    assert watch.now().state is State.CURRENT


@pytest.mark.parametrize(
    ("wall", "tick", "away"),
    [
        pytest.param(100, 100, 100, id="time goes by"),
        pytest.param(100, 1, 100, id="the machine sleeps"),
        pytest.param(-100, 7, 7, id="the clock is set back"),
    ],
)
def test_how_long_the_store_may_lack_something(
    watch: Watch, clocks: Clocks, wall: float, tick: float, away: float
) -> None:
    assert watch.away_seconds() == 0
    hear(watch, 10, 20)
    clocks.wall += wall
    clocks.tick += tick
    assert watch.away_seconds() == away


def test_a_problem_is_told_until_it_is_over(watch: Watch) -> None:
    watch.failed("reading", "refused")
    watch.failed("asking", "")
    assert watch.now().problem == "refused"
    watch.failed("reading", "")
    assert watch.now().problem == ""


STEPS = st.lists(st.tuples(st.sampled_from(["commit", "hear", "apply"]), st.integers(0, 3)), max_size=60)


@given(STEPS)
def test_what_was_committed_by_then_is_there(steps: list[tuple[str, int]]) -> None:
    clocks = Clocks()
    watch = Watch(STALE_SECONDS, lambda: clocks.wall, lambda: clocks.tick)
    watch.begin({0: 0}, 0)
    committed, applied = [(clocks.wall, 0)], 0
    for what, count in steps:
        clocks.go(1)
        end = committed[-1][1]
        if what == "commit":
            committed.append((clocks.wall, end + count))
        elif what == "hear":
            hear(watch, end)
        else:
            applied = min(end, applied + count)
            watch.applied({0: applied})
        now: Freshness = watch.now()
        if now.complete_until is not None:
            assert max(offset for at, offset in committed if at <= now.complete_until) <= applied
