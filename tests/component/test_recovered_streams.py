"""Streams behind the hot path whose tables are computed again: while others write, after they were off, after repairs.

What is held against the tables afterwards are the queries that the streams declare.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from customer_activity import topology
from customer_activity.catalog import REPLAY, Table, table_path
from customer_activity.checkpoints import checkpoint
from customer_activity.engine import failures
from customer_activity.engine.derived import Computed, Derived, Joined
from customer_activity.engine.queries import RunningQuery
from customer_activity.engine.stream import Context
from customer_activity.errors import EXIT_TERMINAL, ChangeFeedLost, Corrected, ForeignCommit, RowsLost
from customer_activity.lake import delta
from customer_activity.lake.named_operations import Operation
from customer_activity.operations import current_rows, recomputing, recovery
from customer_activity.rebuild.repair import apply_in
from customer_activity.settings import Settings
from customer_activity.streams.registry import STREAMS
from support import tables
from support.corrections import correct
from support.pipeline import Pipeline
from support.proof import proofs
from support.quick_pipeline import QuickPipeline
from support.records import Record, profile
from support.windowed import CHAIN, TABLES, follow, land, world
from support.without_jvm import NoSpark


@pytest.fixture
def windowed(nobody: NoSpark, lake: str, settings: Settings) -> Iterator[Pipeline]:
    """Return the queries with those of windows switched on."""
    topology.switch_on(CHAIN[1:])
    delta.ensure_tables(settings.lake)
    short = settings.model_copy(update={"grace_hours": 3.0})
    yield QuickPipeline(nobody, short)  # type: ignore[arg-type]
    topology.switch_on([])


def assert_proven(pipeline: Pipeline) -> None:
    for check in proofs(pipeline, *TABLES):
        assert check.ok, check


def reprocess(settings: Settings) -> object:
    return recomputing.reprocess(settings, date(2026, 3, 30), "the till was offline")


def recompute(stream: str) -> Callable[[Settings], object]:
    return lambda settings: recomputing.recompute(settings, stream, "it was off for a while")


@pytest.mark.parametrize(
    ("command", "others"),
    [
        pytest.param(recompute("daily"), ["event_time"], id="windows"),
        pytest.param(recompute("event_time"), [], id="the clock and what follows"),
        pytest.param(reprocess, [], id="late purchases"),
    ],
)
def test_what_comes_while_a_table_is_computed_is_read_afterwards(
    windowed: Pipeline, command: Callable[[Settings], object], others: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    records = world(19)
    land(windowed, records[:80], batches=4)
    follow(windowed)
    waiting = [records[at : at + 10] for at in range(80, 120, 10)]
    seen: dict[str, dict[str, int]] = {}
    computed = current_rows.computed_at

    def meanwhile(stream: Derived | Joined, sources: Mapping[Table, DeltaTable | None]) -> Computed:
        """Have the others go on, which the lease does not keep out."""
        seen[stream.spec.name] = {windowed.ids[table]: at.version() for table, at in sources.items() if at is not None}
        found = computed(stream, sources)
        if waiting:
            land(windowed, waiting.pop(0))
            for other in others:
                windowed.hop(other)
        return found

    monkeypatch.setattr(current_rows, "computed_at", meanwhile)
    command(windowed.settings)
    progress = {name: checkpoint.progress(windowed.settings.lake, name) for name in seen}
    assert {name: noted.table_versions for name, noted in progress.items() if noted is not None} == seen
    for left in waiting:
        land(windowed, left)
    windowed.restart()
    follow(windowed)
    assert_proven(windowed)


def shorten_log(lake: str, table: Table) -> None:
    """Leave nothing of a log but its newest version."""
    opened = tables.opened(lake, table)
    opened.create_checkpoint()
    for version in range(opened.version()):
        tables.entry(lake, table, version).unlink()


def remove_replaced_files(lake: str, table: Table) -> None:
    """Compact a table and remove what that has replaced, with the whole log still there: what a quiet lake does."""
    opened = tables.opened(lake, table)
    assert opened.optimize.compact()["numFilesRemoved"]
    assert opened.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


@pytest.mark.parametrize("stream", ["event_time", "daily"])
@pytest.mark.parametrize("lose", [shorten_log, remove_replaced_files])
def test_a_stream_that_was_off_for_too_long_names_what_recovers_it(
    windowed: Pipeline, stream: str, lose: Callable[[str, Table], None]
) -> None:
    settings = windowed.settings
    records = world(37)
    land(windowed, records[:60], batches=3)
    follow(windowed)
    others = [name for name in CHAIN if name != stream]
    for at in range(60, 120, 20):
        land(windowed, records[at : at + 20])
        for other in others:
            windowed.hop(other)
    (source,) = topology.spec(stream).sources
    lose(settings.lake, source)
    windowed.restart()
    with pytest.raises(ChangeFeedLost) as died:
        windowed.hop(stream)
    told = failures.explain(stream, RuntimeError("a batch failed"), died.value, settings, lambda: 1)
    assert type(told) is ChangeFeedLost
    assert told.remedy.startswith(f"`activity recover {stream} --reason …` builds its table again from {source.label}")

    made = recovery.recover(settings.lake, stream, "it was off").rebuilt

    assert made in topology.spec(stream).tables
    windowed.restart()
    follow(windowed)
    assert_proven(windowed)


def test_a_source_that_lacks_rows_of_its_own_recovers_nothing(windowed: Pipeline) -> None:
    land(windowed, world(41), batches=3)
    follow(windowed)
    lake = windowed.settings.lake
    (stamped,) = topology.spec("daily").sources
    for uri in tables.opened(lake, stamped).file_uris():
        Path(uri.removeprefix("file://")).unlink()
    counted = windowed.rows(Table.DAILY)
    with pytest.raises(ChangeFeedLost, match=rf"{stamped.label}: files of version [\s\S]*restore it from a backup"):
        recomputing.recompute(windowed.settings, "daily", "to see")
    assert windowed.rows(Table.DAILY) == counted


@pytest.mark.parametrize("stream", ["summaries", "profiles", "activity", "daily", "weekly"])
def test_a_table_that_has_lost_files_is_told_and_computed_again(windowed: Pipeline, stream: str) -> None:
    lake = windowed.settings.lake
    windowed.send(*(profile(f"C-{number}") for number in range(3)))
    land(windowed, world(43), batches=3)
    windowed.run()
    (table,) = topology.spec(stream).telling
    right = windowed.rows(table)
    assert len(right) > 1
    for uri in tables.opened(lake, table).file_uris():
        Path(uri.removeprefix("file://")).unlink()
    windowed.restart()
    with ExitStack() as resources:
        context = Context(windowed.spark, windowed.settings, windowed.ids, resources)
        query = RunningQuery(stream, partial(STREAMS[stream].open, context), windowed.settings, threading.Event())
        with pytest.raises(RowsLost, match=f"`activity rebuild --stream {stream}`"):
            query.start(available_now=True)
    assert (query.status.state, query.status.exit_code) == ("failed", EXIT_TERMINAL)

    shutil.rmtree(table_path(lake, table))
    recomputing.recompute(windowed.settings, stream, "files were lost")

    assert windowed.rows(table) == right
    windowed.restart()
    land(windowed, world(44))
    windowed.run()
    assert_proven(windowed)


def correct_without_readers(pipeline: Pipeline) -> None:
    """Correct silver, and what is computed from it, while no stream of windows is on."""
    (row,) = (row for row in pipeline.rows(Table.PURCHASES) if row["purchase_id"] == "P-119")
    tables.append(pipeline.settings.lake, Table.PURCHASES, row | {"purchase_id": "P-X"}, query=REPLAY)
    follow(pipeline)
    topology.switch_on(["event_time"])
    assert apply_in(pipeline.spark, pipeline.settings, read=lambda *_: {}).correction is not None
    topology.switch_on(CHAIN[1:])


def unnamed(lake: str, table: Table) -> None:
    """Have a table's newest commit say no more than those of a release before did."""
    entry = tables.entry(lake, table, tables.newest(lake, table))
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for info in (action["commitInfo"] for action in actions if "commitInfo" in action):
        note = json.loads(info["userMetadata"])
        note.pop("operation", None)
        info["userMetadata"] = json.dumps(note)
    entry.write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize("is_of_before", [False, True], ids=["this release", "the release before"])
