"""Another generation of silver and gold in the place of the live one, and back: only what differs reaches the view."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from customer_activity.catalog import Table, table_path
from customer_activity.errors import SettingsError, SwapUnfinished, TransientError
from customer_activity.lake import delta, generations
from customer_activity.operations import recovery
from customer_activity.quality.judging import Outcome
from customer_activity.quality.run import run as judge
from customer_activity.quarantine.contents import Selection
from customer_activity.quarantine.replay import replay
from customer_activity.rebuild import basis, moving
from customer_activity.rebuild.building import Choice
from customer_activity.rebuild.run import rebuild_in
from customer_activity.rebuild.swap import Swapped, When, back_in, swap_in
from customer_activity.settings import Settings
from customer_activity.streams.silver import purchases
from support.damages import HISTORY, set_
from support.quality import Rows, Topics, rewrite
from support.records import PURCHASES, Record, profile, purchase
from support.streaming import StreamingPipeline
from support.streams import Query

OLD = {"gold_is_of_today", "silver_keeps_up", "gold_keeps_up"}  # records of long ago


@pytest.fixture(scope="module")
def lived(spark: SparkSession, empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> StreamingPipeline:
    """Make a lake with a bit of everything, once: repeats, a conflict, a tombstone, a stale update, bad records."""
    folder = tmp_path_factory.mktemp("swap")
    shutil.copytree(empty_lake, folder / "lake")
    pipeline = StreamingPipeline(spark, Settings(lake=str(folder / "lake"), run_dir=folder / "run", max_bad_share=1.0))
    for records in HISTORY:
        pipeline.land(*records)
        pipeline.stream()
    pipeline.publish()
    return pipeline


@pytest.fixture
def pipeline(lived: StreamingPipeline, spark: SparkSession, tmp_path: Path) -> StreamingPipeline:
    """Return one like it, of the test's own."""
    return lived.copied(spark, tmp_path)


def swapped(pipeline: StreamingPipeline, when: When = When.ALWAYS) -> Swapped:
    return swap_in(pipeline.spark, pipeline.settings, when, read=lambda *_: pipeline.view.values)


def back(pipeline: StreamingPipeline, name: str) -> Swapped:
    return back_in(pipeline.spark, pipeline.settings, name, read=lambda *_: pipeline.view.values)


