"""The rules of freshness: which stream has stopped, and timestamps that say nothing about it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import pytest

from customer_activity.quality import snapshot
from customer_activity.quality.run import Report, run
from customer_activity.settings import Settings
from customer_activity.streams.bronze.bad_share import BadShareGuard
from support.pipeline import Pipeline
from support.quality import Topics, failing
from support.quick_pipeline import QuickPipeline
from support.records import PURCHASES, Record, profile, purchase
from support.streams import Query
from support.without_jvm import NoSpark

NOW = time.time_ns() // 1_000_000
HOUR, DAY = 3_600_000, 86_400_000


@pytest.fixture
def pipeline(nobody: NoSpark, lake: str, settings: Settings) -> Pipeline:
    """Return all queries on an empty lake."""
    made = QuickPipeline(nobody, settings)  # type: ignore[arg-type]
    made.guard = BadShareGuard(1.0)
    return made


def judged(
    pipeline: Pipeline,
    suite: str,
    folder: Path,
    patch: pytest.MonkeyPatch,
    after: int,
    *,
    reading: int = 0,
    pace: Mapping[str, float] = MappingProxyType({}),
) -> Report:
    """Judge a suite so many milliseconds from now, of which reading the view has taken some."""
    topics = Topics.of(pipeline)
    topics.asked_at = lambda: time.time_ns() + (after - reading) * 1_000_000
    topics.serve(patch)
    patch.setattr(snapshot, "time", SimpleNamespace(time_ns=lambda: time.time_ns() + after * 1_000_000))
    return run(pipeline.settings.model_copy(update={"quality_docs": str(folder), **pace}), [suite])


@pytest.mark.parametrize(
    ("stopped", "has_begun", "failed"),
    [
        pytest.param(None, True, set(), id="none"),
        pytest.param(Query.SILVER, True, {"silver_keeps_up"}, id="silver"),
        pytest.param(Query.SILVER, False, {"silver_keeps_up"}, id="silver never ran"),
        pytest.param(Query.GOLD, True, {"gold_keeps_up"}, id="gold"),
        pytest.param(Query.GOLD, False, {"gold_keeps_up"}, id="gold never ran"),
        pytest.param(Query.PUBLISH, True, {"publish_keeps_up"}, id="publish"),
        pytest.param(Query.PUBLISH, False, {"publish_keeps_up"}, id="publish never ran"),
        pytest.param(Query.SUMMARIES, True, {"current_rows_keep_up"}, id="summaries"),
        pytest.param(Query.PROFILES, True, {"current_rows_keep_up"}, id="profiles"),
        pytest.param(Query.ACTIVITY, True, {"current_rows_keep_up"}, id="activity"),
        pytest.param(Query.ACTIVITY, False, {"current_rows_keep_up"}, id="activity never ran"),
    ],
)
def test_a_stream_that_has_stopped_is_told_from_those_around_it(
    pipeline: Pipeline,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stopped: Query | None,
    *,
    has_begun: bool,
    failed: set[str],
) -> None:
    if has_begun:
        pipeline.send(profile("C-1", sent=NOW), purchase("P-1", "C-1", sent=NOW))
        pipeline.run()
    pipeline.send(profile("C-2", sent=NOW), purchase("P-2", "C-2", sent=NOW))
    for query in Query:
        if query is not stopped:
            pipeline.hop(query)
    assert failing(judged(pipeline, "across.freshness", tmp_path, monkeypatch, 0)) == set()
    assert failing(judged(pipeline, "across.freshness", tmp_path, monkeypatch, HOUR)) == failed


def test_a_view_that_takes_long_to_read_is_no_publisher_that_has_stopped(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.send(profile("C-1", sent=NOW), purchase("P-1", "C-1", sent=NOW))
    for query in Query:
        if query is not Query.PUBLISH:
            pipeline.hop(query)
    assert failing(judged(pipeline, "across.freshness", tmp_path, monkeypatch, HOUR, reading=HOUR)) == set()
    assert failing(judged(pipeline, "across.freshness", tmp_path, monkeypatch, HOUR)) == {"publish_keeps_up"}


@pytest.mark.parametrize("pace", ["merge_seconds", "gold_seconds"])
def test_current_rows_may_wait_for_the_next_merge(
    pace: str, pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.send(profile("C-1", sent=NOW), purchase("P-1", "C-1", sent=NOW))
    for query in (Query.BRONZE, Query.SILVER, Query.GOLD, Query.PUBLISH):
        pipeline.hop(query)
    assert failing(judged(pipeline, "across.freshness", tmp_path, monkeypatch, HOUR, pace={pace: 3_600.0})) == set()
    assert failing(judged(pipeline, "across.freshness", tmp_path, monkeypatch, HOUR)) == {"current_rows_keep_up"}


def test_the_table_that_waits_is_named(pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.send(profile("C-1", sent=NOW), purchase("P-1", "C-1", sent=NOW))
    for query in Query:
        if query is not Query.ACTIVITY:
            pipeline.hop(query)
    (verdict,) = judged(pipeline, "across.freshness", tmp_path, monkeypatch, HOUR).failing
    assert len(verdict.looked) == 1
    assert verdict.looked[0].startswith("waits_for gold.customer_activity, seconds 3")


@pytest.mark.parametrize(
    ("sent", "failed"),
    [
        pytest.param((NOW,), False, id="today"),
        pytest.param((NOW - 2 * DAY,), True, id="long ago"),
        pytest.param((NOW, NOW + 900 * DAY), False, id="today and in the future"),
        pytest.param((NOW - 2 * DAY, NOW + 900 * DAY), True, id="long ago and in the future"),
        pytest.param((NOW + 900 * DAY,), False, id="in the future, and has just landed"),
    ],
)
def test_a_timestamp_in_the_future_is_no_sign_of_freshness(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: tuple[int, ...], *, failed: bool
) -> None:
    for number, at in enumerate(sent):
        pipeline.send(profile(f"C-{number}", sent=at), purchase(f"P-{number}", f"C-{number}", sent=at))
    pipeline.run()
    report = judged(pipeline, "across.freshness", tmp_path, monkeypatch, 0)
    assert failing(report) == ({"gold_is_of_today"} if failed else set())


@pytest.mark.parametrize(
    "sent", [pytest.param((), id="nothing read"), pytest.param((NOW + 900 * DAY,), id="in the future")]
)
def test_gold_without_any_input_of_today_ages_from_the_first_landing(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: tuple[int, ...]
) -> None:
    for at in sent or (NOW,):
        pipeline.send(profile("C-1", sent=at))
    for query in Query:
        if sent or query is not Query.GOLD:
            pipeline.hop(query)
    assert "gold_is_of_today" in failing(judged(pipeline, "across.freshness", tmp_path, monkeypatch, 2 * DAY))


def test_a_timestamp_in_the_future_does_not_hide_refused_records(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.send(purchase("P-1", sent=NOW), *[Record(PURCHASES, b"P-2", b"{", NOW)] * 3)
    pipeline.send(purchase("P-3", sent=NOW + 900 * DAY))
    pipeline.run()
    assert "share_of_refused_records" in failing(judged(pipeline, "bronze.quarantine", tmp_path, monkeypatch, 0))
