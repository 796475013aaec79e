"""Gold's change feeds outside the pipeline: what is promised can be read, whatever maintenance removes."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.columns import Kept
from customer_activity.contracts.tables import TABLES, arrow_schema
from customer_activity.engine.queries import RunningQuery
from customer_activity.inspection import describe, doctor
from customer_activity.lake import change_feeds, delta, merging
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.maintenance import listing, maintenance, on_demand
from customer_activity.maintenance.scheduler import Scheduler
from customer_activity.settings import Settings
from support import tables
from support.streams import Query

TABLE = Table.ACTIVITY
HOUR = 3_600
COMMITS = 24  # one an hour, the newest one now


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a lake whose gold has had a commit an hour for a day; nobody changes it.

    Every third commit inserts a customer, and the others change one. The log has a checkpoint every four commits.
    """
    settings = Settings(lake=str(tmp_path_factory.mktemp("lived") / "lake"))
    delta.ensure_tables(settings.lake)
    for version in range(1, COMMITS + 1):
        row = {
            "customer_id": f"C-{version // 3}",
            "purchase_count": version,
            "total_amount": Decimal("1.25"),
            "view_version": version,
        }
        source, batch = pa.Table.from_pylist([row], arrow_schema(TABLE)), MicroBatch(Query.ACTIVITY, "g", version)
        merging.merge(source, settings.lake, TABLE, batch, key=["customer_id"])
        remove_at(settings, version, time.time() - (COMMITS - version) * HOUR)
        age(settings, COMMITS - version)
        if version % 4 == 0:
            tables.opened(settings.lake, TABLE).create_checkpoint()
    return Path(settings.lake)


