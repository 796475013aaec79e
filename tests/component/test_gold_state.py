"""Whatever gold's index held and whatever became of silver's tables, a batch begins with the state of its begin."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import ChangeFeedLost, ForeignCommit
from customer_activity.lake import delta, deltalog
from customer_activity.maintenance import maintenance
from customer_activity.settings import Settings
from customer_activity.state.local import LocalState
from customer_activity.state.profile_records import newest
from customer_activity.streams.gold import state as gold_state
from customer_activity.streams.gold.state import change as changed
from customer_activity.streams.gold.state import with_an_end
from customer_activity.streams.gold.sums import OUT_OF_RANGE, summarised, totalled
from support import tables
from support.tables import append

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
COMMITS = 6
SILVER = (Table.PURCHASES, Table.PROFILE_CHANGES)


def bought(number: int, customer: str = "C-1", amount: str = "1.10") -> dict[str, Any]:
    return {
        "purchase_id": f"P-{number}",
        "customer_id": customer,
        "amount": Decimal(amount),
        "occurred_at": NOON,
        "kafka_timestamp": NOON,
        "partition": 0,
        "offset": number,
        "landing": number,
    }


def said(number: int, customer: str = "C-1", *, is_tombstone: bool = False) -> dict[str, Any]:
    return {
        "customer_id": customer,
        "name": None if is_tombstone else f"Name {number}",
        "updated_at": NOON,
        "kafka_timestamp": NOON,
        "partition": 0,
        "offset": number,
        "landing": number,
        "is_tombstone": is_tombstone,
    }


def commit(lake: str, number: int) -> None:
    landed = {Table.PURCHASE_EVENTS.label: number, Table.PROFILE_EVENTS.label: number}
    append(lake, Table.PURCHASES, bought(number), landed=landed)
    append(lake, Table.PROFILE_CHANGES, said(number), landed=landed)


@pytest.fixture(scope="module")
def six_commits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a lake with a purchase and a profile in each of six commits of silver's, once; a test takes a copy."""
    lake = tmp_path_factory.mktemp("six_commits") / "lake"
    delta.ensure_tables(str(lake))
    for number in range(1, COMMITS + 1):
        commit(str(lake), number)
    return lake


@pytest.fixture
def settings(six_commits: Path, tmp_path: Path) -> Settings:
    return Settings(lake=str(shutil.copytree(six_commits, tmp_path / "lake")))


def opened(settings: Settings) -> LocalState:
    ids = {table: delta.table_id(settings.lake, table) for table in topology.tables()}
    return LocalState(settings, "gold", ids, gold_state.NEEDS)


def both(version: int) -> dict[Table, int]:
    return dict.fromkeys(SILVER, version)


def hold(settings: Settings, version: int | None) -> None:
    """Leave an index behind that was brought to a version of silver's tables; None: leave none."""
    if version is not None:
        state = opened(settings)
        state.bring(both(version))
        state.close()


def known(state: LocalState) -> tuple[int, str | None]:
    """How many purchases the state counts of C-1, and the name it has."""
    connection = state.index.connection
    found = connection.execute("SELECT purchase_count FROM summary WHERE customer_id = 'C-1'").fetchone()
    name = connection.execute("SELECT name FROM profile WHERE customer_id = 'C-1'").fetchone()
    return (found or (0,))[0], (name or (None,))[0]


def compacted(lake: str) -> None:
    for table in SILVER:
        maintenance.compact(lake, table)


def vacuumed(lake: str) -> None:
    """Remove what a compaction replaced, however young."""
    compacted(lake)
    for table in SILVER:
        log = tables.opened(lake, table)
        log.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)


def shortened(lake: str) -> None:
    """Remove what the logs have before a checkpoint at the newest commit of silver's."""
    for table in SILVER:
        tables.opened(lake, table).create_checkpoint()
        for version in range(COMMITS):
            tables.entry(lake, table, version).unlink()


def put_back_and_grown(lake: str) -> None:
    """Take each table back to version 3 and let it grow past where it was, with other rows."""
    for table in SILVER:
        for version in range(4, COMMITS + 1):
            tables.entry(lake, table, version).unlink()
        for number in range(11, 11 + COMMITS):
            rows = [bought(number), bought(10 * number)] if table is Table.PURCHASES else [said(number)]
            append(lake, table, *rows)


def made_again(lake: str) -> None:
    """Put tables of the same rows, with other ids, in their places."""
    for table in SILVER:
        shutil.rmtree(table_path(lake, table))
        delta.create(lake, table)
    for number in range(1, COMMITS + 1):
        commit(lake, number)


def unchanged(_lake: str) -> None:
    pass