def failing(pipeline: StreamingPipeline, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Name the rules of quality that do not pass."""
    with monkeypatch.context() as patch:
        Topics.of(pipeline).serve(patch)
        report = judge(pipeline.settings)
    assert [v.judged.found for v in report.verdicts if v.judged.outcome is Outcome.ERROR] == []
    return {verdict.rule.rule for verdict in report.failing} - OLD


def gold(pipeline: StreamingPipeline) -> dict[str, dict[str, Any]]:
    """Return gold's rows by customer, without their versions."""
    rows = pipeline.rows(Table.ACTIVITY)
    return {row.pop("customer_id"): row for row in rows if row.pop("view_version")}


def test_what_differs_is_swapped_when_told_and_alone_reaches_the_view(
    pipeline: StreamingPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, lake = pipeline.view.latest(), pipeline.settings.lake
    rewrite(lake, Table.ACTIVITY_CHANGES, set_("customer_id", "C-5", address="Nowhere"))

    refused = swapped(pipeline, When.IF_EQUAL)
    assert refused.rebuilt is not None
    assert (refused.rebuilt.differences, refused.kept, generations.kept(lake)) == (1, "", [])

    forward = swapped(pipeline)
    assert [kept.name for kept in generations.kept(lake)] == [forward.kept]
    assert failing(pipeline, monkeypatch) == set()  # before anything of it is out
    assert pipeline.publish() == {}  # the topic was right
    assert pipeline.view.latest() == right
    assert rebuild_in(pipeline.spark, pipeline.settings, Choice()).differences == 0

    repeat = purchase("P-2", "C-2", "2.50", at=9_000)
    pipeline.land(purchase("P-7", "C-1", "7.00"), purchase("P-4", "C-1", "4.00"), repeat, profile("C-2", updated=9_000))
    pipeline.stream()
    assert pipeline.publish().keys() == {"C-1", "C-2"}
    assert failing(pipeline, monkeypatch) == set()

    wrong = back(pipeline, forward.kept)
    assert [kept.name for kept in generations.kept(lake)] == [wrong.kept]
    again = pipeline.publish()
    assert {key: (row or {})["address"] for key, row in again.items()} == {"C-5": "Nowhere"}
    assert (again["C-5"] or {})["viewVersion"] > max(row["viewVersion"] for row in right.values())
    pipeline.land(purchase("P-8", "C-1", "8.00"))
    pipeline.stream()
    assert (pipeline.publish()["C-1"] or {})["totalAmount"] == 20.0

    back(pipeline, wrong.kept)
    assert {key: (row or {})["address"] for key, row in pipeline.publish().items()} == {"C-5": "1 Old Street"}
    assert failing(pipeline, monkeypatch) == set()
    assert pipeline.rows(Table.SUMMARIES, "customer_id", "purchase_count")[0] == {
        "customer_id": "C-1",
        "purchase_count": 4,
    }


def disorder(rows: Rows) -> Rows:
    """Lose a row and the end of another, and add one of nobody and one whom bronze does not know."""
    rows = [row for row in rows if row["customer_id"] != "C-5" and not row["is_gone"]]
    return [*rows, rows[0] | {"customer_id": None}, rows[0] | {"customer_id": "C-X"}]


def test_rows_begin_and_end_as_bronze_has_them(pipeline: StreamingPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    right = gold(pipeline)
    rewrite(pipeline.settings.lake, Table.ACTIVITY_CHANGES, disorder)
    pipeline.view.values |= {b"C-2": b"{}", b"C-X": b"{}"}
    del pipeline.view.values[b"C-5"]
    swapped(pipeline)
    assert gold(pipeline) == right
    published = pipeline.publish()
    assert published.keys() == {"C-2", "C-5", "C-X"}
    assert published["C-X"] is None
    assert failing(pipeline, monkeypatch) == set()


def test_what_was_not_out_yet_goes_out(pipeline: StreamingPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.land(purchase("P-7", "C-1", "7.00"))
    done = swapped(pipeline, When.IF_EQUAL)  # it takes what waits first
    assert done.kept
    assert pipeline.publish().keys() == {"C-1"}
    assert failing(pipeline, monkeypatch) == set()


def test_quarantine_follows_what_silver_refuses(pipeline: StreamingPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> list[dict[str, Any]]:
        return [row for row in pipeline.rows(Table.QUARANTINE) if row["reason"] == "conflicting_duplicate"]

    (conflict,) = refused()
    judge_first = purchases.judge

    def lenient(*args: Any) -> list[str]:
        return ["duplicate" if verdict == "quarantined" else verdict for verdict in judge_first(*args)]

    with monkeypatch.context() as patch:
        patch.setattr(purchases, "judge", lenient)
        done = swapped(pipeline)
    assert refused() == []
    assert failing(pipeline, monkeypatch) == set()

    back(pipeline, done.kept)
    (again,) = refused()
    assert {**again, "quarantined_at": None} == {**conflict, "quarantined_at": None}
    assert failing(pipeline, monkeypatch) == set()


def test_checkpoints_can_be_recovered_after_a_swap(
    pipeline: StreamingPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    swapped(pipeline)
    for query in (Query.SILVER, Query.GOLD, Query.SUMMARIES):
        recovery.recover(pipeline.settings.lake, query, "the disk was lost")
    pipeline.restart(loses_indexes=True)
    pipeline.land(purchase("P-7", "C-1", "7.00"), purchase("P-4", "C-1", "4.00"))
    pipeline.stream()
    assert pipeline.publish().keys() == {"C-1"}
    assert failing(pipeline, monkeypatch) == set()


def test_an_empty_lake_is_swapped_too(spark: SparkSession, settings: Settings) -> None:
    pipeline = StreamingPipeline(spark, settings)
    assert swapped(pipeline, When.IF_EQUAL).kept
    pipeline.land(profile("C-1"), purchase("P-1", "C-1"))
    pipeline.stream()
    assert pipeline.publish().keys() == {"C-1"}
    assert rebuild_in(spark, settings, Choice()).differences == 0


class Interrupted(Exception):
    """Raised where the process is to end."""


def interrupts(after: int) -> Callable[[str], None]:
    """Return what ends a swap when so many things are done."""
    left = iter(range(after))

    def reach(_what: str) -> None:
        if next(left, None) is None:
            raise Interrupted

    return reach


def test_an_interrupted_swap_lets_nothing_begin_and_is_finished(
    pipeline: StreamingPipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lake = pipeline.settings.lake
    rewrite(lake, Table.ACTIVITY_CHANGES, set_("customer_id", "C-5", address="Nowhere"))
    former = {table: delta.table_id(lake, table) for table in generations.REBUILT}

    def end(_settings: Settings) -> str:
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(moving, "finish", end)
        patch.setattr(purchases, "judge", lambda records, _: ["accepted" for _ in records])  # so that conflicts go, too
        with pytest.raises(Interrupted):
            swapped(pipeline)

    for done in range(100):
        settings = pipeline.settings.model_copy(update={"lake": str(tmp_path / f"after-{done}")})
        shutil.copytree(lake, settings.lake)
        try:
            moving.finish(settings, interrupts(done))
        except Interrupted:
            with pytest.raises(SwapUnfinished, match="activity rebuild --swap"):
                delta.ensure_tables(settings.lake)
            with pytest.raises(SwapUnfinished):
                delta.require_tables(settings.lake)
            kept = moving.finish(settings)
        else:
            break
        delta.ensure_tables(settings.lake)
        live = {table: delta.table_id(settings.lake, table) for table in generations.REBUILT}
        out = str(generations.folder(settings.lake, kept))
        assert {table: delta.table_id(out, table) for table in generations.REBUILT} == former
        assert not set(live.values()) & set(former.values())
        assert not generations.folder(settings.lake, generations.NEXT).exists()
        held = DeltaTable(table_path(settings.lake, Table.QUARANTINE)).to_pyarrow_table().column("reason").to_pylist()
        assert held == ["not_json"]
        shutil.rmtree(settings.lake)
    assert done > len(generations.parts())


def test_what_the_live_queries_have_not_read_is_no_rest(pipeline: StreamingPipeline) -> None:
    lake = pipeline.settings.lake
    assert basis.at_rest(lake).versions == {
        table.label: DeltaTable(table_path(lake, table)).version()
        for table in (*basis.LANDED_OF, *basis.LANDED_OF.values(), Table.ACTIVITY_CHANGES)
    }
    pipeline.land(purchase("P-7", "C-1", "7.00"))
    with pytest.raises(TransientError, match="silver has not read all of bronze"):
        basis.at_rest(lake)


def test_a_generation_that_lacks_replayed_records_does_not_come_back(pipeline: StreamingPipeline) -> None:
    pipeline.land(Record(PURCHASES, b"P-7", purchase("P-7", "C-1", currency="CHF").value))
    done = swapped(pipeline)
    francs = pipeline.settings.model_copy(update={"currency": "CHF"})
    assert replay(francs, Selection(), "the currency was changed").accepted
    with pytest.raises(SettingsError, match="lacks records that were let out of quarantine"):
        back(pipeline, done.kept)
    assert [kept.name for kept in generations.kept(pipeline.settings.lake)] == [done.kept]
