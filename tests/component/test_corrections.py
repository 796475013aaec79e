"""Silver and gold put right from bronze, and that undone: the rows that differ are replaced, and nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from customer_activity import topology
from customer_activity.catalog import Table, checkpoint_path, table_path
from customer_activity.errors import (
    ChangeFeedLost,
    CorrectionUnfinished,
    LakeOfAnotherRelease,
    LeaseLost,
    SettingsError,
    StorageUnavailable,
    TerminalError,
    TransientError,
)
from customer_activity.lake import corrections, delta, jvm, layout
from customer_activity.lake.corrections import Correction
from customer_activity.operations import recovery
from customer_activity.quality.run import run as judge
from customer_activity.rebuild import basis, finishing, repair
from customer_activity.rebuild.building import Choice
from customer_activity.rebuild.run import rebuild_in
from customer_activity.settings import Settings
from customer_activity.streams.silver import purchases
from support import quality
from support.correcting import applied, corrected, rows_of, undone
from support.corrections import BLANK, count_wrongly
from support.damages import HISTORY, set_, without
from support.dying import Died, dies
from support.pipeline import copied_lake
from support.quality import Rows, Topics, rewrite
from support.records import profile, purchase
from support.streaming import StreamingPipeline
from support.streams import Query
from support.without_jvm import NoSpark

FED = (Table.PURCHASES, Table.PROFILE_CHANGES, Table.ACTIVITY_CHANGES)
CURRENT = (Table.SUMMARIES, Table.PROFILES, Table.ACTIVITY)


@pytest.fixture(scope="module")
def lived(nobody: NoSpark, empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> StreamingPipeline:
    """Make a lake with a bit of everything, once: repeats, a conflict, a tombstone, a stale update, bad records."""
    settings = copied_lake(empty_lake, tmp_path_factory.mktemp("corrections"), max_bad_share=1.0)
    pipeline = StreamingPipeline(nobody, settings)  # type: ignore[arg-type]
    for records in HISTORY:
        pipeline.land(*records)
        pipeline.stream()
    pipeline.publish()
    return pipeline


@pytest.fixture
def pipeline(lived: StreamingPipeline, tmp_path: Path) -> StreamingPipeline:
    """Return one like it, of the test's own."""
    return lived.copied(tmp_path)


def feed_of(lake: str, table: Table) -> list[str]:
    """Return what an outside reader of a table's change feed sees of its newest version."""
    opened = DeltaTable(table_path(lake, table))
    newest = opened.version()
    return sorted(pa.table(opened.load_cdf(newest, newest)).column("_change_type").to_pylist())