@pytest.mark.parametrize("held", [None, 0, 2, COMMITS - 1, COMMITS], ids=lambda held: f"held {held}")
@pytest.mark.parametrize("wanted", [2, COMMITS], ids=lambda wanted: f"wanted {wanted}")
@pytest.mark.parametrize("became", [unchanged, compacted, vacuumed, made_again], ids=lambda became: became.__name__)
def test_the_state_is_exactly_that_of_a_version(
    settings: Settings, held: int | None, wanted: int, became: Callable[[str], None]
) -> None:
    hold(settings, held)
    became(settings.lake)
    state = opened(settings)
    state.bring(both(wanted))
    assert known(state) == (wanted, f"Name {wanted}")
    assert all(state.index.position(table).version == wanted for table in SILVER)  # type: ignore[union-attr]


@pytest.mark.parametrize("held", [None, 2, COMMITS], ids=lambda held: f"held {held}")
def test_a_shortened_log_loses_nothing(settings: Settings, held: int | None) -> None:
    hold(settings, held)
    shortened(settings.lake)
    state = opened(settings)
    state.bring(both(COMMITS))
    assert known(state) == (COMMITS, f"Name {COMMITS}")


@pytest.mark.parametrize("held", [5, COMMITS], ids=lambda held: f"held {held}")
def test_a_table_that_was_put_back_has_other_commits_under_the_same_numbers(settings: Settings, held: int) -> None:
    hold(settings, held)
    put_back_and_grown(settings.lake)
    state = opened(settings)
    state.bring(both(8))
    assert known(state) == (3 + 2 * 5, "Name 15")  # three from before, five of two each


def test_rows_that_landed_later_are_left_out_where_only_the_newest_version_is_whole(settings: Settings) -> None:
    vacuumed(settings.lake)
    state = opened(settings)
    state.bring(both(4))
    assert known(state) == (4, "Name 4")


def test_nobody_guesses_where_no_commit_tells_what_had_landed(settings: Settings) -> None:
    append(settings.lake, Table.PURCHASES, bought(7))  # as the release before did: without a landing
    wanted = tables.newest(settings.lake, Table.PURCHASES)
    append(settings.lake, Table.PURCHASES, bought(8))
    vacuumed(settings.lake)
    with pytest.raises(ChangeFeedLost, match=f"silver.purchases: .* version {wanted}"):
        opened(settings).bring({Table.PURCHASES: wanted})


