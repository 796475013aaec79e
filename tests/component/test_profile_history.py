"""Profile records by customer: what local state tells is what bronze has, however it came to be there."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
ALL_TIME = np.array([-1, 1_000])  # first and last landing
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
                "address": None if number % 2 else TEXTS[-(number % len(TEXTS))],
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
    found = state.records_of(history, settings.lake, CUSTOMERS, ALL_TIME)
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
        assert state.records_of(history, enriching.lake, CUSTOMERS, ALL_TIME) is None
        until(lambda: not history.is_catching_up())
        assert told(enriching, history) == in_bronze(enriching)


def test_for_many_customers_bronze_is_asked(enriching: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    land(enriching, 1, 2, 3)
    with closing(opened(enriching)) as history:
        monkeypatch.setattr(state, "MOST_CUSTOMERS", 3)
        assert told(enriching, history) == in_bronze(enriching)
        monkeypatch.setattr(state, "MOST_CUSTOMERS", 2)
        assert state.records_of(history, enriching.lake, CUSTOMERS, ALL_TIME) is None


def test_where_none_is_kept_bronze_is_asked(enriching: Settings) -> None:
    land(enriching, 1, 2, 3)
    with closing(opened(enriching, local_state_gb=0)) as history:
        assert state.records_of(history, enriching.lake, CUSTOMERS, ALL_TIME) is None


def test_what_a_former_release_has_left_is_made_again(enriching: Settings) -> None:
    land(enriching, 1, 2, 3)
    with closing(opened(enriching)) as history:
        assert told(enriching, history) == in_bronze(enriching)
        connection = history.index.connection
        connection.executescript(
            "DROP TABLE history; CREATE TABLE history (customer_id TEXT PRIMARY KEY, records TEXT NOT NULL);"
            "PRAGMA user_version = 1"
        )
    with closing(opened(enriching)) as history:
        assert told(enriching, history) == in_bronze(enriching)


HOT, UPDATES = "C-1", 600  # of this customer's profile, some tombstones and late ones among them
LANDINGS = 40
CROWD = [f"C-{number}" for number in range(20)]


def hot(seed: int) -> list[list[dict[str, Any]]]:
    """Return the records of a hot customer, and some of another one, by landing."""
    chance, at = random.Random(seed), datetime(2026, 1, 1, tzinfo=UTC)

    def record(number: int) -> dict[str, Any]:
        is_tombstone = chance.random() < 0.03
        updated = at + timedelta(seconds=max(0, number // 4 - chance.randrange(20)))
        return {
            "customer_id": HOT if chance.random() < 0.95 else "C-2",
            "name": "Ada",
            "address": f"{chance.randrange(3)} Street",
            "updated_at": None if is_tombstone else updated,
            "is_tombstone": is_tombstone,
            "partition": number % 3,
            "offset": number,
            "kafka_timestamp": at,
        }

    size = UPDATES // LANDINGS
    return [
        [record(number) | {"landing": landing} for number in range(landing * size, (landing + 1) * size)]
        for landing in range(LANDINGS)
    ]


def known(records: pa.Table, first: int, last: int, of: pa.ChunkedArray = CUSTOMERS) -> list[Any]:
    """Return what was known of some customers at each of some landings."""
    landings = np.repeat(np.arange(first, last + 1), len(of))
    customers = pa.chunked_array([of.to_pylist() * (last + 1 - first)])
    found = profiles.known_at(landings, customers, profiles.changes_among(records))
    return [column.to_pylist() for column in found.values()]


def needed(settings: Settings, history: LocalState, first: int, last: int) -> pa.Table:
    found = state.records_of(history, settings.lake, CUSTOMERS, np.array([first, last]))
    assert found is not None
    return found


@pytest.mark.parametrize("at_once", [pytest.param(100_000, id="all at once"), pytest.param(37, id="in pieces")])
def test_of_a_hot_profile_little_is_kept_and_asked_for(
    enriching: Settings, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite refuses a text that is longer than its limit: none grows with the records of a customer, either."""
    monkeypatch.setattr(state, "MANY_RECORDS", 20)
    monkeypatch.setattr(state, "CONDENSED_RECORDS", at_once)
    with closing(opened(enriching)) as history:
        history.index.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 5_000)
        for landing, records in enumerate(hot(1)):
            append(enriching.lake, Table.PROFILE_EVENTS, *records, query="bronze")
            found, first = needed(enriching, history, max(0, landing - 2), landing), max(0, landing - 2)
            assert known(found, first, landing) == known(profiles.records_of(enriching.lake, CUSTOMERS), first, landing)
        for first, last in ((0, 39), (0, 3), (17, 17), (5, 30)):  # a repeated batch asks for earlier ones
            found = needed(enriching, history, first, last)
            assert known(found, first, last) == known(profiles.records_of(enriching.lake, CUSTOMERS), first, last)
        of_hot = needed(enriching, history, 39, 39).filter(pc.field("customer_id") == HOT)
        assert of_hot.num_rows <= 6  # of this landing, and of the one before
        (kept,) = history.index.connection.execute("SELECT count(*) FROM history").fetchone()
        assert kept < UPDATES // 3


