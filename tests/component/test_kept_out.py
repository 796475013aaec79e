"""Whoever works on what is a driver's own keeps drivers out meanwhile, and is turned away by one that runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from customer_activity.catalog import Table, lease_id, lock_path, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import QueryAlreadyRunning
from customer_activity.lake import audit, corrections, layout
from customer_activity.lease import lease
from customer_activity.lease.epochs import LOCKED, ProcessLock
from customer_activity.lease.lease import Lease
from customer_activity.maintenance import on_demand
from customer_activity.operations import migration, recovery
from customer_activity.quarantine import replay
from customer_activity.quarantine.contents import Selection
from customer_activity.rebuild import repair
from customer_activity.settings import Settings
from support import tables
from support.streams import Query

# Locks of one process do not shut itself out, so the other side is a process of its own.
TAKE = "import fcntl, sys; file = open(sys.argv[1], 'rb+'); fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)"
HOLD = TAKE + "; print('held', flush=True); sys.stdin.read()"


def is_free(lake: str, query: Query) -> bool:
    """Whether another process could take a query."""
    take = [sys.executable, "-c", TAKE, lock_path(lake, query)]
    return subprocess.run(take, check=False, capture_output=True).returncode == 0


@contextmanager
def driver(lake: str, query: Query) -> Iterator[None]:
    """Hold a query as a driver does."""
    path = Path(lock_path(lake, query))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    held = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert held.stdout is not None
        assert held.stdout.readline() == "held\n"
        yield
    finally:
        held.communicate()


def test_it_holds_these_queries_and_gives_them_back(lake: str) -> None:
    with lease.kept_out(lake, [Query.BRONZE, Query.PUBLISH]):
        Path(lock_path(lake, Query.SILVER)).touch()
        assert [query for query in (Query.BRONZE, Query.SILVER, Query.PUBLISH) if is_free(lake, query)] == [
            Query.SILVER
        ]
    assert is_free(lake, Query.BRONZE)
    assert is_free(lake, Query.PUBLISH)


def test_a_driver_turns_it_away_at_once_and_keeps_its_epoch(lake: str) -> None:
    with (
        driver(lake, Query.SILVER),
        pytest.raises(QueryAlreadyRunning, match="silver runs"),
        lease.kept_out(lake, [Query.BRONZE, Query.SILVER]),
    ):
        pytest.fail("it came to the work")
    assert lease.newest_epoch(lake, Query.SILVER) is None


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda settings: replay.replay(settings, Selection(), "mended"), id="replay"),
        pytest.param(repair.apply, id="rebuild --apply"),
        pytest.param(lambda settings: recovery.recover(settings.lake, Query.BRONZE, "lost"), id="recover"),
        pytest.param(lambda settings: Lease(ProcessLock, settings.lake, [Query.BRONZE]), id="a driver"),
        pytest.param(on_demand.at_rest, id="maintain"),
    ],
)
def test_who_is_turned_away_is_told_that_it_may_be_a_command(
    settings: Settings, lake: str, monkeypatch: pytest.MonkeyPatch, work: Callable[[Settings], object]
) -> None:
    monkeypatch.setattr(lease, "WAIT_SECONDS", 0.0)
    Path(lock_path(lake, Query.BRONZE)).parent.mkdir(exist_ok=True)
    Path(lock_path(lake, Query.BRONZE)).with_name(f"{Query.BRONZE}.1").touch()
    with driver(lake, Query.BRONZE), pytest.raises(QueryAlreadyRunning) as refused:
        work(settings)
    assert "bronze" in refused.value.what
    assert "or a command is at work on its tables" in refused.value.what
    assert "wait for that command" in refused.value.remedy


def test_a_checkpoint_is_written_anew_while_no_driver_can_start(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def note(*_: Any, **__: Any) -> None:
        seen.append(is_free(lake, Query.SILVER))

    monkeypatch.setattr(audit, "append", note)
    recovery.recover(lake, Query.SILVER, "disk lost")
    assert seen == [False]
    assert is_free(lake, Query.SILVER)


@pytest.mark.parametrize("query", [Query.BRONZE, Query.SILVER, Query.GOLD, Query.PUBLISH])
def test_a_replay_waits_for_no_driver_and_a_rehearsal_disturbs_none(
    query: Query, settings: Settings, lake: str
) -> None:
    with driver(lake, query):
        with pytest.raises(QueryAlreadyRunning, match=f"{query} runs"):
            replay.replay(settings, Selection(), "mended")
        assert replay.replay(settings, Selection(), "mended", dry_run=True).accepted == {}


def test_a_correction_begins_beside_no_driver(settings: Settings, lake: str) -> None:
    with (
        driver(lake, Query.PUBLISH),
        pytest.raises(QueryAlreadyRunning, match="corrected while no stream runs") as refused,
    ):
        repair.apply(settings)
    assert "pause customer_activity_stream" in refused.value.remedy
    assert corrections.kept(lake) == []


@pytest.mark.parametrize("query", list(Query))
def test_a_migration_waits_for_no_driver(query: Query, lake: str) -> None:
    table = tables.opened(lake, Table.ACTIVITY)
    table.alter.set_table_properties({layout.PROPERTY: "1"}, raise_if_not_exists=False)
    with driver(lake, query), pytest.raises(QueryAlreadyRunning, match=query):
        migration.migrate(lake)
    assert table.version() == tables.newest(lake, Table.ACTIVITY)
    assert migration.migrate(lake).is_done


@pytest.mark.parametrize("locks", [None, 2], ids=["lost", "of an earlier time"])
def test_epochs_go_on_above_those_in_the_tables(lake: str, locks: int | None) -> None:
    commit = CommitProperties(app_transactions=[Transaction(lease_id(Query.SILVER), 9)])
    empty = arrow_schema(Table.QUARANTINE).empty_table()
    write_deltalake(table_path(lake, Table.QUARANTINE), empty, mode="append", commit_properties=commit)
    if locks is not None:
        folder = Path(lock_path(lake, Query.SILVER)).parent
        folder.mkdir()
        (folder / f"silver.{locks}").write_text(LOCKED)
    with lease.kept_out(lake, [Query.SILVER, Query.GOLD]) as held:
        assert (held.fencing_epoch(Query.SILVER), held.fencing_epoch(Query.GOLD)) == (10, 1)
    with lease.kept_out(lake, [Query.SILVER]) as held:
        assert held.fencing_epoch(Query.SILVER) == 11
