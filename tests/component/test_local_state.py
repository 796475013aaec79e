"""Local state that is brought on behind its stream, that has grown too large, or that is not kept at all."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.errors import IndexDamaged
from customer_activity.lake import delta, holds
from customer_activity.maintenance import maintenance
from customer_activity.settings import Settings
from customer_activity.state import catching_up, files, local, restore
from customer_activity.state.keyed import NEWEST, Needs
from customer_activity.state.local import LocalState
from customer_activity.storage import s3
from customer_activity.storage.filesystem import write_whole
from customer_activity.streams.enrichment import state as enriching
from customer_activity.streams.silver import state as past
from support.tables import append, entry
from support.tables import opened as opened_table
from support.waiting import until

TO = {Table.PURCHASES: NEWEST}
IDS = [f"P-{number}" for number in range(9)]
CLUSTER = {"spark_master": "spark://master:7077"}
S3 = {"lake": "s3a://lake/prefix"}


def opened(settings: Settings, **update: Any) -> LocalState:
    ids = {table: delta.table_id(settings.lake, table) for table in topology.tables()}
    return LocalState(settings.model_copy(update=update), "silver", ids, past.NEEDS)


def counted(state: LocalState) -> list[str]:
    return sorted(past.counted(state, IDS))


def caught_up(state: LocalState) -> None:
    state.catch_up(TO)
    until(lambda: not state.is_catching_up())


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return a lake whose silver.purchases has three commits with a purchase each."""
    settings = Settings(lake=str(tmp_path / "lake"))
    delta.ensure_tables(settings.lake)
    for number in range(3):
        append(settings.lake, Table.PURCHASES, {"purchase_id": f"P-{number}", "partition": 0, "offset": number})
    return settings


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Have no state be near, and let none be brought on until the event is set."""
    monkeypatch.setattr(local, "NEAR_ROWS", 0)
    going_on, file = threading.Event(), threading.Lock()
    bring = restore.bring
    at_once: list[object] = []

    def wait(*given: Any) -> None:
        if not file.acquire(blocking=False):
            at_once.append(given)
            return
        try:
            going_on.wait(60)
            bring(*given)
        finally:
            file.release()

    monkeypatch.setattr(restore, "bring", wait)
    yield going_on
    going_on.set()
    assert not at_once  # nobody else has the file meanwhile


def test_a_stream_does_without_it_until_it_has_caught_up(settings: Settings, slow: threading.Event) -> None:
    with closing(opened(settings)) as state:
        assert not state.is_near(TO)
        state.catch_up(TO)
        append(settings.lake, Table.PURCHASES, {"purchase_id": "P-3", "partition": 0, "offset": 3})
        assert not state.is_near(TO)
        slow.set()
        until(lambda: not state.is_catching_up())
        assert not state.is_near(TO)  # of what came meanwhile
        state.bring(TO)
        assert state.is_near(TO)
        assert counted(state) == IDS[:4]


def test_who_needs_it_waits_until_it_has_caught_up(
    settings: Settings, slow: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "NEAR_ROWS", 10)
    with closing(opened(settings)) as state:
        assert state.is_near(TO)
        state.catch_up(TO)
        assert not state.is_near(TO)
        told: list[str] = []
        threading.Timer(0.1, slow.set).start()
        state.bring(TO, told.append)
        assert slow.is_set()
        assert counted(state) == IDS[:3]


def test_a_log_is_kept_for_as_long_as_it_is_read_from(
    settings: Settings, slow: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To make the state of many ids takes longer than logs are kept otherwise."""
    monkeypatch.setattr(topology, "readers", lambda _: [])
    lake = settings.lake
    with closing(opened(settings)) as state:
        state.catch_up(TO)
        until(lambda: holds.held(lake, Table.PURCHASES))
        for number in range(3, 6):
            append(lake, Table.PURCHASES, {"purchase_id": f"P-{number}", "partition": 0, "offset": number})
        maintenance.checkpoint_log(lake, Table.PURCHASES, every=1)
        maintenance.shorten(lake, Table.PURCHASES, 0)
        assert entry(lake, Table.PURCHASES, 3).exists()
        slow.set()
        until(lambda: not state.is_catching_up())
        assert state.index.position(Table.PURCHASES) is not None
        state.bring(TO)
        assert counted(state) == IDS[:6]
    assert holds.held(lake, Table.PURCHASES) == {}
    maintenance.shorten(lake, Table.PURCHASES, 0)
    assert not entry(lake, Table.PURCHASES, 3).exists()