def failing(pipeline: StreamingPipeline, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Name the rules of quality that do not pass."""
    with monkeypatch.context() as patch:
        Topics.of(pipeline).serve(patch)
        return quality.failing(judge(pipeline.settings)) - quality.OLD


def contents(pipeline: StreamingPipeline) -> dict[Table, list[dict[str, Any]]]:
    """Return silver's purchases and all current rows; without versions, which count changes."""
    return {
        table: [{**row, "view_version": None} for row in pipeline.rows(table)] for table in (Table.PURCHASES, *CURRENT)
    }


def test_what_differs_is_replaced_and_alone_reaches_consumers(
    pipeline: StreamingPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, lake, before = pipeline.view.latest(), pipeline.settings.lake, contents(pipeline)
    count_wrongly(pipeline.settings.lake, "P-4")
    pipeline.stream()
    assert pipeline.publish().keys() == {"C-1"}

    done = applied(pipeline)
    assert done.rebuilt is not None
    assert done.correction is not None
    assert {table.table: table.differences for table in done.rebuilt.tables if table.differences} == {
        "silver.purchases": 1,
        "gold.activity_changes": 1,
    }
    assert rows_of(done.correction) == {"silver.purchases": (1, 0), "gold.activity_changes": (0, 1)}
    assert feed_of(lake, Table.PURCHASES) == ["delete"]
    assert feed_of(lake, Table.SUMMARIES) == feed_of(lake, Table.ACTIVITY) == ["delete", "insert"]
    assert feed_of(lake, Table.PROFILES) == []
    assert failing(pipeline, monkeypatch) == set()  # before anything of it is out
    assert contents(pipeline) == before
    published = pipeline.publish()
    assert published.keys() == {"C-1"}
    assert {**(published["C-1"] or {}), "viewVersion": 0} == {**right["C-1"], "viewVersion": 0}
    assert rebuild_in(pipeline.spark, pipeline.settings, Choice()).differences == 0
    assert applied(pipeline).correction is None

    repeat = purchase("P-2", "C-2", "2.50", at=9_000)
    pipeline.land(purchase("P-7", "C-1", "7.00"), purchase("P-4", "C-1", "4.00"), repeat, profile("C-2", updated=9_000))
    pipeline.stream()
    assert pipeline.publish().keys() == {"C-1", "C-2"}
    assert failing(pipeline, monkeypatch) == set()

    back = undone(pipeline, done.correction.run)
    assert back.correction is not None
    assert (rows_of(back.correction)["silver.purchases"], back.passed_over) == ((0, 1), 0)
    with pytest.raises(SettingsError, match=f"correction {back.correction.run} came after"):
        undone(pipeline, done.correction.run)
    published = pipeline.publish()
    assert {key: (row or {})["totalAmount"] for key, row in published.items()} == {"C-1": 112.0}
    pipeline.land(purchase("P-8", "C-1", "8.00"))
    pipeline.stream()
    assert (pipeline.publish()["C-1"] or {})["totalAmount"] == 120.0

    again = undone(pipeline, back.correction.run)  # an undoing is a correction, too
    assert again.correction is not None
    assert (pipeline.publish()["C-1"] or {})["totalAmount"] == 20.0
    assert failing(pipeline, monkeypatch) == set()
    assert rebuild_in(pipeline.spark, pipeline.settings, Choice()).differences == 0
    kept = [correction.run for correction in corrections.kept(lake)]
    assert kept == [done.correction.run, back.correction.run, again.correction.run]
    for run in kept:
        corrections.drop(lake, run)
    assert [*Path(lake).rglob("_corrections/*.parquet")] == []


def test_what_came_before_a_correction_that_was_dropped_is_not_undone(pipeline: StreamingPipeline) -> None:
    """What it left is not there any more, and the same rows would come back twice."""
    lake = pipeline.settings.lake
    count_wrongly(lake, "P-4")
    first = corrected(pipeline)
    back = undone(pipeline, first.run)
    assert back.correction is not None
    corrections.drop(lake, back.correction.run)
    assert [kept.run for kept in corrections.kept(lake)] == [first.run]
    with pytest.raises(SettingsError, match=f"correction {back.correction.run} came after {first.run}") as refused:
        undone(pipeline, first.run)
    assert "--undo" not in refused.value.remedy


@pytest.mark.parametrize(
    ("fault", "looks"),
    [
        pytest.param(LeaseLost("silver: another driver has taken over"), 0, id="it slept until another had it"),
        pytest.param(LeaseLost("silver: another driver has taken over"), 1, id="another one took it meanwhile"),
        pytest.param(StorageUnavailable("storage does not answer"), 1, id="whose it is cannot be told"),
    ],
)
def test_a_correction_that_may_be_anothers_turn_does_not_begin(
    fault: Exception, looks: int, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = looks * len(topology.names())
    begun: list[str] = []
    begin = corrections.begin

    def begins(lake: str, correction: Correction) -> None:
        begun.append(correction.run)
        begin(lake, correction)

    monkeypatch.setattr(corrections, "begin", begins)

    def epoch(_query: str) -> int:
        nonlocal left
        if not left:
            raise fault
        left -= 1
        return 1

    with pytest.raises(type(fault)):
        finishing.begin(lake, BLANK, epoch)
    assert corrections.at_work(lake) is None
    assert len(begun) == looks, "a driver that runs is stopped by what it finds, be it there for a moment"


def test_a_correction_is_finished_where_a_stream_was_switched_on_since(
    pipeline: StreamingPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, right = pipeline.settings.lake, contents(pipeline)
    count_wrongly(lake, "P-4")
    with monkeypatch.context() as patch:
        patch.setattr(repair, "finish", lambda *_: dies()("begun"))
        with pytest.raises(Died):
            applied(pipeline)
    topology.switch_on(["daily"])
    try:
        assert repair.apply(pipeline.settings).correction is not None
    finally:
        topology.switch_on([])
    assert corrections.at_work(lake) is None
    assert contents(pipeline) == right


def test_a_correction_of_a_former_release_is_finished_by_that(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    corrections.begin(lake, BLANK)
    monkeypatch.setattr(layout, "CURRENT", layout.CURRENT + 1)
    with pytest.raises(LakeOfAnotherRelease, match="a correction of it was interrupted") as refused:
        repair.apply(Settings(lake=lake))
    assert "the release that began it" in refused.value.remedy


def test_a_record_of_somebody_elses_that_says_it_is_newer_is_overtaken(pipeline: StreamingPipeline) -> None:
    right = pipeline.view.latest()["C-1"]
    foreign = {**right, "address": "Nowhere", "viewVersion": right["viewVersion"] + 1_000_000}
    pipeline.view.values[b"C-1"] = json.dumps(foreign).encode()
    assert rows_of(corrected(pipeline)) == {"gold.activity_changes": (0, 1)}
    published = pipeline.publish()
    assert published.keys() == {"C-1"}
    assert (published["C-1"] or {})["viewVersion"] > foreign["viewVersion"]
    assert {**(published["C-1"] or {}), "viewVersion": 0} == {**right, "viewVersion": 0}
    assert applied(pipeline).correction is None


def test_an_undoing_leaves_what_has_changed_since(pipeline: StreamingPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = pipeline.settings.lake
    count_wrongly(pipeline.settings.lake, "P-4")
    done = corrected(pipeline)
    pipeline.land(purchase("P-X", "C-2", "5.00"))  # whose id is free by now
    pipeline.stream()
    back = undone(pipeline, done.run)
    assert back.passed_over == 1
    assert [row["customer_id"] for row in pipeline.rows(Table.PURCHASES) if row["purchase_id"] == "P-X"] == ["C-2"]
    assert failing(pipeline, monkeypatch) == set()
    assert len(corrections.kept(lake)) == 2


def disorder(rows: Rows) -> Rows:
    """Lose a row and the end of another, and add one of nobody and one whom bronze does not know."""
    rows = [row for row in rows if row["customer_id"] != "C-5" and not row["is_gone"]]
    return [*rows, rows[0] | {"customer_id": None}, rows[0] | {"customer_id": "C-X"}]


def twice(rows: Rows) -> Rows:
    return [*rows, rows[0]]


DAMAGES: dict[str, tuple[Table, Callable[[Rows], Rows | None]]] = {
    "a purchase is lost": (Table.PURCHASES, without("purchase_id", "P-4")),
    "an id is lost": (Table.PURCHASES, set_("purchase_id", "P-4", purchase_id=None)),
    "a purchase is there twice": (Table.PURCHASES, twice),
    "a wrong profile": (Table.PROFILE_CHANGES, set_("customer_id", "C-1", address="Nowhere")),
    "all profiles are lost": (Table.PROFILE_CHANGES, lambda _: []),
    "a wrong row of gold": (Table.ACTIVITY_CHANGES, set_("customer_id", "C-5", address="Nowhere")),
    "gold in disorder": (Table.ACTIVITY_CHANGES, disorder),
    "gold is lost": (Table.ACTIVITY_CHANGES, lambda _: []),
    "a wrong summary": (Table.SUMMARIES, set_("customer_id", "C-1", purchase_count=9)),
    "a summary is there twice": (Table.SUMMARIES, twice),
    "a current profile is lost": (Table.PROFILES, without("customer_id", "C-2")),
    "a current row is lost": (Table.ACTIVITY, without("customer_id", "C-5")),
}
# One of each kind; the others are nightly.
IN_CI = (
    "an id is lost",
    "gold in disorder",
    "a current row is lost",
)


@pytest.mark.parametrize(
    ("table", "damage"),
    [
        pytest.param(*case, id=name, marks=[] if name in IN_CI else pytest.mark.nightly)
        for name, case in DAMAGES.items()
    ],
)
def test_somebody_elses_damage_is_put_right(
    pipeline: StreamingPipeline, monkeypatch: pytest.MonkeyPatch, table: Table, damage: Callable[[Rows], Rows | None]
) -> None:
    right = contents(pipeline)
    rewrite(pipeline.settings.lake, table, damage)
    done = applied(pipeline)
    assert done.rebuilt is not None
    assert done.rebuilt.differences
    assert contents(pipeline) == right
    assert rebuild_in(pipeline.spark, pipeline.settings, Choice()).differences == 0
    pipeline.land(purchase("P-7", "C-1", "7.00"), purchase("P-4", "C-1", "4.00"))
    pipeline.stream()
    if table is Table.ACTIVITY_CHANGES:  # what publish has read of it may not be what was right
        with pytest.raises(ChangeFeedLost, match="activity resync publish"):
            pipeline.publish()
    else:
        assert pipeline.publish().keys() == {"C-1"}
        assert failing(pipeline, monkeypatch) == set()
    assert rebuild_in(pipeline.spark, pipeline.settings, Choice()).differences == 0


def test_current_rows_of_before_a_correction_are_brought_along(pipeline: StreamingPipeline, tmp_path: Path) -> None:
    lake, parts = pipeline.settings.lake, (Table.SUMMARIES.value, checkpoint_path("", Query.SUMMARIES)[1:])
    right = contents(pipeline)
    count_wrongly(pipeline.settings.lake, "P-4")
    pipeline.stream()
    for part in parts:
        shutil.copytree(Path(lake, part), tmp_path / "backup" / part)
    corrected(pipeline)
    for part in parts:
        shutil.rmtree(Path(lake, part))
        shutil.copytree(tmp_path / "backup" / part, Path(lake, part))
    jvm.forget_logs(pipeline.spark)  # as a driver that starts
    with pytest.raises(TerminalError, match="activity rebuild --apply"):
        pipeline.stream()
    corrected(pipeline)
    assert contents(pipeline) == right
    pipeline.stream()
    assert contents(pipeline) == right


def test_what_waits_is_taken_first(pipeline: StreamingPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.land(purchase("P-7", "C-1", "7.00"))
    assert applied(pipeline).correction is None
    assert pipeline.publish().keys() == {"C-1"}


def test_quarantine_follows_what_silver_refuses(pipeline: StreamingPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> list[dict[str, Any]]:
        return [row for row in pipeline.rows(Table.QUARANTINE) if row["reason"] == "conflicting_duplicate"]

    (conflict,) = refused()
    judge_first = purchases.judge

    def lenient(*args: Any) -> list[str]:
        return ["duplicate" if verdict == "quarantined" else verdict for verdict in judge_first(*args)]

    with monkeypatch.context() as patch:
        patch.setattr(purchases, "judge", lenient)
        done = corrected(pipeline)
    assert refused() == []
    assert failing(pipeline, monkeypatch) == set()

    undone(pipeline, done.run)
    (again,) = refused()
    assert {**again, "quarantined_at": None} == {**conflict, "quarantined_at": None}
    assert failing(pipeline, monkeypatch) == set()


def test_checkpoints_can_be_recovered_after_a_correction(
    pipeline: StreamingPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_wrongly(pipeline.settings.lake, "P-4")
    corrected(pipeline)
    for query in (Query.SILVER, Query.GOLD, Query.SUMMARIES):
        recovery.recover(pipeline.settings.lake, query, "the disk was lost")
    pipeline.restart(loses_indexes=True)
    pipeline.land(purchase("P-7", "C-1", "7.00"), purchase("P-4", "C-1", "4.00"))
    pipeline.stream()
    assert pipeline.publish().keys() == {"C-1"}
    assert failing(pipeline, monkeypatch) == set()


def test_of_an_empty_lake_nothing_differs(nobody: NoSpark, lake: str, settings: Settings) -> None:
    pipeline = StreamingPipeline(nobody, settings)  # type: ignore[arg-type]
    assert applied(pipeline).correction is None
    pipeline.land(profile("C-1"), purchase("P-1", "C-1"))
    pipeline.stream()
    assert pipeline.publish().keys() == {"C-1"}


def test_an_interrupted_correction_lets_nothing_begin_and_is_finished(
    pipeline: StreamingPipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lake, right = pipeline.settings.lake, contents(pipeline)
    count_wrongly(pipeline.settings.lake, "P-4")
    pipeline.stream()
    pipeline.publish()
    rewrite(lake, Table.ACTIVITY, twice)

    with monkeypatch.context() as patch:
        patch.setattr(repair, "finish", lambda *_: dies()("begun"))
        with pytest.raises(Died):
            applied(pipeline)

    for done in range(100):
        settings = pipeline.settings.model_copy(update={"lake": str(tmp_path / f"after-{done}")})
        shutil.copytree(lake, settings.lake)
        with repair.streams_kept_out(settings) as fencing_epoch:
            try:
                finishing.finish(settings, fencing_epoch, dies(times=done + 1))
            except Died:
                with pytest.raises(CorrectionUnfinished, match="activity rebuild --apply"):
                    delta.ensure_tables(settings.lake)
                with pytest.raises(CorrectionUnfinished):
                    delta.require_tables(settings.lake)
                finishing.finish(settings, fencing_epoch)
            else:
                break
        other = StreamingPipeline(pipeline.spark, settings)
        assert contents(other) == right
        for table in FED:
            (newest,) = DeltaTable(table_path(settings.lake, table)).history(1)
            assert json.loads(newest["userMetadata"])["operation"] == "correction"
        changes = [(row["customer_id"], row["view_version"]) for row in other.rows(Table.ACTIVITY_CHANGES)]
        assert len(changes) == len(set(changes))
        other.stream()  # each goes on
        assert contents(other) == right
        shutil.rmtree(settings.lake)
    assert done > len(FED) + len(CURRENT)


def test_what_the_live_queries_have_not_read_is_no_rest(pipeline: StreamingPipeline) -> None:
    lake = pipeline.settings.lake
    named = set(topology.tables()) - {Table.QUARANTINE}
    newest = {table.label: DeltaTable(table_path(lake, table)).version() for table in named}
    assert basis.at_rest(lake).versions == newest
    pipeline.land(purchase("P-7", "C-1", "7.00"))
    with pytest.raises(TransientError, match="silver has not read all of bronze"):
        basis.at_rest(lake)


def test_corrections_are_in_the_order_in_which_they_were_made_wherever_the_clock_was(lake: str) -> None:
    """Only the newest can be undone."""
    clock = [datetime(2026, 1, day, tzinfo=UTC) for day in (2, 1, 1)]
    made = []
    for now in clock:
        made.append(corrections.new_run(lake, now))
        corrections.begin(lake, msgspec.structs.replace(BLANK, run=made[-1]))
        corrections.finish(lake, msgspec.structs.replace(BLANK, run=made[-1]))
    assert [correction.run for correction in corrections.kept(lake)] == made
    assert len(set(made)) == len(made)
