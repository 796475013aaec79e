"""Profile records by customer: what local state tells is what bronze has, however it came to be there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.lake import delta
from customer_activity.settings import Settings
from customer_activity.state import local, restore
from customer_activity.state.local import LocalState
from customer_activity.streams.enrichment import profiles, state
from support.tables import append
from support.waiting import until

CUSTOMERS = pa.chunked_array([["C-1", "C-2", "C-1", "C-9"]])
TEXTS = ["plain", 'quotes " and \\', "nothing \x00 at all", "emoji \U0001f6d2 and é", "]", ""]


@pytest.fixture
def enriching(settings: Settings) -> Iterator[Settings]:
    """Return settings of a lake with enrichment on."""
    topology.switch_on(["enrichment"])
    delta.ensure_tables(settings.lake)
    yield settings
    topology.switch_on([])


def opened(settings: Settings, **update: Any) -> LocalState:
    ids = {table: delta.table_id(settings.lake, table) for table in topology.tables()}
    return LocalState(settings.model_copy(update=update), "enrichment", ids, state.NEEDS)


def land(settings: Settings, *landings: int | None, customer: str = "C-1") -> None:
    """Append a commit with a record for each landing, the last one a tombstone."""
    at = datetime(2026, 1, 1, 12, 30, 0, 123456, UTC)
    append(
        settings.lake,
        Table.PROFILE_EVENTS,
        *(
            {
                "customer_id": customer,
                "name": TEXTS[number % len(TEXTS)],
                "address": None if number % 2 else TEXTS[-number],
                "updated_at": None if number == len(landings) - 1 else at,
                "is_tombstone": number == len(landings) - 1,
                "partition": number % 3,
                "offset": 2**40 + number,
                "kafka_timestamp": at,
                "landing": landing,
            }
            for number, landing in enumerate(landings)
        ),
        query="bronze",
    )


def in_bronze(settings: Settings) -> list[dict[str, Any]]:
    return ordered(profiles.records_of(settings.lake, CUSTOMERS))


def told(settings: Settings, history: LocalState) -> list[dict[str, Any]]:
    found = state.records_of(history, settings.lake, CUSTOMERS)
    assert found is not None
    return ordered(found)


def ordered(records: pa.Table) -> list[dict[str, Any]]:
    return sorted(records.select(profiles.COLUMNS).to_pylist(), key=lambda record: repr(list(record.values())))


def test_it_follows_bronze(enriching: Settings) -> None:
    with closing(opened(enriching)) as history:
        assert told(enriching, history) == []
        land(enriching, None, 0, 1, 1, 2, 2, 3)
        assert len(told(enriching, history)) == 7
        assert told(enriching, history) == in_bronze(enriching)
        land(enriching, 4, 5)
        land(enriching, 4, customer="C-2")
        land(enriching, 6, customer="C-3")  # nobody asks for this one
        assert told(enriching, history) == in_bronze(enriching)
        assert len(told(enriching, history)) == 10


def test_what_is_lost_is_made_again(enriching: Settings) -> None:
    land(enriching, None, 0, 1, 1, 2, 2, 3)
    land(enriching, 4, 5, customer="C-2")
    for _ in range(2):
        with closing(opened(enriching)) as history:
            assert told(enriching, history) == in_bronze(enriching)
        shutil.rmtree(enriching.index_dir)


def test_one_that_is_ended_while_it_is_made_goes_on(enriching: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "ROWS_AT_A_TIME", 1)
    for customer in ("C-1", "C-2"):
        land(enriching, 1, 2, 3, customer=customer)

    def ended(text: str) -> None:
        if "1 keys" in text:
            raise KeyboardInterrupt

    with closing(opened(enriching)) as history, pytest.raises(KeyboardInterrupt):
        history.bring({Table.PROFILE_EVENTS: 2}, ended)
    with closing(opened(enriching)) as history:
        assert told(enriching, history) == in_bronze(enriching)


def test_while_it_is_far_behind_bronze_is_asked(enriching: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "NEAR_ROWS", 2)
    land(enriching, 1, 2, 3)
    with closing(opened(enriching)) as history:
        assert state.records_of(history, enriching.lake, CUSTOMERS) is None
        until(lambda: not history.is_catching_up())
        assert told(enriching, history) == in_bronze(enriching)


def test_for_many_customers_bronze_is_asked(enriching: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    land(enriching, 1, 2, 3)
    with closing(opened(enriching)) as history:
        monkeypatch.setattr(state, "MOST_CUSTOMERS", 3)
        assert told(enriching, history) == in_bronze(enriching)
        monkeypatch.setattr(state, "MOST_CUSTOMERS", 2)
        assert state.records_of(history, enriching.lake, CUSTOMERS) is None


def test_where_none_is_kept_bronze_is_asked(enriching: Settings) -> None:
    land(enriching, 1, 2, 3)
    with closing(opened(enriching, local_state_gb=0)) as history:
        assert state.records_of(history, enriching.lake, CUSTOMERS) is None
