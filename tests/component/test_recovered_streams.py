"""Streams behind the hot path whose tables are computed again: while others write, after they were off, after repairs.

What is held against the tables afterwards are the queries that the streams declare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date

import pytest
from deltalake import DeltaTable

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.checkpoints import checkpoint
from customer_activity.engine.derived import Computed, Derived, Joined
from customer_activity.lake import delta
from customer_activity.operations import current_rows, recomputing
from customer_activity.settings import Settings
from support.pipeline import Pipeline
from support.proof import proofs
from support.quick_pipeline import QuickPipeline
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
