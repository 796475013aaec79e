"""Maintenance on demand: by the driver that runs, else here, and never by two."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from customer_activity import topology
from customer_activity.catalog import Table, checkpoint_path, table_path
from customer_activity.checkpoints import checkpoint
from customer_activity.checkpoints.offsets import OffsetRange
from customer_activity.errors import EXIT_CHECK_FAILED, LeaseLost, QueryAlreadyRunning, SettingsError, TransientError
from customer_activity.lease.epochs import Files, ProcessLock
from customer_activity.lease.lease import newest_epoch
from customer_activity.maintenance import maintenance, on_demand, tending
from customer_activity.maintenance.maintenance import RESTING_BYTES
from customer_activity.maintenance.tending import Tended
from customer_activity.settings import Settings
from customer_activity.storage.filesystem import LEAST_BYTES
from customer_activity.supervision import requests, running
from customer_activity.supervision.requests import MAINTENANCE, Request
from support import tables
from support.asked_driver import asked_driver
from support.command import call
from support.streams import Query

DONE = [Tended("silver.purchases", files_before=3, bytes_before=300, files_after=1, bytes_after=100)]


@pytest.fixture
def lake(lake: str) -> str:
    """Return a lake with three small files in silver.purchases."""
    for number in range(3):
        tables.append(lake, Table.PURCHASES, {"purchase_id": f"P-{number}"})
    return lake


@contextmanager
def driver(settings: Settings, monkeypatch: pytest.MonkeyPatch, *, answers: bool) -> Iterator[None]:
    """Stand in for a driver that runs, and does what it is asked for or ends instead."""
    alive = [4_711]
    monkeypatch.setattr(running, "stream_pids", lambda _: alive)
    monkeypatch.setattr(requests, "LOOK_SECONDS", 0.01)

    def does(request: Request) -> None:
        if answers:
            requests.answer(settings.run_dir, MAINTENANCE, request.id, {"tables": [list(table) for table in DONE]})
        else:
            alive.clear()

    with asked_driver(settings, MAINTENANCE, does):
        yield


def files(lake: str) -> int:
    return len(tables.opened(lake, Table.PURCHASES).file_uris())


def test_without_a_driver_it_is_done_here(settings: Settings, lake: str) -> None:
    done = on_demand.maintain(settings, 10)
    assert not done.by_driver
    assert [table.table for table in done.tables] == [table.label for table in topology.tables()]
    assert [table.error for table in done.tables if table.error] == []
    assert files(lake) == 1
    assert newest_epoch(lake, Query.BRONZE) == 1, "it had the lease"


def test_a_driver_that_runs_does_it(settings: Settings, lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with driver(settings, monkeypatch, answers=True):
        assert on_demand.maintain(settings, 30) == (True, DONE, [])
    assert files(lake) == 3, "nobody else wrote"


def test_where_the_driver_ends_first_it_is_done_here(
    settings: Settings, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with driver(settings, monkeypatch, answers=False):
        assert not on_demand.maintain(settings, 30).by_driver
    assert files(lake) == 1
    assert requests.pending(settings, MAINTENANCE) is None, "the next driver has nothing to do"


def test_a_driver_that_does_not_come_to_it_is_not_waited_for_for_ever(
    settings: Settings, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "stream_pids", lambda _: [4_711])
    with pytest.raises(TransientError, match="has not done it within 0 s"):
        on_demand.maintain(settings, 0)
    assert requests.pending(settings, MAINTENANCE) is None
    assert files(lake) == 3


def test_a_driver_elsewhere_is_left_alone(settings: Settings, lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def held(*_: object) -> None:
        raise QueryAlreadyRunning("silver already runs on lake")

    monkeypatch.setattr(on_demand, "Lease", held)
    with pytest.raises(QueryAlreadyRunning, match="ACTIVITY_RUN_DIR"):
        on_demand.maintain(settings, 0)
    assert files(lake) == 3


def test_a_process_that_slept_leaves_the_rest_to_whoever_has_taken_over(
    settings: Settings, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kill -STOP` and `kill -CONT`: a driver has taken the lease meanwhile."""
    done: list[Table] = []

    def tend(_lake: str, table: Table, **_: object) -> Tended:
        done.append(table)
        for query in topology.names():
            Files(lake, ProcessLock).create(query, 99, "")
        return Tended(table.label)

    monkeypatch.setattr(tending, "tend", tend)
    with pytest.raises(LeaseLost):
        on_demand.maintain(settings, 0)
    assert len(done) == 1