@pytest.mark.parametrize("damaged", ["", "{", "[]", "3"])
def test_a_hold_that_cannot_be_read_holds_everything_until_the_next_driver(settings: Settings, damaged: str) -> None:
    holds.hold(settings.lake, "silver", "killed", {Table.PROFILE_CHANGES: 3})
    Path(settings.lake, "_state", "silver.killed.hold.json").write_text(damaged, encoding="utf-8")
    assert holds.held(settings.lake, Table.PURCHASES) == ({"silver": 0} if damaged else {})
    opened(settings).close()
    assert holds.held(settings.lake, Table.PURCHASES) == {}


def test_a_zombie_releases_its_own_hold_alone(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    going_on: dict[object, threading.Event] = {}
    monkeypatch.setattr(restore, "bring", lambda index, *_: going_on[index].wait(60))
    with closing(opened(settings)) as zombie:
        going_on[zombie.index] = threading.Event()
        zombie.catch_up(TO)
        until(lambda: holds.held(settings.lake, Table.PURCHASES))
        with closing(opened(settings)) as successor:
            assert holds.held(settings.lake, Table.PURCHASES) == {}
            going_on[successor.index] = threading.Event()
            successor.catch_up(TO)
            until(lambda: holds.held(settings.lake, Table.PURCHASES))
            going_on[zombie.index].set()
            until(lambda: not zombie.is_catching_up())
            assert holds.held(settings.lake, Table.PURCHASES) == {"silver": 3}
            going_on[successor.index].set()
            until(lambda: not successor.is_catching_up())
            assert holds.held(settings.lake, Table.PURCHASES) == {}


def test_what_could_not_be_released_is_released_with_the_next_catch_up(
    settings: Settings, slow: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else logs would be kept for as long as the driver runs."""
    release, fails = holds.release, [True]

    def failing_once(*told: str) -> None:
        if fails:
            fails.clear()
            raise OSError("no answer")
        release(*told)

    slow.set()
    monkeypatch.setattr(holds, "release", failing_once)
    with closing(opened(settings)) as state:
        state.catch_up(TO)
        until(lambda: not state.is_catching_up())
        assert holds.held(settings.lake, Table.PURCHASES) == {"silver": 3}
        state.not_before = 0.0
        state.catch_up(TO)
        until(lambda: not state.is_catching_up())
        assert holds.held(settings.lake, Table.PURCHASES) == {}


@pytest.fixture
def on_s3(s3_server: str) -> str:
    s3.client().create_bucket(Bucket="lake")
    return "s3a://lake/prefix"


@pytest.mark.parametrize("where", ["tmp_path", "on_s3"])
def test_what_somebody_holds_is_held_until_it_is_released_or_taken_back(
    request: pytest.FixtureRequest, where: str
) -> None:
    lake = str(request.getfixturevalue(where))
    of_a_former_release = f"{lake}/_state/silver.hold.json"
    write_whole(of_a_former_release, json.dumps({Table.PURCHASES.label: 9}).encode())
    for holder, version in (("a", 5), ("b", 7)):
        holds.hold(lake, "silver", holder, {Table.PURCHASES: version})
    holds.hold(lake, "gold", "c", {Table.PURCHASES: 6})
    assert holds.held(lake, Table.PURCHASES) == {"silver": 5, "gold": 6}
    for _ in range(2):
        holds.release(lake, "silver", "a")
        assert holds.held(lake, Table.PURCHASES) == {"silver": 7, "gold": 6}
    holds.release(lake, "silver", "b")
    assert holds.held(lake, Table.PURCHASES) == {"silver": 9, "gold": 6}
    holds.take_back(lake, "silver")
    assert holds.held(lake, Table.PURCHASES) == {"gold": 6}


def test_it_goes_on_to_where_the_stream_is_by_then(
    settings: Settings, slow: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catching_up, "NEAR_SECONDS", 0)
    with closing(opened(settings)) as state:
        state.catch_up(TO)
        append(settings.lake, Table.PURCHASES, {"purchase_id": "P-3", "partition": 0, "offset": 3})
        state.catch_up(TO)
        slow.set()
        until(lambda: not state.is_catching_up())
        assert state.is_near(TO)
        assert counted(state) == IDS[:4]


def test_what_was_begun_is_gone_on_with_where_the_table_has_grown(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeded: list[int] = []
    seed = restore._seed

    def stop_half_way(index: Any, lake: str, holding: Any, to: Any, progress: Any) -> None:
        seeded.append(to.version)
        if len(seeded) > 1:
            seed(index, lake, holding, to, progress)
            return
        with index.change():
            index.seed(holding.table, to, None)
        raise ZeroDivisionError

    monkeypatch.setattr(restore, "_seed", stop_half_way)
    with closing(opened(settings)) as state, pytest.raises(ZeroDivisionError):
        state.bring(TO)
    append(settings.lake, Table.PURCHASES, {"purchase_id": "P-3", "partition": 0, "offset": 3})
    with closing(opened(settings)) as state:
        state.bring(TO)
        assert counted(state) == IDS[:4]
    assert seeded == [3, 3]  # at the same place, and followed from there


def test_what_failed_is_tried_again_later(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that can do without it does not end for it."""
    asked: list[object] = []

    def fail(*given: Any) -> None:
        asked.append(given)
        raise OSError("the network")

    monkeypatch.setattr(restore, "bring", fail)
    monkeypatch.setattr(local, "NEAR_ROWS", 0)
    with closing(opened(settings)) as state:
        for is_begun in (True, False):
            assert state.catch_up(TO) == is_begun
            until(lambda: not state.is_catching_up())
            assert not state.is_near(TO)
        assert len(asked) == 1
        state.not_before = 0
        assert state.catch_up(TO)
        until(lambda: not state.is_catching_up())
        assert len(asked) == 2


@pytest.mark.parametrize(("limit", "fits"), [(215, False), (217, True)])
def test_what_would_be_too_large_is_not_begun(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, limit: int, *, fits: bool
) -> None:
    """Three ids take 216 bytes; a new disk does not know what was given up on the old one."""
    monkeypatch.setattr(files, "size", lambda *_: 0)
    with closing(opened(settings, local_state_gb=limit / local.GB)) as state:
        assert state.fits() == fits


def test_what_would_become_too_large_by_what_it_lacks_is_not_brought_there(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a large batch came after a small one: the state was begun with a table that had next to nothing."""
    monkeypatch.setattr(files, "size", lambda *_: 0)
    with closing(opened(settings, local_state_gb=300 / local.GB)) as state:
        state.bring(TO)
        for number in (3, 4):
            assert not state.is_outgrown()
            append(settings.lake, Table.PURCHASES, *({"purchase_id": f"P-{number}-{each}"} for each in range(2)))
            state.fall_behind(Table.PURCHASES)
            if number == 3:
                assert not state.is_outgrown()  # two rows more
                state.bring(TO)
            monkeypatch.setattr(files, "size", lambda *_: 216)
        assert state.is_outgrown()
        assert state.can_follow(TO)


@pytest.mark.parametrize(
    ("needs", "changed", "grown_gb", "fits"),
    [
        pytest.param(past.NEEDS, {}, 1.9, True, id="silver's"),
        pytest.param(past.NEEDS, {}, 2.1, False, id="silver's beyond what runs serve as well"),
        pytest.param(past.NEEDS, CLUSTER, 15.9, True, id="silver's on a cluster, which may have no executor"),
        pytest.param(past.NEEDS, CLUSTER, 16.1, False, id="silver's on a cluster beyond"),
        pytest.param(past.NEEDS, S3, 15.9, True, id="silver's where runs are read whole"),
        pytest.param(past.NEEDS, {"local_state_gb": 5.0}, 2.1, True, id="silver's as set"),
        pytest.param(past.NEEDS, {"local_state_gb": 5.0}, 5.1, False, id="silver's beyond what is set"),
        pytest.param(past.NEEDS, {"placement": "driver"}, 99.0, True, id="silver's in the driver"),
        pytest.param(enriching.NEEDS, {}, 15.9, True, id="another's"),
        pytest.param(enriching.NEEDS, {}, 16.1, False, id="another's beyond"),
        pytest.param(enriching.NEEDS, {"local_state_gb": 5.0}, 5.1, False, id="another's beyond what is set"),
    ],
)
def test_how_much_is_kept_depends_on_what_serves_as_well(
    settings: Settings,
    tmp_path: Path,
    needs: Needs,
    changed: dict[str, Any],
    grown_gb: float,
    monkeypatch: pytest.MonkeyPatch,
    *,
    fits: bool,
) -> None:
    ids = {table: delta.table_id(settings.lake, table) for table in topology.tables()}
    monkeypatch.setattr(files, "size", lambda *_: grown_gb * local.GB)
    monkeypatch.setattr(holds, "take_back", lambda *_: None)
    there = settings.model_copy(update={"run_dir": tmp_path / "run", **changed})
    with closing(LocalState(there, "some", ids, needs)) as state:
        monkeypatch.setattr(state, "has_estimated", True)
        assert state.fits() == fits


def test_what_goes_into_the_file_is_not_counted_twice(settings: Settings) -> None:
    """Or state is given up when it comes to half of what may be kept."""
    with closing(opened(settings)) as state:
        state.bring(TO)
        wal = settings.index_dir / "silver.db-wal"
        assert wal.stat().st_size > 0
        file = (settings.index_dir / "silver.db").stat().st_size
        assert files.size(settings.index_dir, "silver") == file
        folder = restore.sorting(settings.index_dir, "silver")
        folder.mkdir()
        for number, sorted_bytes in enumerate((file - 1, file + 1)):
            (folder / str(number)).write_bytes(bytes(sorted_bytes))
        assert files.size(settings.index_dir, "silver") == 2 * file


def test_what_it_fails_for_is_raised_where_it_is_used(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_given: Any) -> None:
        raise IndexDamaged("the file", remedy="start again")

    with closing(opened(settings)) as state:
        monkeypatch.setattr(restore, "bring", fail)
        state.catch_up(TO)
        assert state.catching_up is not None
        state.catching_up.join()
        with pytest.raises(IndexDamaged):
            state.is_near(TO)


def test_a_driver_that_stops_does_not_wait_for_all_of_it(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()

    def bring(_index: Any, _lake: str, _holding: Any, _to: Any, progress: Callable[[str], None]) -> None:
        while True:
            progress("a part is through")
            begun.set()

    monkeypatch.setattr(restore, "bring", bring)
    state = opened(settings)
    state.catch_up(TO)
    begun.wait(60)
    state.close()
    assert not state.is_catching_up()


@pytest.mark.parametrize(
    "grown",
    [
        pytest.param(lambda state: state.bring(TO), id="when it is brought on"),
        pytest.param(caught_up, id="behind"),
    ],
)
def test_what_is_too_large_is_given_up_and_not_made_again(
    settings: Settings, grown: Callable[[LocalState], None], caplog: pytest.LogCaptureFixture
) -> None:
    with closing(opened(settings)) as state:
        assert state.fits()
        state.limit = 1
        grown(state)
        assert state.is_kept  # whoever is at work has it to the end
        assert not state.fits()
        assert not state.is_near(TO)
    limit = 1 / local.GB
    assert list(settings.index_dir.glob("*.db*")) == []
    assert "more than the 1e-09 GB that are kept (ACTIVITY_LOCAL_STATE_GB)" in caplog.text
    for update, is_kept in (
        ({"local_state_gb": limit}, False),
        ({"local_state_gb": 1.0}, True),
        ({"local_state_gb": limit, "placement": "driver"}, True),
    ):
        with closing(opened(settings, **update)) as state:
            assert state.is_kept == is_kept


def test_what_is_too_large_while_it_is_sorted_is_given_up(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a sort go with it: the state that is left looks small, and would be begun again and again."""
    monkeypatch.setattr(local, "NEAR_ROWS", 0)

    def bring(index: Any, lake: str, holding: Any, place: Any, progress: Callable[[str], None]) -> None:
        folder = restore.sorting(settings.index_dir, "silver")
        folder.mkdir()
        (folder / "spilled").write_bytes(bytes(200_000))
        try:
            progress("reading")
        finally:
            shutil.rmtree(folder)

    monkeypatch.setattr(restore, "bring", bring)
    with closing(opened(settings, local_state_gb=100_000 / local.GB)) as state:
        caught_up(state)
        assert files.size(settings.index_dir, "silver") < 100_000
        assert not state.fits()
    with closing(opened(settings, local_state_gb=150_000 / local.GB)) as state:
        assert not state.is_kept


def test_what_is_too_large_is_not_brought_on_again_and_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it hold the tables' logs meanwhile. It stays while nobody can make sorted runs instead."""
    begun: list[object] = []

    def bring(*given: Any) -> None:
        begun.append(given)
        given[-1]("a part is through")

    monkeypatch.setattr(restore, "bring", bring)
    with closing(opened(settings)) as state:
        state.limit = 1
        for _ in range(3):
            assert not state.catch_up(TO)
        assert begun == []
        assert holds.held(settings.lake, Table.PURCHASES) == {}
        assert state.is_kept
        assert not state.can_follow(TO)


def test_what_a_killed_driver_was_sorting_goes_with_the_state(settings: Settings) -> None:
    folder = restore.sorting(settings.index_dir, "silver")
    folder.mkdir(parents=True)
    (folder / "spilled").touch()
    files.forget(settings, "silver")
    assert not folder.exists()


def test_what_takes_long_gives_signs_of_life_all_the_time(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who says nothing for two minutes is taken for stalled: one commit may have millions of rows."""
    monkeypatch.setattr(restore, "ROWS_AT_A_TIME", 1)
    told: list[str] = []
    with closing(opened(settings)) as state:
        state.bring(TO)
        for some in (range(3, 5), range(5, 8)):
            append(settings.lake, Table.PURCHASES, *({"purchase_id": f"P-{number}"} for number in some))
        state.fall_behind(Table.PURCHASES)
        state.bring(TO, told.append)
    assert [words for words in told if "2 rows that came since" in words]
    assert [words for words in told if "5 rows that came since" in words]


def give_up(settings: Settings) -> None:
    with closing(opened(settings)) as state:
        state.bring(TO)
        state.limit = 1
        assert not state.fits()


def note_as_the_release_before(settings: Settings) -> None:
    settings.index_dir.mkdir(parents=True)
    (settings.index_dir / "silver.given-up").write_text("20000000000.0", encoding="utf-8")


@pytest.mark.parametrize("given_up", [give_up, note_as_the_release_before], ids=lambda given_up: given_up.__name__)
def test_what_was_given_up_is_the_state_of_one_lake(
    settings: Settings, tmp_path: Path, given_up: Callable[[Settings], None]
) -> None:
    """Lakes that are not on this disk have their state in the run folder, whichever lake it is that runs there."""
    delta.ensure_tables(str(tmp_path / "other"))
    one, other = (
        settings.model_copy(update={"lake": f"file://{tmp_path}/{name}", "run_dir": tmp_path / "run"})
        for name in ("lake", "other")
    )
    given_up(one)
    for lake, is_kept in ((one, False), (other, True), (one, False)):
        with closing(opened(lake, local_state_gb=1 / local.GB)) as state:
            assert state.is_kept == is_kept


def test_what_was_given_up_once_and_made_again_is_kept_until_runs_serve(settings: Settings) -> None:
    """With a lower limit again its size tells: a note from before would have a driver remove it at its start."""
    give_up(settings)
    for limit in (1.0, 1 / local.GB):
        with closing(opened(settings, local_state_gb=limit)) as state:
            assert state.is_kept
            state.bring(TO)
            assert state.is_outgrown() == (limit < 1)


def test_what_the_log_no_longer_leads_on_from_cannot_be_followed(settings: Settings) -> None:
    with closing(opened(settings)) as state:
        state.bring(TO)
        for number in (3, 4):
            append(settings.lake, Table.PURCHASES, {"purchase_id": f"P-{number}"})
        assert state.can_follow(TO)
        opened_table(settings.lake, Table.PURCHASES).create_checkpoint()
        entry(settings.lake, Table.PURCHASES, 4).unlink()
        assert not state.can_follow(TO)


@pytest.mark.parametrize("damaged", ["", "{", "[]", "{}", "null"])
def test_a_note_that_cannot_be_read_gives_nothing_up(settings: Settings, damaged: str) -> None:
    (settings.index_dir / "silver.given-up").write_text(damaged, encoding="utf-8")
    with closing(opened(settings)) as state:
        assert state.is_kept


def test_none_is_kept_where_none_may_be(settings: Settings) -> None:
    with closing(opened(settings)) as state:
        state.bring(TO)
    with closing(opened(settings, local_state_gb=0)) as state:
        assert not state.is_kept
        state.catch_up(TO)
        assert not state.is_near(TO)
    assert list(settings.index_dir.glob("*.db*")) == []
