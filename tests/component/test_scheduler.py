"""Scheduler goes round: every table gets its turn, and what waits gets a pause; what somebody asks for comes first."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import pytest

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.engine import queries
from customer_activity.engine.queries import RunningQuery
from customer_activity.engine.stream import Opened
from customer_activity.lake import delta, deltalog
from customer_activity.maintenance import maintenance, scheduler, tending
from customer_activity.maintenance.maintenance import Vacuumed
from customer_activity.maintenance.scheduler import Scheduler
from customer_activity.maintenance.tending import Tended
from customer_activity.settings import Settings
from customer_activity.supervision import requests
from customer_activity.supervision.requests import MAINTENANCE
from support.micro_batches import Sources
from support.streams import Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class At(NamedTuple):
    """An opened table."""

    table: Table
    number: int

    def version(self) -> int:
        return self.number


class Clock:
    """A clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(scheduler.time, "monotonic", lambda: self.now)  # type: ignore[attr-defined]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note what is done to which table, in the place of doing it; every table always has work."""
    noted: list[str] = []

    def note(what: str, result: object) -> Callable[..., object]:
        def do(_: str, table: Table, *__: object, **___: object) -> object:
            noted.append(f"{what} {table.label}")
            return result

        return do

    monkeypatch.setattr(deltalog, "is_newest", lambda *_: True)
    monkeypatch.setattr(maintenance, "opened", lambda _, table: At(table, 0))
    monkeypatch.setattr(maintenance, "checkpoint_log", lambda *_, **__: False)
    monkeypatch.setattr(maintenance, "needs_compaction", lambda *_: True)
    monkeypatch.setattr(maintenance, "compact", note("compact", 1))
    monkeypatch.setattr(maintenance, "vacuum", note("vacuum", Vacuumed(0, 0, [])))
    monkeypatch.setattr(tending, "tend", lambda _, table, **__: Tended(table.label, files_before=2, files_after=1))
    return noted


def all_queries(settings: Settings) -> list[RunningQuery]:
    return [
        RunningQuery(query, lambda: pytest.fail("nothing starts here"), settings, threading.Event()) for query in Query
    ]


def answered(settings: Settings, request: str) -> list[list[object]] | None:
    done = requests.answered(settings.run_dir, MAINTENANCE, request)
    return None if done is None else list(done["tables"])


def look(scheduler_: Scheduler, clock: Clock, seconds: float) -> None:
    """Look twice a second for so long."""
    until = clock.now + seconds
    while clock.now < until:
        clock.now += 0.5
        scheduler_.look()


def test_busy_tables_do_not_take_the_others_turns(settings: Settings, clock: Clock, done: list[str]) -> None:
    tables = len(topology.tables())
    keeping = Scheduler(settings, all_queries(settings))
    look(keeping, clock, 3 * (scheduler.LOOK_SECONDS + (tables - 1) * scheduler.PAUSE_SECONDS + 1))
    assert Counter(done) == {f"compact {table.label}": 3 for table in topology.tables()}