def test_a_stream_that_was_off_while_its_source_was_recomputed_is_recovered(
    windowed: Pipeline, is_of_before: bool
) -> None:
    settings = windowed.settings
    land(windowed, world(17), batches=6)
    follow(windowed)
    correct_without_readers(windowed)
    said = tables.opened(settings.lake, Table.TIMED_PURCHASES).history(1)[0]
    assert json.loads(said["userMetadata"])["operation"] == Operation.CORRECTION
    if is_of_before:
        unnamed(settings.lake, Table.TIMED_PURCHASES)
    windowed.restart()
    for stream in CHAIN[1:]:
        with pytest.raises(Corrected) as died:
            windowed.hop(stream)
        told = failures.explain(stream, RuntimeError("a batch failed"), died.value, settings, lambda: 1)
        assert told.remedy.startswith(f"`activity recover {stream} --reason …`")
        assert recovery.recover(settings.lake, stream, "it was off").rebuilt
    windowed.restart()
    follow(windowed)
    assert_proven(windowed)


def test_rows_that_somebody_else_took_away_are_foreign_to_a_stream_and_nothing_is_made_of_the_rest(
    windowed: Pipeline,
) -> None:
    land(windowed, world(17), batches=6)
    follow(windowed)
    lake = windowed.settings.lake
    tables.opened(lake, Table.TIMED_PURCHASES).delete("purchase_id = 'P-7'")
    windowed.restart()
    with pytest.raises(ForeignCommit):
        windowed.hop("daily")
    assert recovery.recover(lake, "daily", "to see").rebuilt is None


