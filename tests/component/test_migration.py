"""A lake of the release before is refused by name, brought up in place, and the same rows are in it afterwards."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer
from deltalake import write_deltalake
from typer.testing import CliRunner

from customer_activity import application, topology
from customer_activity.catalog import Table, table_path
from customer_activity.commands import migrate as command
from customer_activity.contracts.tables import TABLES
from customer_activity.errors import EXIT_TERMINAL, LakeOfAnotherRelease, SettingsError
from customer_activity.lake import delta, layout
from customer_activity.lake.checksums import write_checksum
from customer_activity.operations import migration, recovery
from customer_activity.operations.migration import Migrated, migrate
from customer_activity.settings import Settings
from customer_activity.state import catalogue
from customer_activity.state.local import LocalState
from customer_activity.streams.gold import state as gold
from customer_activity.streams.registry import RUNS
from customer_activity.streams.silver import state as silver
from customer_activity.verification import lake as reading
from support import kept_lakes, tables
from support.streams import CURRENT, Query

NUMBERED = (
    Table.PURCHASE_EVENTS,
    Table.PROFILE_EVENTS,
    Table.QUARANTINE,
    Table.PURCHASES,
    Table.PROFILE_CHANGES,
    Table.PROFILES,
)


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the lake that the release before left; nobody changes it."""
    folder = tmp_path_factory.mktemp("before")
    kept_lakes.unpack(1, folder, "lake")
    return folder / "lake"


@pytest.fixture
def before(unpacked: Path, tmp_path: Path) -> str:
    """Return a copy of it."""
    shutil.copytree(unpacked, tmp_path / "lake")
    return str(tmp_path / "lake")


def rows(lake: str, table: Table, columns: list[str]) -> list[tuple[Any, ...]]:
    return sorted(reading.rows(tables.opened(lake, table), columns), key=repr)


def columns_of(lake: str, table: Table) -> list[str]:
    return [field.name for field in tables.opened(lake, table).schema().fields]


def say(lake: str, table: Table, version: str) -> None:
    """Have a table say the version of its layout."""
    log = tables.opened(lake, table)
    log.alter.set_table_properties({layout.PROPERTY: version}, raise_if_not_exists=False)
    write_checksum(table_path(lake, table), log.version())