def test_a_seed_that_is_interrupted_goes_on_behind_its_last_key(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [bought(100 + number, f"C-{number:03}") for number in range(250)]
    version = append(settings.lake, Table.PURCHASES, *rows)
    monkeypatch.setattr("customer_activity.state.restore.ROWS_AT_A_TIME", 50)
    said_so: list[str] = []
    read, first_part, second_part = "of 256 rows are read", "50 keys of", "100 keys of"

    def interrupt(words: str) -> None:
        said_so.append(words)
        for at in (read, first_part, second_part):
            if at in words and sum(at in said for said in said_so) == 1:
                raise KeyboardInterrupt

    state = opened(settings)
    keys: list[int] = []
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            state.bring({Table.PURCHASES: version}, interrupt)
        ((count,),) = state.index.connection.execute("SELECT count(*) FROM summary")
        keys.append(count)
        assert state.index.position(Table.PURCHASES) is None
        state.close()
        state = opened(settings)
    state.bring({Table.PURCHASES: version}, interrupt)
    ((count, purchases),) = state.index.connection.execute("SELECT count(*), sum(purchase_count) FROM summary")
    assert (count, purchases) == (251, 250 + COMMITS)
    assert keys == [0, 50, 150]


@pytest.mark.parametrize("tombstone_at", [2, 5, 6])
def test_an_older_change_does_not_bring_a_profile_back(settings: Settings, tombstone_at: int) -> None:
    """Files of a snapshot come in any order; so do commits that a replay made."""
    for number in range(1, COMMITS + 1):
        append(settings.lake, Table.PROFILE_CHANGES, said(number, "C-9", is_tombstone=number == tombstone_at))
    newest = tables.newest(settings.lake, Table.PROFILE_CHANGES)
    maintenance.compact(settings.lake, Table.PROFILE_CHANGES)
    state = opened(settings)
    state.bring({Table.PROFILE_CHANGES: newest})
    names = dict(state.index.connection.execute("SELECT customer_id, name FROM profile"))
    assert names.get("C-9") == (None if tombstone_at == COMMITS else f"Name {COMMITS}")


@pytest.mark.parametrize("is_tombstone", [False, True], ids=["update", "tombstone"])
def test_an_older_change_that_comes_later_changes_nothing(settings: Settings, is_tombstone: bool) -> None:
    """As a state follows commits: a replay lands behind what it is older than."""
    state = opened(settings)
    state.bring(both(COMMITS))
    version = append(settings.lake, Table.PROFILE_CHANGES, said(2, is_tombstone=is_tombstone))
    state.bring({Table.PROFILE_CHANGES: version})
    assert known(state)[1] == f"Name {COMMITS}"


@pytest.mark.parametrize("how", ["commits", "one by one", "seed"])
def test_a_total_out_of_range_is_capped_however_it_comes_in(settings: Settings, how: str) -> None:
    state = opened(settings)
    if how != "seed":
        state.bring({Table.PURCHASES: COMMITS})
    together = 1 if how == "one by one" else 19
    for first in range(0, 19, together):
        largest = (bought(100 + n, "C-2", "9999999999999999.99") for n in range(first, first + together))
        version = append(settings.lake, Table.PURCHASES, *largest)
        if how != "seed":
            state.bring({Table.PURCHASES: version})
    state.bring({Table.PURCHASES: version})
    ((cents, count),) = state.index.connection.execute(
        "SELECT cents, purchase_count FROM summary WHERE customer_id = 'C-2'"
    )
    assert (cents, count) == (OUT_OF_RANGE, 19)
    assert known(state)[0] == COMMITS


@pytest.mark.parametrize(
    "times",
    [(None, NOON), (NOON, None), (None, NOON, None)],
    ids=["the first has none", "the last has none", "one of three has one"],
)
@pytest.mark.parametrize("how", ["seeded", "followed"])
def test_a_least_or_greatest_value_is_that_of_the_purchases_that_have_one(
    settings: Settings, times: tuple[datetime | None, ...], how: str
) -> None:
    """No column that gold knows of today is null; an optional field's is where a purchase does not have it."""
    state = opened(settings)
    for number, time in enumerate(times, COMMITS + 1):
        if how == "followed":
            state.bring({Table.PURCHASES: number - 1})
        append(settings.lake, Table.PURCHASES, bought(number, "C-2") | {"occurred_at": time})
    state.bring({Table.PURCHASES: COMMITS + len(times)})
    found = state.index.connection.execute(
        "SELECT purchase_count, first_purchase_at, last_purchase_at FROM summary WHERE customer_id = 'C-2'"
    )
    noon = int(NOON.timestamp() * 1_000_000)
    assert found.fetchall() == [(len(times), noon, noon)]


@pytest.mark.parametrize("is_at_once", [False, True], ids=["frozen before", "frozen by the same batch"])
def test_a_row_out_of_range_ends_with_its_profile_although_another_begins(
    settings: Settings, *, is_at_once: bool
) -> None:
    state = opened(settings)
    state.bring(both(COMMITS))
    to = {table: deltalog.position(settings.lake, table, state.ids[table], COMMITS) for table in SILVER}
    nothing = pa.Table.from_pylist([], arrow_schema(Table.PROFILE_CHANGES))
    moves = pa.Table.from_pylist([said(200, is_tombstone=True), said(201)], arrow_schema(Table.PROFILE_CHANGES))
    largest = [bought(100 + number, amount="9999999999999999.99") for number in range(2)]
    huge = summarised(pa.Table.from_pylist(largest, arrow_schema(Table.PURCHASES)))
    if not is_at_once:
        with changed(state, totalled([huge]), newest(nothing), [], to, list) as changes:
            ((rows, beyond),) = changes
            assert (rows.num_rows, beyond) == (0, ["C-1"])
    sums = totalled([huge] if is_at_once else [])
    with changed(state, sums, newest(moves), with_an_end(moves), to, list) as changes:
        ((gone, _),) = changes
    (row,) = gone.to_pylist()
    assert [row[name] for name in ("customer_id", "name", "existed", "is_gone")] == ["C-1", None, True, True]


@pytest.mark.parametrize("change", ["delete", "update", "append"])
def test_a_foreign_commit_on_the_way_is_refused_by_name(settings: Settings, change: str) -> None:
    state = opened(settings)
    state.bring({Table.PURCHASES: COMMITS})
    table = tables.opened(settings.lake, Table.PURCHASES)
    if change == "delete":
        table.delete("purchase_id = 'P-3'")
    elif change == "update":
        table.update({"amount": "2.20"}, predicate="purchase_id = 'P-3'")
    else:
        append(settings.lake, Table.PURCHASES, bought(9), query="somebody's notebook")
    with pytest.raises(ForeignCommit, match=f"silver.purchases: version {COMMITS + 1} was not written by the pipeline"):
        state.bring({Table.PURCHASES: COMMITS + 1})


def test_the_same_sums_are_seeded_and_followed(settings: Settings) -> None:
    """What the index's own language adds up is what the batches' does."""
    for number in range(20, 40):
        append(settings.lake, Table.PURCHASES, bought(number, f"C-{number % 3}", f"{number}.{number}"))
    newest = tables.newest(settings.lake, Table.PURCHASES)
    sums = []
    for first in (newest, 0):
        state = opened(settings)
        state.bring({Table.PURCHASES: first})
        state.bring({Table.PURCHASES: newest})
        sums.append(state.index.connection.execute("SELECT * FROM summary ORDER BY customer_id").fetchall())
        state.close()
        shutil.rmtree(settings.index_dir)
    assert sums[0] == sums[1]
    assert len(sums[0]) == 3


def test_a_place_is_named_by_the_commit(settings: Settings) -> None:
    at = {deltalog.position(settings.lake, Table.PURCHASES, "id", version) for version in (0, 1, 2)}
    assert len({place.commit for place in at}) == 3
    assert deltalog.position(settings.lake, Table.PURCHASES, "id", 99).commit == ""
