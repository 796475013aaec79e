"""Layers that were put back from a backup, any of them: told from a lake whose layers belong together."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from pyarrow import fs

from customer_activity import topology
from customer_activity.catalog import Table, checkpoint_path, table_path
from customer_activity.checkpoints import agreement, checkpoint, offsets
from customer_activity.checkpoints.offsets import OffsetRange
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import CheckpointMismatch
from customer_activity.lake import delta, deltalog, history
from customer_activity.operations import recovery
from support import tables
from support.streams import CURRENT, Query

BRONZE = (Table.PURCHASE_EVENTS, Table.PROFILE_EVENTS)
SILVER = (Table.PURCHASES, Table.PROFILE_CHANGES)
GOLD = (Table.ACTIVITY_CHANGES,)
WRITES = {
    Query.BRONZE: BRONZE,
    Query.SILVER: SILVER,
    Query.GOLD: GOLD,
    Query.SUMMARIES: (Table.SUMMARIES,),
    Query.PROFILES: (Table.PROFILES,),
    Query.ACTIVITY: (Table.ACTIVITY,),
    Query.PUBLISH: (),
}
KAFKA = [json.dumps({"purchase-events": {"0": number}}) for number in range(10)]


class Lake:
    """A lake whose queries are plain commits: a row a table and day."""

    def __init__(self, empty_lake: Path, folder: Path, *, is_of_before: bool = False) -> None:
        """Copy an empty one; `is_of_before` writes notes as the release before did."""
        self.path = str(folder / "lake")
        self.is_of_before = is_of_before
        self.days = 0
        shutil.copytree(empty_lake, self.path)

    def append(self, table: Table, note: dict[str, object], rows: int = 1) -> None:
        tables.commit(self.path, table, note, *[{arrow_schema(table).names[0]: "x"}] * rows)

    def batch(self, query: Query, *, writes: bool = True, counts: Mapping[str, object] | None = None) -> None:
        """Let a query take what there is."""
        sources = topology.spec(query).sources
        opened = {source: tables.opened(self.path, source) for source in sources}
        end = [offsets.after(str(log.metadata().id), log.version()) for log in opened.values()] or [KAFKA[self.days]]
        read = {
            source: deltalog.position(self.path, source, str(log.metadata().id), log.version())
            for source, log in opened.items()
        }
        note: dict[str, object] = {
            "query": query.value,
            "generation": "g-1",
            "batch_id": self.days,
            "cut": {"begin": end, "end": end},
            **({"counts": counts} if counts else {}),
        }
        if not self.is_of_before:
            note |= {"commit": f"{query}-{self.days}-{uuid.uuid4()}"}
            note |= {"read": deltalog.as_note(read)} if read else {}
        for table in WRITES[query] if writes else ():
            self.append(table, note)
        shutil.rmtree(checkpoint_path(self.path, query), ignore_errors=True)
        checkpoint.write(self.path, query, "g-1", self.days, OffsetRange(end, end), is_committed=True)

    def day(self) -> None:
        """Let every query take a batch."""
        self.days += 1
        for query in WRITES:
            self.batch(query)

    def backup(self) -> Path:
        shutil.copytree(self.path, f"{self.path}-backup")
        return Path(f"{self.path}-backup")

    def put_back(self, backup: Path, lost: Sequence[Table], queries: Sequence[Query] = ()) -> None:
        for part in (*lost, *(checkpoint_path("", query)[1:] for query in queries)):
            shutil.rmtree(Path(self.path, part))
            shutil.copytree(backup / part, Path(self.path, part))


@pytest.fixture(params=[False, True], ids=["of this release", "of the release before"])
def lake(request: pytest.FixtureRequest, empty_lake: Path, tmp_path: Path) -> Lake:
    return Lake(empty_lake, tmp_path, is_of_before=request.param)


def check(lake: Lake) -> None:
    recovery.check_agreement(lake.path, list(Query))


@pytest.mark.parametrize(
    ("put_back", "queries", "fault"),
    [
        pytest.param(BRONZE, (), "bronze: .*committed batch 2, and the newest in bronze.* is 1", id="bronze"),
        pytest.param(
            BRONZE[:1], (), r"silver has read bronze.purchase_events up to version 2, and .* version 1", id="one of it"
        ),
        pytest.param(BRONZE, (Query.BRONZE,), "silver has read bronze.purchase_events up to", id="bronze, checkpoint"),
        pytest.param(SILVER, (), "silver.purchases lacks what the checkpoint has read of bronze", id="silver"),
        pytest.param(SILVER[:1], (), "silver.purchases lacks", id="silver.purchases"),
        pytest.param(SILVER[1:], (), "silver.profile_changes lacks", id="silver.profile_changes"),
        pytest.param(SILVER, (Query.SILVER,), "gold has read silver.purchases up to", id="silver, checkpoint"),
        pytest.param(GOLD, (Query.GOLD,), "publish has read gold.activity_changes up to", id="gold, checkpoint"),
        pytest.param(
            GOLD, (Query.GOLD, Query.PUBLISH), "activity has read gold.activity_changes", id="gold, publish's, too"
        ),
        pytest.param((Table.SUMMARIES,), (), "purchase_summaries lacks .*activity recover summ", id="summaries"),
        pytest.param((Table.PROFILES,), (), "silver.customer_profiles lacks .*activity recover prof", id="profiles"),
        pytest.param((Table.ACTIVITY,), (), "gold.customer_activity lacks .*activity recover activity", id="activity"),
        pytest.param((*SILVER, *GOLD, *CURRENT), (), "silver.purchases lacks .*rebuild --apply", id="all but bronze"),
        pytest.param((), tuple(WRITES), "knows of none after 1", id="checkpoints"),
        pytest.param((), (Query.SUMMARIES,), "summaries: .*knows of none after 1", id="a checkpoint"),
        pytest.param((*BRONZE, *SILVER, *GOLD, *CURRENT), tuple(WRITES), None, id="all of one moment"),
    ],
)
def test_layers_put_back_are_refused_by_name(
    lake: Lake, put_back: Sequence[Table], queries: Sequence[Query], fault: str | None
) -> None:
    lake.day()
    backup = lake.backup()
    lake.day()
    check(lake)
    lake.put_back(backup, put_back, queries)
    if fault is None:
        check(lake)
        return
    with pytest.raises(CheckpointMismatch, match=rf"(?s){fault}"):
        check(lake)


@pytest.mark.parametrize("lost", BRONZE, ids=lambda table: table.label)
@pytest.mark.parametrize("began", [True, False], ids=["some of it", "all of it"])
def test_a_table_of_bronze_that_silver_has_not_read_is_told_by_the_other_one(
    empty_lake: Path, tmp_path: Path, lost: Table, began: bool
) -> None:
    lake = Lake(empty_lake, tmp_path)
    if began:
        lake.day()
    backup = lake.backup()
    for _ in range(2):
        lake.days += 1
        lake.batch(Query.BRONZE, counts={"purchase-events": {"accepted": 1}, "customer-profiles": {"accepted": 2}})
    check(lake)
    lake.put_back(backup, [lost])
    with pytest.raises(
        CheckpointMismatch, match=rf"(?s)bronze: {lost.label} lacks what batch {lake.days} .*from one backup"
    ):
        check(lake)


def test_a_batch_of_bronze_that_is_not_through_may_be_in_one_of_its_tables(empty_lake: Path, tmp_path: Path) -> None:
    lake = Lake(empty_lake, tmp_path)
    lake.day()
    cut = OffsetRange([KAFKA[1]], [KAFKA[2]])
    checkpoint.write(lake.path, Query.BRONZE, "g-1", 2, cut, is_committed=False)
    counts = {"purchase-events": {"accepted": 1}, "customer-profiles": {"accepted": 2}}
    note: dict[str, object] = {"query": "bronze", "generation": "g-1", "batch_id": 2, "commit": "b-2", "counts": counts}
    lake.append(BRONZE[0], note)
    check(lake)


def test_gold_put_back_alone_lacks_what_it_has_read(empty_lake: Path, tmp_path: Path) -> None:
    lake = Lake(empty_lake, tmp_path)
    lake.day()
    backup = lake.backup()
    lake.day()
    lake.put_back(backup, GOLD)
    with pytest.raises(CheckpointMismatch, match=r"(?s)gold.activity_changes lacks .*rebuild --apply"):
        check(lake)


@pytest.mark.parametrize("had", [(), ("of before",)], ids=["nothing", "what the release before wrote"])
def test_gold_put_back_to_before_this_release_wrote_to_it_lacks_what_it_has_read(
    empty_lake: Path, tmp_path: Path, had: Sequence[str]
) -> None:
    """And nobody else has read what it lacks."""
    lake = Lake(empty_lake, tmp_path, is_of_before=True)
    for _ in had:
        lake.day()
    backup = lake.backup()
    lake.is_of_before = False
    lake.days += 1
    for query in (Query.BRONZE, Query.SILVER, Query.GOLD):
        lake.batch(query)
    check(lake)
    lake.put_back(backup, GOLD)
    with pytest.raises(CheckpointMismatch, match=r"(?s)gold.activity_changes lacks .*rebuild --apply"):
        check(lake)


def test_gold_of_the_release_before_left_no_commit_with_a_batch_that_changed_nothing(
    empty_lake: Path, tmp_path: Path
) -> None:
    lake = Lake(empty_lake, tmp_path, is_of_before=True)
    lake.day()
    lake.days += 1
    for query in WRITES:
        lake.batch(query, writes=query != Query.GOLD)
    check(lake)


def test_a_table_that_was_put_back_and_has_grown_past_what_was_read_is_another(
    empty_lake: Path, tmp_path: Path
) -> None:
    lake = Lake(empty_lake, tmp_path)
    lake.day()
    backup = lake.backup()
    lake.day()
    lake.put_back(backup, SILVER, [Query.SILVER])
    for _ in range(3):
        lake.batch(Query.SILVER)
    with pytest.raises(CheckpointMismatch, match=r"gold has read silver.purchases up to version 2, .*another commit"):
        check(lake)


def test_a_table_of_another_id_is_another(lake: Lake) -> None:
    lake.day()
    shutil.rmtree(table_path(lake.path, Table.PURCHASES))
    delta.ensure_tables(lake.path)
    lake.batch(Query.SILVER)
    with pytest.raises(CheckpointMismatch, match=r"gold has read silver.purchases with the id"):
        recovery.check_agreement(lake.path, [Query.GOLD])


@pytest.mark.parametrize("query", [Query.BRONZE, Query.SILVER])
def test_quarantine_put_back_lacks_what_a_batch_has_put_there(lake: Lake, query: Query) -> None:
    lake.day()
    note = {"query": query.value, "generation": "g-1", "batch_id": lake.days, "commit": "an attempt"}
    counts = {"purchase-events": {"read": 1, "quarantined": 1}}
    refused: dict[str, object] = {**note, **deltalog_read(lake, query), "counts": counts}
    lake.append(Table.QUARANTINE, refused)
    lake.append(WRITES[query][0], refused)
    check(lake)
    tables.entry(lake.path, Table.QUARANTINE, tables.newest(lake.path, Table.QUARANTINE)).unlink()
    with pytest.raises(CheckpointMismatch, match=f"bronze.quarantine lacks what batch {lake.days} of {query}"):
        check(lake)


@pytest.mark.parametrize("is_of_today", [True, False], ids=["shortened", "put back"])
def test_what_quarantine_s_log_has_no_longer_is_told_by_its_history(lake: Lake, *, is_of_today: bool) -> None:
    """Others have written there since, and silver has not: its commit is in the history alone."""
    lake.day()
    table = Table.QUARANTINE
    for number in range(2):
        lake.append(table, {"query": "publish", "batch_id": number})
    note = {"query": "silver", "generation": "g-1", "batch_id": lake.days, "commit": "an attempt"}
    refused: dict[str, object] = {
        **note,
        **deltalog_read(lake, Query.SILVER),
        "counts": {"purchase-events": {"read": 1, "quarantined": 1}},
    }
    backup = lake.backup()
    lake.append(table, refused)
    lake.append(Table.PURCHASES, refused)
    lake.append(table, {"query": "publish", "batch_id": 9})
    tables.opened(lake.path, table).create_checkpoint()
    newest = tables.newest(lake.path, table)
    gone = [(version, str(tables.entry(lake.path, table, version))) for version in range(newest)]
    history.keep(lake.path, table, gone)
    for _, path in gone:
        Path(path).unlink()
    if is_of_today:
        check(lake)
        return
    lake.put_back(backup, [table])
    with pytest.raises(CheckpointMismatch, match=f"bronze.quarantine lacks what batch {lake.days} of silver"):
        check(lake)


def deltalog_read(lake: Lake, query: Query) -> dict[str, object]:
    """Return the part of a note that says up to where a query's newest batch has read."""
    noted = json.loads(tables.opened(lake.path, WRITES[query][0]).history(1)[0]["userMetadata"])
    return {name: noted[name] for name in ("read", "cut") if name in noted}