def crowd(chance: random.Random, landing: int, sent: int) -> list[dict[str, Any]]:
    """Return a landing's records of many customers, most of which say nothing new: a producer resends them.

    Some landings have a hundred records of a customer, and often none of these is a change.
    """
    at, records = datetime(2026, 1, 1, tzinfo=UTC), list[dict[str, Any]]()
    for customer in CROWD:
        updated = chance.randrange(6)
        for _ in range(chance.choice([0, 1, 2, 2, 3, 100]) if chance.random() < 0.5 else 1):
            is_tombstone = chance.random() < 0.02
            if chance.random() < 0.1:
                updated = chance.randrange(6)
            told = {"updated_at": None if is_tombstone else at + timedelta(seconds=updated), "name": f"Name {updated}"}
            place = {"partition": 0, "offset": sent + len(records), "kafka_timestamp": at, "landing": landing}
            records.append({"customer_id": customer, "is_tombstone": is_tombstone, **told, **place})
    return records


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("at_once", [1, 2, 30, 1_000])
def test_wherever_condensing_stops_the_rest_is_judged_by_what_was_before(
    enriching: Settings, at_once: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a landing that is read in part, nothing may be left, as all that was read is stale or a duplicate."""
    monkeypatch.setattr(state, "MANY_RECORDS", 4)
    monkeypatch.setattr(state, "CONDENSED_RECORDS", at_once)
    chance, sent = random.Random(seed), list[dict[str, Any]]()
    wanted = pa.chunked_array([CROWD])
    with closing(opened(enriching)) as history:
        for landing in range(12):
            sent += (records := crowd(chance, landing, len(sent)))
            append(enriching.lake, Table.PROFILE_EVENTS, *records, query="bronze")
            for first in {landing, chance.randrange(landing + 1)}:
                found = state.records_of(history, enriching.lake, wanted, np.array([first, landing]))
                assert found is not None
                expected = known(profiles.records_of(enriching.lake, wanted), first, landing, wanted)
                assert known(found, first, landing, wanted) == expected


def test_one_that_is_made_again_goes_on_within_a_customer(enriching: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "ROWS_AT_A_TIME", 7)
    land(enriching, *range(30))

    def ended(text: str) -> None:
        if "keys of" in text:
            raise KeyboardInterrupt

    for _ in range(2):
        with closing(opened(enriching)) as history, pytest.raises(KeyboardInterrupt):
            history.bring({Table.PROFILE_EVENTS: 1}, ended)
    with closing(opened(enriching)) as history:
        assert len(told(enriching, history)) == 30


@pytest.mark.parametrize(
    ("limit", "most"),
    [pytest.param("MOST_RECORDS", 3, id="records"), pytest.param("MOST_BYTES", 300, id="bytes")],
)
def test_no_more_are_read_than_tell_that_they_are_many(
    enriching: Settings, limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(enriching, *range(90))
    monkeypatch.setattr(state, "ROWS_AT_A_TIME", 3)
    with closing(opened(enriching)) as history:
        assert len(told(enriching, history)) == 90
        monkeypatch.setattr(profiles, limit, most)
        read = list[tuple[Any, ...]]()
        each = history.each

        def noting(*given: Any) -> Generator[tuple[Any, ...]]:
            for row in each(*given):
                read.append(row)
                yield row

        monkeypatch.setattr(history, "each", noting)
        assert state.records_of(history, enriching.lake, CUSTOMERS, ALL_TIME) is None
        assert 0 < len(read) < 90
        assert profiles.few_records_of(enriching.lake, CUSTOMERS) is None
        monkeypatch.setattr(profiles, limit, 100_000)
        assert len(told(enriching, history)) == 90  # and another look-up is possible
        few = profiles.few_records_of(enriching.lake, CUSTOMERS)
        assert few is not None
        assert ordered(few) == in_bronze(enriching)


def test_a_look_up_reads_its_customers_alone(enriching: Settings) -> None:
    with closing(opened(enriching)) as history:
        plan = history.look_up("EXPLAIN QUERY PLAN " + state.LOOK_UP.format(first=1, last=2), [])
        assert not [step for *_, step in plan if "SCAN history" in step]