EXPIRED = "part-of-a-crashed-batch.parquet"


def no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "steps",
    [{"compact"}, {"checkpoint_log"}, {"shorten"}, {"compact", "checkpoint_log", "shorten"}],
    ids=lambda steps: ", ".join(sorted(steps)),
)
def test_what_needs_space_that_is_not_there_does_not_keep_expired_files(
    settings: Settings, lake: str, monkeypatch: pytest.MonkeyPatch, steps: set[str]
) -> None:
    unread = [table for table in topology.tables() if not topology.readers(table)]
    for table in unread:
        expired = Path(table_path(lake, table), EXPIRED)
        expired.write_bytes(b"PAR1")
        os.utime(expired, (0, 0))
    for step in steps:
        monkeypatch.setattr(maintenance, step, no_space)
    done = on_demand.at_rest(settings)
    assert [table.table for table in done] == [table.label for table in topology.tables()]
    assert {table.table for table in done if table.removed_files} == {table.label for table in unread}
    assert {table.error for table in done} == {"OSError: [Errno 28] No space left on device"}
    # The others have their turn all the same.
    assert (files(lake) == 1) == ("compact" not in steps)
    assert tables.entry(lake, Table.PURCHASES, 0).with_name("_last_checkpoint").exists() == (
        "checkpoint_log" not in steps
    )


def test_nothing_is_compacted_that_the_disk_has_no_room_for(
    settings: Settings, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tending.size(lake, Table.PURCHASES)[1]
    for free, left in ((LEAST_BYTES + small - 1, 3), (LEAST_BYTES + small, 1)):
        usage = shutil.disk_usage(lake)._replace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
        errors = {table.table: table.error for table in on_demand.at_rest(settings) if table.error}
        assert files(lake) == left
        assert set(errors) == ({"silver.purchases"} if left > 1 else set())
        assert all("not compacted" in error for error in errors.values())


def test_without_a_lake_it_says_so(settings: Settings) -> None:
    with pytest.raises(SettingsError, match="ACTIVITY_LAKE"):
        on_demand.maintain(settings, 0)


def test_only_tables_that_nothing_merges_into_get_large_files() -> None:
    small = {table for table in topology.tables() if RESTING_BYTES[table] < 2 << 20}
    assert small == {Table.SUMMARIES, Table.PROFILES, Table.ACTIVITY}


def test_checkpoints_that_were_replaced_long_ago_go(settings: Settings, lake: str) -> None:
    now = datetime.now(UTC)
    for query, days in ((Query.BRONZE, 31), (Query.SILVER, 29), (Query.GOLD, 31)):
        checkpoint.write(lake, query, "g-1", 1, OffsetRange([None], [None]), is_committed=True)
        checkpoint.set_aside(lake, query, now - timedelta(days=days))
    Path(checkpoint_path(lake, Query.GOLD)).mkdir()  # the one in use
    gone = on_demand.maintain(settings, 0).checkpoints
    assert [name.partition(".")[0] for name in gone] == ["bronze", "gold"]
    left = {path.name.partition(".")[0] for path in Path(lake, "_checkpoints").iterdir()}
    assert left == {"silver", "gold"}
    assert Path(checkpoint_path(lake, Query.GOLD)).exists()


def test_the_command_says_what_was_done(deployment: Settings, lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("maintain") == 0
    printed = capsys.readouterr().out
    assert "no driver runs: done here" in printed
    assert "gold has not begun to read silver.purchases" in printed


def test_the_command_tells_what_failed_from_what_is_kept(
    deployment: Settings, lake: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = Tended("silver.purchases", behind=("gold needs it",), error="OSError: no")
    monkeypatch.setattr(on_demand, "at_rest", lambda _: [done])
    assert call("maintain") == EXIT_CHECK_FAILED
    printed = capsys.readouterr().out
    assert "silver.purchases: nothing removed: gold needs it" in printed
    assert "silver.purchases: failed: OSError: no" in printed


def test_a_table_that_failed_is_a_failed_check(
    deployment: Settings, lake: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_demand, "at_rest", lambda _: [Tended("gold.customer_activity", error="OSError: no")])
    assert call("maintain", "--json") == EXIT_CHECK_FAILED
    assert json.loads(capsys.readouterr().out)["tables"][0]["error"] == "OSError: no"