@pytest.fixture
def promised(lived: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return a copy of that lake, of which hardly anything is kept but what is promised: ten hours."""
    monkeypatch.setitem(TABLES, TABLE, TABLES[TABLE]._replace(kept=Kept(1, 0)))
    shutil.copytree(lived, tmp_path / "lake")
    return Settings(lake=str(tmp_path / "lake"), run_dir=tmp_path / "run", change_feed_hours=10)


def age(settings: Settings, hours: int) -> None:
    """Have all files of the table that are new be so old; a minute less, for this test takes some seconds."""
    at = time.time() - hours * HOUR + 60
    for file in folder(settings).rglob("*"):
        if file.is_file() and file.stat().st_mtime > at:
            os.utime(file, (at, at))


def remove_at(settings: Settings, version: int, at: float) -> None:
    """Have a commit have removed files at a moment."""
    entry = tables.entry(settings.lake, TABLE, version)
    actions = [json.loads(line) for line in entry.read_text(encoding="utf-8").splitlines()]
    for action in actions:
        if "remove" in action:
            action["remove"]["deletionTimestamp"] = round(at * 1000)
    entry.write_text("\n".join(json.dumps(action) for action in actions), encoding="utf-8")


def folder(settings: Settings) -> Path:
    return Path(table_path(settings.lake, TABLE))


def changes(settings: Settings, after: int) -> list[int]:
    """Read the changes after a version, as a reader outside the pipeline does; return which versions they are of."""
    found = tables.opened(settings.lake, TABLE).load_cdf(starting_version=after + 1).read_all()
    return sorted(set(pa.table(found).column("_commit_version").to_pylist()))


def by_the_driver(settings: Settings) -> None:
    queries = [
        RunningQuery(query, lambda: pytest.fail("nothing starts here"), settings, threading.Event()) for query in Query
    ]
    scheduler = Scheduler(settings, queries)
    scheduler.tidy(TABLE, [])
    scheduler.shorten(TABLE)
    scheduler.vacuum(TABLE)


def as_asked(settings: Settings) -> None:
    scheduler = Scheduler(settings, [])
    scheduler.tend(TABLE)


KEEPERS = [
    pytest.param(by_the_driver, id="by the driver"),
    pytest.param(as_asked, id="by the driver, as asked"),
    pytest.param(on_demand.at_rest, id="without a driver"),
]


@pytest.mark.parametrize("keep", KEEPERS)
def test_a_reader_that_is_as_far_behind_as_he_may_be_still_reads(
    promised: Settings, keep: Callable[[Settings], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "COMMITS_A_CHECKPOINT", 1)
    keep(promised)
    last_read = COMMITS - 10
    assert changes(promised, last_read)[-10:] == list(range(last_read + 1, COMMITS + 1))
    (reach,) = change_feeds.reaches(promised)
    assert (reach.first, reach.promised) == (12, timedelta(hours=10))  # the checkpoint before that
    assert reach.is_kept(datetime.now(UTC))


@pytest.mark.parametrize("keep", KEEPERS)
def test_one_that_is_further_behind_is_told(
    promised: Settings, keep: Callable[[Settings], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "COMMITS_A_CHECKPOINT", 1)
    keep(promised.model_copy(update={"change_feed_hours": 2.0}))
    with pytest.raises(DeltaError, match="Invalid table version: 15"):
        changes(promised, COMMITS - 10)


def test_without_a_promise_nothing_is_kept_for_others(promised: Settings) -> None:
    on_demand.at_rest(promised.model_copy(update={"change_feed_hours": 0.0}))
    assert change_feeds.reaches(promised)[0].first > COMMITS - 4
    assert change_feeds.reaches(promised.model_copy(update={"change_feed_hours": 0.0})) == []


def test_files_of_changes_are_kept_as_long(promised: Settings) -> None:
    before = set(folder(promised).glob("_change_data/*"))
    on_demand.at_rest(promised)
    gone = before - set(folder(promised).glob("_change_data/*"))
    assert len(before) == COMMITS
    assert len(gone) == COMMITS - 11  # the newest eleven are at most ten hours old


@pytest.mark.parametrize(
    ("first", "declared", "kept"),
    [
        pytest.param(12, 168, 12, id="as long as the log goes back"),
        pytest.param(12, 6, 6, id="and no longer than declared"),
        pytest.param(24, 168, 1, id="but an hour in any case"),
        pytest.param(0, 168, 168, id="a log that was never shortened"),
    ],
)
def test_replaced_files_are_kept_while_a_version_has_them(
    promised: Settings, monkeypatch: pytest.MonkeyPatch, first: int, declared: int, kept: int
) -> None:
    monkeypatch.setitem(TABLES, TABLE, TABLES[TABLE]._replace(kept=Kept(COMMITS - first, declared)))
    maintenance.shorten(promised.lake, TABLE, COMMITS - first)
    assert round(change_feeds.files_kept(promised.lake, TABLE) / timedelta(hours=1)) == kept
    before = {file.name for file in folder(promised).glob("*.parquet")}
    on_demand.at_rest(promised)
    (reach,) = change_feeds.reaches(promised)
    for version in range(max(reach.first, COMMITS - max(kept, 10), 1), COMMITS + 1):
        assert DeltaTable(str(folder(promised)), version=version).to_pyarrow_table().num_rows
    gone = before - {file.name for file in folder(promised).glob("*.parquet")}
    assert bool(gone) == bool(first)


def test_a_long_log_has_few_checkpoints_and_every_version(promised: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "THINNED_COMMITS", 8)
    assert maintenance.shorten(promised.lake, TABLE, 1, promised=timedelta(days=2)) == 0
    left = [int(file.name[:20]) for file in folder(promised).glob("_delta_log/*.checkpoint.parquet")]
    assert sorted(left) == [4, 8, 16, 20, 24]
    rows = [DeltaTable(str(folder(promised)), version=version).to_pyarrow_table() for version in range(COMMITS + 1)]
    assert [table.num_rows for table in rows] == [0, *(version // 3 + 1 for version in range(1, COMMITS + 1))]
    assert changes(promised, 0) == list(range(1, COMMITS + 1))


def test_only_golds_current_rows_are_promised(promised: Settings) -> None:
    assert change_feeds.promise(promised, Table.ACTIVITY_CHANGES) == timedelta(0)
    assert change_feeds.promise(promised, Table.PROFILES) == timedelta(0)
    assert change_feeds.promise(promised, Table.DAILY) == timedelta(hours=10)


def test_it_is_told_how_far_they_reach(promised: Settings) -> None:
    assert any(line.endswith("customer_activity, change feed for 10 h") for line in describe.lines(promised))
    assert '"change_feed_hours": 10.0' in json.dumps(describe.as_values(promised))
    assert doctor.reach_of_change_feeds(promised) == "1 of gold reach back 10 h, or to their first version"
    on_demand.at_rest(promised)
    longer = doctor.reach_of_change_feeds(promised.model_copy(update={"change_feed_hours": 24.0}))
    assert isinstance(longer, doctor.Warned)
    assert "gold.customer_activity from version 12 (12 h)" in longer.found
    assert "reads the table as a whole" in longer.remedy
