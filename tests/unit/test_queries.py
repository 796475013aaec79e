"""Turns on the path to the view."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from customer_activity import queries
from customer_activity.catalog import Query
from customer_activity.queries import Rounds

PATH = [Query.BRONZE, Query.SILVER, Query.GOLD, Query.PUBLISH]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that never comes hangs here, instead of being given up after a second."""
    monkeypatch.setattr(queries, "IDLE_SECONDS", 60.0)


def finishing(rounds: Rounds, query: Query, through: int) -> threading.Thread:
    thread = threading.Thread(target=rounds.finish, args=(query, through), daemon=True)
    thread.start()
    return thread


def noted(rounds: Rounds, query: Query, through: int) -> Iterator[bool]:
    """Wait until a query's finished batch is noted."""
    with rounds.changed:
        yield rounds.changed.wait_for(lambda: rounds.through[query] == through, 10)


@pytest.mark.parametrize("query", PATH, ids=str)
def test_a_query_alone_waits_for_nobody(query: Query) -> None:
    rounds = Rounds([query, Query.ACTIVITY])
    rounds.finish(query, rounds.begin(query))


def test_bronze_cuts_its_next_batch_when_the_last_is_in_gold() -> None:
    rounds = Rounds(PATH)
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
    rounds = Rounds(PATH)
    silver = finishing(rounds, Query.SILVER, 0)
    assert all(noted(rounds, Query.SILVER, 0))
    assert silver.is_alive()
    finishing(rounds, Query.BRONZE, 1)
    silver.join(10)
    assert not silver.is_alive()
