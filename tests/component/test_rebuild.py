"""Silver and gold once more from bronze: equal where nothing is wrong, and whatever is wrong is found and named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyarrow import fs

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.errors import SettingsError, TransientError
from customer_activity.rebuild import run
from customer_activity.rebuild.building import Choice
from customer_activity.rebuild.comparison import Compared
from customer_activity.rebuild.run import Rebuilt
from customer_activity.settings import Settings
from customer_activity.storage.filesystem import filesystem
from support.damages import HISTORY, added, set_, without
from support.pipeline import copied_lake
from support.quality import Rows, rewrite
from support.quick_pipeline import QuickPipeline
from support.records import NOW_MS, profile, purchase
from support.streams import Query
from support.without_jvm import NoSpark

EVERYBODY = Choice()


@pytest.fixture
def settings(lived: QuickPipeline, tmp_path: Path) -> Settings:
    """Return settings of a lake with a bit of everything."""
    return copied_lake(Path(lived.settings.lake), tmp_path)


@pytest.fixture
def empty(empty_lake: Path, tmp_path: Path) -> Settings:
    """Return settings of a lake that has nothing yet."""
    return copied_lake(empty_lake, tmp_path)


def rebuilt(nobody: NoSpark, settings: Settings, choice: Choice = EVERYBODY) -> Rebuilt:
    return run.rebuild_in(nobody, settings, choice)  # type: ignore[arg-type]


def of(done: Rebuilt, table: str) -> Compared:
    return next(compared for compared in done.tables if compared.table == table)


def versions(settings: Settings) -> dict[Table, int]:
    return {table: DeltaTable(table_path(settings.lake, table)).version() for table in topology.tables()}


def test_an_intact_lake_is_equal_and_stays_as_it_is(nobody: NoSpark, settings: Settings) -> None:
    before = versions(settings)
    there = sorted(path.name for path in Path(settings.lake).iterdir())

    done = rebuilt(nobody, settings)

    assert done.differences == 0
    assert {compared.table: (compared.live, compared.rebuilt) for compared in done.tables} == {
        "silver.purchases": (5, 5),
        "silver.profile_changes": (3, 3),
        "gold.activity_changes": (3, 3),
        "silver.purchase_summaries": (3, 3),
        "silver.customer_profiles": (3, 3),
        "gold.customer_activity": (3, 3),
    }
    assert versions(settings) == before
    assert sorted(path.name for path in Path(settings.lake).iterdir()) == there
    assert not list(settings.run_dir.glob("rebuild-*"))


def test_streams_that_go_on_are_no_difference(nobody: NoSpark, empty: Settings) -> None:
    pipeline = QuickPipeline(nobody, empty)  # type: ignore[arg-type]
    for records in HISTORY[:2]:
        pipeline.send(*records)
        pipeline.run()
    pipeline.send(*HISTORY[2])
    for query in (Query.BRONZE, Query.SILVER):  # gold has not seen it
        pipeline.hop(query)
    pipeline.send(*HISTORY[3])
    pipeline.hop(Query.BRONZE)  # nor has silver seen this

    done = rebuilt(nobody, empty)

    assert done.differences == 0
    assert of(done, "silver.purchases").live == 3


def test_before_the_first_record_there_is_nothing_to_differ(nobody: NoSpark, empty: Settings) -> None:
    done = rebuilt(nobody, empty)
    assert (done.differences, done.customers, sum(done.records.values())) == (0, 0, 0)


WRONG = Decimal("9.99")


PURCHASES, PROFILES, CHANGES = (Table.PURCHASES, Table.PROFILE_CHANGES, Table.ACTIVITY_CHANGES)
# By name: the damage, and what is found: rows here and rebuilt, of these too many, missing and other, where, and whose.
DAMAGES: dict[str, tuple[Table, Callable[[Rows], Rows | None], tuple[Any, ...]]] = {
    "a value in silver": (PURCHASES, set_("purchase_id", "P-4", amount=WRONG), (5, 5, 0, 0, 1, {"amount": 1}, ["P-4"])),
    "a purchase is missing": (PURCHASES, without("purchase_id", "P-4"), (4, 5, 0, 1, 0, {}, ["P-4"])),
    "a purchase that nobody made": (
        PURCHASES,
        added("purchase_id", "P-4", purchase_id="P-X"),
        (6, 5, 1, 0, 0, {}, ["P-X"]),
    ),
    "a purchase twice": (PURCHASES, added("purchase_id", "P-4"), (6, 5, 1, 0, 0, {}, ["P-4"])),
    "a purchase of nobody": (
        PURCHASES,
        set_("purchase_id", "P-4", customer_id=None),
        (5, 5, 0, 0, 1, {"customer_id": 1}, ["P-4"]),
    ),
    "a profile": (
        PROFILES,
        set_("customer_id", "C-5", address="Nowhere"),
        (3, 3, 0, 0, 1, {"address": 1}, ["C-5"]),
    ),
    "values in gold": (
        CHANGES,
        set_("customer_id", "C-2", purchase_count=7, total_amount=WRONG),
        (3, 3, 0, 0, 1, {"purchase_count": 1, "total_amount": 1}, ["C-2"]),
    ),
    "a row of gold is missing": (CHANGES, without("customer_id", "C-5"), (2, 3, 0, 1, 0, {}, ["C-5"])),
    "a row of somebody who is gone": (
        CHANGES,
        lambda rows: [row for row in rows if not row["is_gone"]],
        (4, 3, 1, 0, 0, {}, ["C-4"]),
    ),
    "a row of somebody whom bronze does not know": (
        CHANGES,
        added("customer_id", "C-5", customer_id="C-X"),
        (4, 3, 1, 0, 0, {}, ["C-X"]),
    ),
}


@pytest.mark.parametrize(("table", "damage", "found"), DAMAGES.values(), ids=DAMAGES.keys())
def test_damage_is_found_and_named(
    nobody: NoSpark,
    settings: Settings,
    table: Table,
    damage: Callable[[Rows], Rows | None],
    found: tuple[Any, ...],
) -> None:
    rewrite(settings.lake, table, damage)
    done = rebuilt(nobody, settings)
    assert of(done, table.label) == Compared(table.label, *found)
    assert done.differences == 1


def test_some_customers_are_rebuilt_alone(nobody: NoSpark, settings: Settings) -> None:
    rewrite(settings.lake, Table.PURCHASES, set_("purchase_id", "P-6", amount=WRONG))
    rewrite(settings.lake, Table.ACTIVITY_CHANGES, set_("customer_id", "C-1", purchase_count=7))

    done = rebuilt(nobody, settings, Choice(customers=("C-1", "C-5")))

    assert done.customers == 2
    assert of(done, "silver.purchases").differences == 0  # that of C-2 is not looked at
    assert of(done, "gold.activity_changes").examples == ["C-1"]


def test_another_customers_record_of_the_same_purchase_counts(nobody: NoSpark, empty: Settings) -> None:
    pipeline = QuickPipeline(nobody, empty)  # type: ignore[arg-type]
    pipeline.send(profile("C-1"), profile("C-2"), purchase("P-1", "C-1"), purchase("P-1", "C-2"))
    pipeline.run()

    done = rebuilt(nobody, empty, Choice(customers=("C-2",)))

    assert done.differences == 0
    assert of(done, "silver.purchases").rebuilt == 0  # the first record counts, and it is of C-1


def test_a_time_chooses_the_customers_with_a_record_of_it(nobody: NoSpark, settings: Settings) -> None:
    late = datetime.fromtimestamp((NOW_MS + 9) / 1000, UTC)  # P-6, of C-2
    done = rebuilt(nobody, settings, Choice(since=late))
    assert (done.customers, done.differences) == (1, 0)
    assert of(done, "silver.purchases").live == 2  # all of C-2: sums need every purchase


@pytest.mark.parametrize(
    "choice",
    [
        pytest.param(Choice(customers=("C-unknown",)), id="nobody is called so"),
        pytest.param(Choice(until=datetime(2001, 1, 1, tzinfo=UTC)), id="nobody has a record of that time"),
    ],
)
def test_nobody_is_an_error(nobody: NoSpark, settings: Settings, choice: Choice) -> None:
    with pytest.raises(SettingsError, match="no such customer"):
        rebuilt(nobody, settings, choice)
    assert not list(Path(settings.lake).glob("_rebuild-*"))


AT_WORK = """
import sys
from pathlib import Path
from customer_activity.rebuild import run
from customer_activity.settings import Settings
with run.beside(Settings(lake=sys.argv[1], run_dir=Path(sys.argv[2]))) as shadow:
    print(shadow.lake, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("ends", ["killed", "told to go on"])
def test_what_a_killed_rebuild_has_left_goes_and_what_one_is_at_work_on_stays(settings: Settings, ends: str) -> None:
    line = [sys.executable, "-c", AT_WORK, settings.lake, str(settings.run_dir)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        with run.beside(settings):
            assert theirs.is_dir()
        if ends == "killed":
            other.kill()
    assert theirs.exists() == (ends == "killed")
    with run.beside(settings) as ours:
        assert not theirs.exists()
        assert Path(ours.lake).is_dir()
    assert not list(Path(settings.lake).glob("_rebuild-*"))


def test_what_is_removed_while_it_is_tidied_is_no_fault(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket lists a folder for a moment that is gone, and two rebuilds tidy at once."""
    real = filesystem
    copy = Path(settings.lake, "_rebuild-0123456789ab")
    copy.mkdir()

    class Late:
        def __init__(self, location: str) -> None:
            self.files, self.path = real(location)

        def get_file_info(self, of: Any) -> Any:
            return fs.FileInfo(of, fs.FileType.Directory) if isinstance(of, str) else self.files.get_file_info(of)

        def delete_dir(self, path: str) -> None:
            self.files.delete_dir(path)
            raise FileNotFoundError(path)

    monkeypatch.setattr(run, "filesystem", lambda location: ((late := Late(location)), late.path))
    with run.beside(settings):
        assert not copy.exists()
    assert not list(Path(settings.lake).glob("_rebuild-*"))


def test_no_lake_is_an_error(nobody: NoSpark, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there are no tables"):
        rebuilt(nobody, Settings(lake=str(tmp_path / "nowhere")))


def test_files_that_are_gone_meanwhile_are_said_to_be(
    nobody: NoSpark, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in (Path(settings.lake) / Table.PURCHASE_EVENTS).glob("*.parquet"):
        file.unlink()
    with pytest.raises(TransientError, match="compacted and expired"):
        rebuilt(nobody, settings)
