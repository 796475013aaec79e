"""Turns on the path to the view."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from customer_activity.engine import turns
from customer_activity.engine.turns import Turn, Turns
from support.streams import Query

PATH = [Query.BRONZE, Query.SILVER, Query.GOLD, Query.PUBLISH]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that never comes hangs here, instead of being given up after a second."""
    monkeypatch.setattr(turns, "IDLE_SECONDS", 60.0)
    monkeypatch.setattr(turns, "IDLE_BRONZE_SECONDS", 60.0)


def finishing(rounds: Turns, query: Query, through: int) -> threading.Thread:
    thread = threading.Thread(target=rounds.finish, args=(query, through), daemon=True)
    thread.start()
    return thread


def noted(rounds: Turns, query: Query, through: int) -> Iterator[bool]:
    """Wait until a query's finished batch is noted."""
    with rounds.changed:
        yield rounds.changed.wait_for(lambda: rounds.through[query] == through, 10)


@pytest.mark.parametrize("query", PATH, ids=str)
def test_a_query_alone_waits_for_nobody(query: Query) -> None:
    rounds = Turns([query, Query.ACTIVITY], threading.Event())
    rounds.finish(query, rounds.begin(query))


def test_bronze_cuts_its_next_batch_when_the_last_is_in_gold() -> None:
    rounds = Turns(PATH, threading.Event())
    assert rounds.begin(Query.BRONZE) == 1
    bronze = finishing(rounds, Query.BRONZE, 1)
    assert all(noted(rounds, Query.BRONZE, 1))

    assert rounds.begin(Query.SILVER) == 1
    finishing(rounds, Query.SILVER, 1)
    assert all(noted(rounds, Query.SILVER, 1))
    assert bronze.is_alive()

    assert rounds.begin(Query.GOLD) == 1
    finishing(rounds, Query.GOLD, 1)
    bronze.join(10)
    assert not bronze.is_alive()


def test_a_hop_begins_when_the_hop_above_has_something_new() -> None:
    rounds = Turns(PATH, threading.Event())
    silver = finishing(rounds, Query.SILVER, 0)
    assert all(noted(rounds, Query.SILVER, 0))
    assert silver.is_alive()
    finishing(rounds, Query.BRONZE, 1)
    silver.join(10)
    assert not silver.is_alive()


def test_a_hop_waits_for_whatever_is_at_work_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first batch may take long: a look in between could find one of its tables written and the other not."""
    monkeypatch.setattr(turns, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(turns, "IDLE_BRONZE_SECONDS", 0.0)
    rounds = Turns(PATH, threading.Event())
    rounds.begin(Query.BRONZE)
    gold = finishing(rounds, Query.GOLD, 0)
    assert all(noted(rounds, Query.GOLD, 0))
    gold.join(3 * turns.LOOK_SECONDS)
    assert gold.is_alive()

    finishing(rounds, Query.BRONZE, 1)
    gold.join(10)
    assert not gold.is_alive(), "nothing is at work any more"


def test_merges_leave_the_cores_to_a_large_batch_until_it_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(turns, "IDLE_BRONZE_SECONDS", 0.0)
    monkeypatch.setattr(turns, "LARGE_SECONDS", -1.0)  # every batch is a large one
    rounds = Turns(PATH, threading.Event())
    for query in PATH:
        rounds.begin(query)
    merge = threading.Thread(target=rounds.begin, args=(Query.SUMMARIES,), daemon=True)
    merge.start()
    for query in PATH:
        assert merge.is_alive(), f"began before {query}"
        rounds.finish(query, 1)
    merge.join(10)
    assert not merge.is_alive()


def test_merges_do_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LARGE_SECONDS", -1.0)
    monkeypatch.setattr(turns, "MERGES_WAIT_SECONDS", 0.0)
    rounds = Turns(PATH, threading.Event())
    rounds.begin(Query.BRONZE)
    assert rounds.begin(Query.SUMMARIES) == 0


def test_nobody_waits_when_the_application_stops() -> None:
    stopping = threading.Event()
    rounds = Turns(PATH, stopping)
    rounds.begin(Query.BRONZE)
    silver = finishing(rounds, Query.SILVER, 0)
    assert all(noted(rounds, Query.SILVER, 0))
    stopping.set()
    silver.join(10)
    assert not silver.is_alive()


def test_a_merge_that_waits_for_another_says_so_for_as_long_as_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TELL_SECONDS", 0.01)
    turn, told, has_said_so_twice = Turn(), [], threading.Event()

    def progress(words: str) -> None:
        told.append(words)
        if told.count("waits for another merge") == 2:
            has_said_so_twice.set()

    def second() -> None:
        with turn.taken(progress):
            pass

    with turn.taken(lambda _: None):
        waiting = threading.Thread(target=second, daemon=True)
        waiting.start()
        assert has_said_so_twice.wait(10)
        assert "begins" not in told
    waiting.join(10)
    assert told[-1] == "begins"


def test_a_hop_says_that_it_waits_for_as_long_as_the_hop_above_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its batch is noted as done when the wait is over: until then it has something to read and no batch."""
    monkeypatch.setattr(turns, "TELL_SECONDS", 0.01)
    monkeypatch.setattr(turns, "LOOK_SECONDS", 0.01)
    stopping, told, has_said_so_twice = threading.Event(), [], threading.Event()
    rounds = Turns(PATH, stopping)

    def progress(words: str) -> None:
        told.append(words)
        if len(told) == 2:
            has_said_so_twice.set()

    rounds.begin(Query.SILVER)
    through = rounds.begin(Query.GOLD)
    gold = threading.Thread(target=rounds.finish, args=(Query.GOLD, through, progress), daemon=True)
    gold.start()
    assert has_said_so_twice.wait(10)
    stopping.set()
    gold.join(10)
    assert set(told) == {"waits for the hot path"}