def withhold(pipeline: Pipeline, record: Record) -> dict[str, Any]:
    """Have a purchase land that silver leaves out, as by a wrong rule; return the row that it should have had."""
    lake = pipeline.settings.lake
    land(pipeline, [record])
    entry = tables.entry(lake, Table.PURCHASES, tables.newest(lake, Table.PURCHASES))
    (row,) = (row for row in pipeline.rows(Table.PURCHASES) if row["purchase_id"] == record.fields()["purchaseId"])
    entry.write_text("\n".join(line for line in entry.read_text().splitlines() if not line.startswith('{"add"')))
    pipeline.spark.forget_logs()  # type: ignore[attr-defined]
    return row


@pytest.mark.parametrize("withheld", [[1], [40], [79, 30], [1, 100]], ids=str)
def test_a_correction_that_only_adds_purchases_is_stamped_in_their_order(
    windowed: Pipeline, withheld: list[int]
) -> None:
    """Event time was off meanwhile. Landings that it has come to cannot be followed once more; others can."""
    settings = windowed.settings
    records = world(43)
    missing = []
    for at in range(0, 80, 10):
        missing += [withhold(windowed, records[number]) for number in withheld if at <= number < at + 10]
        land(windowed, [record for number, record in enumerate(records[at : at + 10], at) if number not in withheld])
    follow(windowed)
    for number in withheld:
        missing += [withhold(windowed, records[number])] if number >= 80 else []
    land(windowed, [record for number, record in enumerate(records[80:], 80) if number not in withheld], batches=2)
    correct(settings.lake, Table.PURCHASES, ("purchase_id",), [], missing)
    windowed.restart()

    with pytest.raises(Corrected) as died:
        windowed.hop("event_time")

    told = failures.explain("event_time", RuntimeError("a batch failed"), died.value, settings, lambda: 1)
    assert told.remedy.startswith("`activity recover event_time --reason …`")
    assert recovery.recover(settings.lake, "event_time", "it was off").rebuilt is Table.TIMED_PURCHASES
    for stream in CHAIN[1:]:
        recovery.recover(settings.lake, stream, "what it follows was recomputed")
    windowed.restart()
    follow(windowed)
    assert_proven(windowed)


def test_a_correction_that_adds_purchases_which_event_time_has_not_come_to_is_followed(windowed: Pipeline) -> None:
    records = world(43)
    land(windowed, records[:60], batches=4)
    follow(windowed)
    missing = withhold(windowed, records[60])
    land(windowed, records[61:], batches=3)
    correct(windowed.settings.lake, Table.PURCHASES, ("purchase_id",), [], [missing])
    windowed.restart()
    follow(windowed)
    assert_proven(windowed)