@pytest.mark.parametrize("query", WRITES)
def test_a_start_does_not_look_through_long_logs(
    empty_lake: Path, tmp_path: Path, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of current rows keeps some thousand commits, and none of them tells of quarantine."""
    monkeypatch.setattr(agreement, "NEWEST_COMMITS", 5)
    lake = Lake(empty_lake, tmp_path)
    for _ in range(9):
        lake.days += 1
        for each in (query, *([Query.BRONZE] if query != Query.BRONZE else [])):
            lake.batch(each)
    looked: list[int] = []
    said_of = history._said

    def said(files: fs.FileSystem, path: str) -> dict[str, object]:
        looked.append(1)
        return said_of(files, path)

    monkeypatch.setattr(history, "_said", said)
    recovery.check_agreement(lake.path, [query])
    assert len(looked) <= 5 * len(WRITES[query]) + 8
    if query.is_behind:
        assert len(looked) <= 4


def test_a_lake_at_work_belongs_together(lake: Lake) -> None:
    """Readers that are behind, tables that were compacted, queries that have not begun: none of it is a fault."""
    check(lake)
    lake.days += 1
    for query in (Query.BRONZE, Query.SILVER, Query.SUMMARIES):
        lake.batch(query)
        check(lake)
    lake.day()
    for table in (*BRONZE, *SILVER, *GOLD):
        lake.append(table, {"query": "maintenance"}, rows=0)
        tables.opened(lake.path, table).optimize.compact()
    check(lake)
    lake.days += 1
    for query in (query for query in WRITES if query != Query.BRONZE):  # batches of nothing but maintenance
        lake.batch(query, writes=False)
        check(lake)


@pytest.mark.parametrize("is_short", [False, True], ids=["the log reaches back", "the log was shortened"])
def test_current_rows_are_recovered_from_what_there_is(empty_lake: Path, tmp_path: Path, is_short: bool) -> None:
    lake = Lake(empty_lake, tmp_path)
    lake.day()
    backup = lake.backup()
    lake.day()
    lake.day()
    lake.put_back(backup, [Table.SUMMARIES])
    if is_short:
        tables.opened(lake.path, Table.PURCHASES).create_checkpoint()
        for version in range(3):
            tables.entry(lake.path, Table.PURCHASES, version).unlink()
    with pytest.raises(CheckpointMismatch, match="activity recover summaries"):
        check(lake)
    done = recovery.recover(lake.path, Query.SUMMARIES, "a backup was put back")
    assert done.rebuilt == (Table.SUMMARIES if is_short else None)
    check(lake)