def test_a_log_that_is_long_is_shortened_bit_by_bit_and_others_have_their_turn(
    settings: Settings, clock: Clock, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = {Table.PURCHASES: 5}

    def shorten(_: str, table: Table, *__: object) -> int:
        done.append(f"shorten {table.label}")
        left[table] = left.get(table, 0) - 1
        return max(0, left[table])

    monkeypatch.setattr(maintenance, "checkpoint_log", lambda _, table, *__, **___: table is Table.PURCHASES)
    monkeypatch.setattr(maintenance, "needs_compaction", lambda *_: False)
    monkeypatch.setattr(maintenance, "shorten", shorten)
    monkeypatch.setattr(Scheduler, "id_of", lambda *_: "an id")
    keeping = Scheduler(settings, all_queries(settings))
    look(keeping, clock, scheduler.LOOK_SECONDS + 1)
    assert done == []
    look(keeping, clock, 5 * scheduler.PAUSE_SECONDS + 1)
    assert done == ["shorten silver.purchases"] * 5


def test_a_table_without_work_costs_no_pause(
    settings: Settings, clock: Clock, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "needs_compaction", lambda opened: opened.table is Table.ACTIVITY)
    look(Scheduler(settings, all_queries(settings)), clock, scheduler.LOOK_SECONDS)
    assert done == [f"compact {Table.ACTIVITY.label}"]


def test_a_table_that_nobody_has_written_to_is_not_opened_again(
    settings: Settings, clock: Clock, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(_: str, table: Table) -> At:
        done.append(table.label)
        return At(table, versions[table])

    versions: Counter[Table] = Counter()
    monkeypatch.setattr(deltalog, "is_newest", lambda _, table, version: versions[table] == version)
    monkeypatch.setattr(maintenance, "opened", opened)
    monkeypatch.setattr(maintenance, "needs_compaction", lambda _: False)
    keeping = Scheduler(settings, all_queries(settings))
    look(keeping, clock, 3 * scheduler.LOOK_SECONDS)
    assert Counter(done) == Counter(table.label for table in topology.tables())
    done.clear()
    versions[Table.ACTIVITY] += 1
    look(keeping, clock, 3 * scheduler.LOOK_SECONDS)
    assert done == [Table.ACTIVITY.label]


def test_a_writer_that_is_at_work_is_left_alone(
    settings: Settings, clock: Clock, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "HELD_SECONDS", 0.0)
    running = all_queries(settings)
    busy = next(query for query in running if query.query == Query.GOLD)
    with busy.at_work:
        look(
            Scheduler(settings, running),
            clock,
            scheduler.LOOK_SECONDS + len(topology.tables()) * scheduler.PAUSE_SECONDS,
        )
    assert f"compact {Table.ACTIVITY_CHANGES.label}" not in done
    assert f"compact {Table.ACTIVITY.label}" in done


def test_what_is_expired_goes_once_an_hour(settings: Settings, clock: Clock, done: list[str]) -> None:
    keeping = Scheduler(settings, all_queries(settings))
    look(keeping, clock, scheduler.VACUUM_SECONDS - 60)
    assert not [what for what in done if what.startswith("vacuum")]
    look(keeping, clock, 180)
    assert Counter(what for what in done if what.startswith("vacuum")) == {
        f"vacuum {table.label}": 1 for table in topology.tables()
    }


def test_files_of_a_batch_that_takes_long_are_not_taken_for_expired(
    settings: Settings, clock: Clock, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks of executors write them, and no commit names them before the last one is through."""

    def vacuumed() -> list[str]:
        return sorted(what.removeprefix("vacuum ") for what in done if what.startswith("vacuum"))

    def labels(query: Query) -> set[str]:
        return {table.label for table in topology.tables() if query in topology.writers(table)}

    monkeypatch.setattr(queries, "HELD_SECONDS", 0.0)
    monkeypatch.setattr(maintenance, "needs_compaction", lambda *_: False)
    running = all_queries(settings)
    long, short = (next(query for query in running if query.query == name) for name in (Query.GOLD, Query.ACTIVITY))
    keeping = Scheduler(settings, running)
    every = sorted(table.label for table in topology.tables())
    a_round = scheduler.LOOK_SECONDS + len(every) * scheduler.PAUSE_SECONDS
    clock.now = scheduler.VACUUM_SECONDS
    long.began, short.began, short.began_at = clock.now - scheduler.LONG_SECONDS, clock.now, time.time()
    with long.at_work, short.at_work:
        look(keeping, clock, a_round)
    assert vacuumed() == sorted({*every} - labels(Query.GOLD))
    look(keeping, clock, a_round)
    assert vacuumed() == every


@pytest.mark.parametrize(
    ("worked", "by_the_clock", "is_vacuumed"),
    [
        pytest.param(1.0, 1.0, True, id="it has just begun"),
        pytest.param(2.0, scheduler.LONG_SECONDS, False, id="the machine slept, or its clock was set on"),
        pytest.param(scheduler.LONG_SECONDS + 1, -60.0, False, id="its clock was set back"),
    ],
)
def test_a_batch_is_as_old_as_its_files_are_by_whichever_clock(
    settings: Settings,
    lake: str,
    clock: Clock,
    done: list[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    worked: float,
    by_the_clock: float,
    is_vacuumed: bool,
) -> None:
    def work(*_: object) -> None:
        now = time.time()
        clock.now += worked
        monkeypatch.setattr(queries.time, "time", lambda: now + by_the_clock)  # type: ignore[attr-defined]
        Scheduler(settings, running).vacuum(Table.ACTIVITY_CHANGES)

    running = all_queries(settings)
    gold = next(query for query in running if query.query == Query.GOLD)
    sources = Sources(lake, {Table.PURCHASES: delta.table_id(lake, Table.PURCHASES)})
    gold.open_stream = lambda: Opened(gold.spec, lambda: cast("DataFrame", sources), work, {Table.PURCHASES: None})
    gold.start(available_now=True)
    assert gold.ended()
    assert done == ([f"vacuum {Table.ACTIVITY_CHANGES.label}"] if is_vacuumed else [])


@pytest.mark.parametrize("fault", [None, OSError("no space left")], ids=["it is cut", "it cannot be cut"])
def test_the_log_is_kept_short_with_each_round_and_never_in_its_way(
    settings: Settings, clock: Clock, done: list[str], monkeypatch: pytest.MonkeyPatch, fault: OSError | None
) -> None:
    folders = []

    def cut(folder: Path) -> None:
        folders.append(folder)
        if fault is not None:
            raise fault

    monkeypatch.setattr(scheduler, "keep_log_short", cut)
    look(Scheduler(settings, all_queries(settings)), clock, 3 * scheduler.LOOK_SECONDS)
    assert {*folders} == {settings.run_dir}
    assert done


def test_what_is_asked_for_is_done_table_by_table(settings: Settings, clock: Clock, done: list[str]) -> None:
    keeping = Scheduler(settings, all_queries(settings))
    request = requests.ask(settings, MAINTENANCE, {}, 60)
    look(keeping, clock, 0.5 * (len(topology.tables()) - 1))
    assert answered(settings, request) is None
    look(keeping, clock, 0.5)
    tended = answered(settings, request) or []
    assert {table[0] for table in tended} == {table.label for table in topology.tables()}
    assert requests.pending(settings, MAINTENANCE) is None
    look(keeping, clock, 5.0)
    assert done == []  # it is done once


def test_a_busy_writer_is_waited_for(
    settings: Settings, clock: Clock, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "HELD_SECONDS", 0.0)
    running = all_queries(settings)
    keeping = Scheduler(settings, running)
    request = requests.ask(settings, MAINTENANCE, {}, 60)
    busy = next(query for query in running if query.query == Query.GOLD)
    with busy.at_work:
        look(keeping, clock, 30.0)
        assert answered(settings, request) is None
    look(keeping, clock, 0.5 * len(topology.tables()))
    assert len(answered(settings, request) or []) == len(topology.tables())


def test_a_driver_that_owns_no_table_says_so(settings: Settings, clock: Clock, done: list[str]) -> None:
    publisher = [query for query in all_queries(settings) if query.query == Query.PUBLISH]
    request = requests.ask(settings, MAINTENANCE, {}, 60)
    look(Scheduler(settings, publisher), clock, 0.5)
    assert answered(settings, request) == []


class TestOnExecutors:
    """Executors are at work on a table: what else is done to tables goes on, and leaves this one alone."""

    @pytest.fixture
    def keeping(self, settings: Settings, clock: Clock, done: list[str]) -> Scheduler:
        keeping = Scheduler(settings, all_queries(settings))
        keeping.rewriting.table = Table.PURCHASES
        return keeping

    def test_their_table_is_not_compacted_and_keeps_its_files_and_its_log(
        self, keeping: Scheduler, clock: Clock, done: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(maintenance, "shorten", lambda *_: pytest.fail("it was shortened"))
        look(keeping, clock, scheduler.VACUUM_SECONDS + 120)
        assert {what.split()[0] for what in done} == {"compact", "vacuum"}
        assert [what for what in done if what.endswith(Table.PURCHASES.label)] == []
        assert len({what.split()[1] for what in done}) == len(topology.tables()) - 1
        assert not keeping.shorten(Table.PURCHASES)

    def test_what_is_asked_for_waits_for_them_and_holds_up_nothing_else(
        self, keeping: Scheduler, settings: Settings, clock: Clock, done: list[str]
    ) -> None:
        request = requests.ask(settings, MAINTENANCE, {}, 3_600)
        look(keeping, clock, 0.5 * len(topology.tables()))
        assert answered(settings, request) is None
        assert len(keeping.tended) == len(topology.tables()) - 1
        look(keeping, clock, scheduler.LOOK_SECONDS + len(topology.tables()) * scheduler.PAUSE_SECONDS)
        assert Counter(done) == {
            f"compact {table.label}": 1 for table in topology.tables() if table is not Table.PURCHASES
        }
        keeping.rewriting.table = None
        look(keeping, clock, 0.5)
        assert len(answered(settings, request) or []) == len(topology.tables())

    @pytest.mark.parametrize("fault", [None, OSError("no answer")], ids=["a backlog", "a log that cannot be read"])
    def test_what_is_asked_for_does_not_begin_with_them(
        self,
        keeping: Scheduler,
        settings: Settings,
        clock: Clock,
        done: list[str],
        monkeypatch: pytest.MonkeyPatch,
        fault: OSError | None,
    ) -> None:
        always_due(keeping, done, monkeypatch, fault)
        request = requests.ask(settings, MAINTENANCE, {}, 3_600)
        look(keeping, clock, 0.5 * len(topology.tables()))
        assert len(answered(settings, request) or []) == len(topology.tables())
        assert done == []

    def test_a_table_that_they_are_never_through_with_is_compacted_before_each_time(
        self, keeping: Scheduler, clock: Clock, done: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        always_due(keeping, done, monkeypatch)
        look(keeping, clock, 2 * (scheduler.LOOK_SECONDS + len(topology.tables()) * scheduler.PAUSE_SECONDS))
        of_purchases = [what.split()[0] for what in done if what.endswith(Table.PURCHASES.label)]
        assert of_purchases == ["compact", "begin"] * 2

    def test_what_could_not_be_vacuumed_because_of_them_is_before_they_begin_again(
        self, keeping: Scheduler, clock: Clock, done: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        look(keeping, clock, scheduler.VACUUM_SECONDS + 120)
        assert [what for what in done if what.endswith(Table.PURCHASES.label)] == []
        always_due(keeping, done, monkeypatch)
        look(keeping, clock, 2 * (scheduler.LOOK_SECONDS + len(topology.tables()) * scheduler.PAUSE_SECONDS))
        of_purchases = [what.split()[0] for what in done if what.endswith(Table.PURCHASES.label)]
        assert of_purchases[:3] == ["compact", "vacuum", "begin"]
        assert of_purchases.count("vacuum") == 1
        vacuumed = Counter(what for what in done if what.startswith("vacuum"))
        assert vacuumed == {f"vacuum {table.label}": 1 for table in topology.tables()}


def always_due(
    keeping: Scheduler, done: list[str], monkeypatch: pytest.MonkeyPatch, fault: OSError | None = None
) -> None:
    """Let each table be due for executors whenever nothing is at work, as in a backlog; they take until the next look.

    With a fault nobody can tell.
    """

    def begin(table: Table, _: object) -> bool:
        if fault is not None:
            raise fault
        if keeping.rewriting.table is not None:
            return False
        done.append(f"begin {table.label}")
        keeping.rewriting.table = table
        return True

    def through() -> None:
        keeping.rewriting.table = None

    monkeypatch.setattr(keeping.rewriting, "begin", begin)
    monkeypatch.setattr(keeping.rewriting, "look", through)


def test_an_application_that_drains_leaves_requests_alone(settings: Settings, clock: Clock, done: list[str]) -> None:
    request = requests.ask(settings, MAINTENANCE, {}, 60)
    look(Scheduler(settings, all_queries(settings), serves=False), clock, 5.0)
    assert requests.pending(settings, MAINTENANCE) == (request, {})