def test_an_older_lake_is_refused_before_anything_is_started(
    before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(lake=before, run_dir=tmp_path / "run")
    monkeypatch.setattr("signal.signal", lambda *_: None)
    for started in ("kafka.topics.check", "engine.session.start"):
        monkeypatch.setattr(f"customer_activity.{started}", lambda *_, **__: pytest.fail("too early"))
    with pytest.raises(LakeOfAnotherRelease):
        application.run(settings, [Query.BRONZE])


@pytest.mark.parametrize("use", [delta.ensure_tables, delta.require_tables], ids=["start", "command"])
def test_an_older_lake_is_refused_by_name(use: Callable[[str], None], before: str) -> None:
    with pytest.raises(
        LakeOfAnotherRelease, match=r"older release: bronze\.purchase_events.*\n.*activity migrate"
    ) as told:
        use(before)
    assert told.value.exit_code == EXIT_TERMINAL
    migrate(before)
    use(before)


@pytest.mark.parametrize("version", ["3", "next"])
def test_a_newer_lake_is_refused_and_left_alone(version: str, tmp_path: Path) -> None:
    lake = str(tmp_path)
    delta.ensure_tables(lake)
    say(lake, Table.PROFILES, version)
    for use in (delta.ensure_tables, delta.require_tables, migrate):
        with pytest.raises(LakeOfAnotherRelease, match=r"newer release: silver\.customer_profiles \(version 3\)"):
            use(lake)


def test_a_new_lake_needs_nothing(tmp_path: Path) -> None:
    delta.ensure_tables(str(tmp_path))
    assert migrate(str(tmp_path)).steps == []


def test_what_this_release_keeps_for_the_next_is_what_it_leaves(tmp_path: Path) -> None:
    """Whoever changes what a lake has on disk makes the fixture again: tests/fixtures/README.md."""
    kept_lakes.unpack(layout.CURRENT, tmp_path, "lake")
    settings = Settings(lake=str(tmp_path / "lake"), run_dir=tmp_path / "run")
    assert {found.version for found in layout.layouts(settings.lake)} == {layout.CURRENT}
    assert migrate(settings.lake, dry_run=True).steps == []
    recovery.check_agreement(settings.lake, topology.names())
    ids = {table: delta.table_id(settings.lake, table) for table in topology.tables()}
    for stream, needs in ((Query.SILVER, silver.NEEDS), (Query.GOLD, gold.NEEDS)):
        with closing(LocalState(settings, stream, ids, needs)) as state:
            for holding in needs.holdings:
                assert state.index.position(holding.table) is not None, "a file of another format is begun again"


@pytest.mark.parametrize("use", [delta.ensure_tables, delta.require_tables], ids=["start", "command"])
def test_a_lake_without_a_column_of_a_contract_is_refused_by_name_and_brought_up(
    use: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that says the same version: a field that a contract gets is a column, and asks for no other number."""
    lake = str(tmp_path)
    declared = TABLES[Table.PROFILES]
    fewer = declared._replace(columns=pa.schema([column for column in declared.columns if column.name != "email"]))
    with monkeypatch.context() as before:
        before.setitem(TABLES, Table.PROFILES, fewer)
        delta.ensure_tables(lake)
    with pytest.raises(LakeOfAnotherRelease, match=r"silver\.customer_profiles \(lacks email\)\n.*activity migrate"):
        use(lake)
    assert [(step.table, step.lacks) for step in migrate(lake).steps] == [(Table.PROFILES, ("email",))]
    use(lake)
    assert set(columns_of(lake, Table.PROFILES)) == set(declared.columns.names)
    monkeypatch.setitem(TABLES, Table.PROFILES, fewer)  # the release before
    with pytest.raises(LakeOfAnotherRelease, match=r"newer release: silver\.customer_profiles"):
        use(lake)


def test_no_lake_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no tables"):
        migrate(str(tmp_path))


def test_columns_are_added_and_no_row_is_rewritten(before: str) -> None:
    had = {table: columns_of(before, table) for table in topology.tables()}
    content = {table: rows(before, table, had[table]) for table in topology.tables()}
    files = {table: tables.opened(before, table).file_uris() for table in topology.tables()}

    done = migrate(before)

    lacked = {step.table: list(step.lacks) for step in done.steps}
    assert {table for table in topology.tables() if "landing" in lacked[table]} == set(NUMBERED)
    for table in topology.tables():
        assert columns_of(before, table) == had[table] + lacked[table]
        assert set(columns_of(before, table)) == set(TABLES[table].columns.names)
        assert rows(before, table, had[table]) == content[table]
        assert tables.opened(before, table).file_uris() == files[table]
    assert {row[0] for row in rows(before, Table.PURCHASES, ["landing"])} == {None}
    assert migrate(before).steps == []
    (note,) = (Path(before) / "_audit").iterdir()
    assert json.loads(note.read_text(encoding="utf-8"))["steps"][0] == {
        "table": "bronze.purchase_events",
        "columns": lacked[Table.PURCHASE_EVENTS],
        "from": 1,
    }


def test_checksums_stay_right(before: str) -> None:
    migrate(before)
    for table in (table for table in topology.tables() if table not in CURRENT):  # what merges write to has none
        log = tables.opened(before, table)
        path = tables.entry(before, table, log.version()).with_suffix(".crc")
        checksum = json.loads(path.read_text(encoding="utf-8"))
        assert json.loads(checksum["metadata"]["schemaString"]) == json.loads(log.schema().to_json())
        assert checksum["metadata"]["configuration"][layout.PROPERTY] == "2"
        assert checksum["numFiles"] == len(log.file_uris())
        assert checksum["setTransactions"], "what tells a batch that it is in the table"


@pytest.mark.parametrize("place", range(6))
def test_an_interrupted_migration_is_finished_by_the_next(
    place: int, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """End it before or after each checksum: after a commit without its checksum, and between two commits."""
    passed = iter(range(100))

    def end(path: str, version: int) -> None:
        number = next(passed)
        if number == place // 2 and not place % 2:
            raise KeyboardInterrupt
        write_checksum(path, version)
        if number == place // 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(migration, "write_checksum", end)
        with pytest.raises(KeyboardInterrupt):
            migrate(before)
    with pytest.raises(LakeOfAnotherRelease):
        delta.ensure_tables(before)
    migrate(before)
    delta.ensure_tables(before)
    test_checksums_stay_right(before)


@pytest.fixture
def run(before: str, settings: Settings) -> Callable[..., str]:
    """Run the command; return what it prints."""

    def run_with(*arguments: str) -> str:
        app = typer.Typer()
        app.command()(command.migrate)
        result = CliRunner().invoke(app, list(arguments), obj=settings.model_copy(update={"lake": before}))
        assert result.exit_code == 0, result.output
        return result.stdout

    return run_with


def test_a_dry_run_shows_and_does_nothing(run: Callable[..., str], before: str) -> None:
    told = json.loads(run("--dry-run", "--json"))
    assert (told["version"], told["is_done"]) == (2, False)
    assert [step["columns"] for step in told["steps"] if step["table"] == Table.QUARANTINE] == [["landing"]]
    assert "nothing was done" in run("--dry-run")
    assert not (Path(before) / "_audit").exists()
    with pytest.raises(LakeOfAnotherRelease):
        delta.ensure_tables(before)


def test_it_says_what_it_did(run: Callable[..., str]) -> None:
    assert re.search(r"silver\.purchases: add .*landing.* \(null in earlier rows\), then note version 2", run())
    assert "nothing to do" in run()


def test_it_says_how_long_it_took_and_what_the_first_large_batch_will_take(run: Callable[..., str]) -> None:
    said = run()
    assert re.search(r"done in \d+\.\d s; the streams may start", said)
    purchases = json.loads(run("--json"))["unsorted"]
    assert purchases
    assert f"sorts what the lake has ({purchases:,} purchases), once: about 1 processor seconds" in " ".join(
        said.split()
    )


@pytest.mark.parametrize(
    ("unsorted", "time"),
    [
        pytest.param(0, None, id="runs are there"),
        pytest.param(5_000_000, "about 40 processor seconds", id="some"),
        pytest.param(100_000_000, "about 800 processor seconds", id="many"),
    ],
)
def test_what_is_to_be_sorted_takes_longer_the_more_it_is(unsorted: int, time: str | None) -> None:
    said = command.lines(Migrated("lake", 2, [], is_done=False, unsorted=unsorted))
    assert time in said[-1] if time else len(said) == 1


def test_a_lake_with_sorted_runs_of_silver_and_gold_has_nothing_to_sort(before: str) -> None:
    purchases = tables.opened(before, Table.PURCHASES).count()
    for state, made_by in RUNS.items():
        catalogue.note(before, state, "another release", {}, {})  # of no use
        assert migrate(before).unsorted == purchases
        catalogue.note(before, state, made_by, {}, {})
    assert migrate(before).unsorted == 0


@pytest.mark.parametrize("has_folder", [False, True], ids=["bronze alone", "without a log"])
def test_a_lake_whose_purchases_cannot_be_counted_is_brought_up(before: str, *, has_folder: bool) -> None:
    path = Path(table_path(before, Table.PURCHASES))
    shutil.rmtree(path)
    if has_folder:
        (path / "_delta_log").mkdir(parents=True)
    assert migrate(before).unsorted == 0
    assert migrate(before).steps == []


def test_what_is_written_afterwards_reads_with_what_was_there(before: str) -> None:
    migrate(before)
    had = tables.opened(before, Table.PURCHASES).to_pyarrow_table()
    write_deltalake(
        table_path(before, Table.PURCHASES),
        had.slice(0, 1).set_column(had.column_names.index("landing"), "landing", [[7]]),
        mode="append",
    )
    landings = [row[0] for row in rows(before, Table.PURCHASES, ["landing"])]
    assert sorted(landings, key=lambda number: number or 0) == [None] * had.num_rows + [7]
