"""Every rule against the damage that it is about: an intact lake passes them all, a damaged one fails the one named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from customer_activity.catalog import Reason, Table, table_path
from customer_activity.engine import gate
from customer_activity.lake.failpoints import FailPoint
from customer_activity.quality import pins, verdicts
from customer_activity.quality.run import Report, run
from customer_activity.quality.verdicts import Outcome
from customer_activity.quarantine import replay as replaying
from customer_activity.quarantine.contents import Selection
from customer_activity.quarantine.replay import replay
from customer_activity.settings import Settings
from customer_activity.streams.bronze.bad_share import BadShareGuard
from support.damages import DAMAGES, HISTORY, VIEW_DAMAGES, set_, without
from support.dying import Died, dies
from support.pipeline import Pipeline, copied_lake
from support.quality import OLD, Rows, Topics, failing, rewrite, tell
from support.quick_pipeline import QuickPipeline
from support.records import NOW_MS, PROFILES, PURCHASES, Record, profile, purchase
from support.streams import Query
from support.without_jvm import NoSpark

UNREADABLE = {customer: Record(PROFILES, customer.encode(), b"{", NOW_MS) for customer in ("C-1", "C-2")}
PERSONAL = ("Ada", "Old Street", "New Street")


@dataclass
class Case:
    """A lake of the test's own, and its topics."""

    settings: Settings
    topics: Topics
    monkeypatch: pytest.MonkeyPatch

    def judge(self, *wanted: str) -> Report:
        """Judge rules as the command does."""
        self.topics.serve(self.monkeypatch)
        return run(self.settings, wanted)

    def rewrite(self, table: Table, change: Callable[[Rows], Rows | None]) -> None:
        """Change a table's rows."""
        rewrite(self.settings.lake, table, change)


@pytest.fixture
def case(lived: QuickPipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    more = {"quality_docs": str(tmp_path / "docs"), "max_bad_share": 0.2}
    return Case(copied_lake(Path(lived.settings.lake), tmp_path, **more), Topics.of(lived), monkeypatch)


def test_an_intact_lake_passes_every_rule(case: Case) -> None:
    report = case.judge()
    assert failing(report) <= OLD
    assert len(report.verdicts) > 55
    assert report.held == {}


@pytest.fixture
def pipeline(nobody: NoSpark, lake: str, settings: Settings) -> Pipeline:
    """Return all queries on an empty lake."""
    return QuickPipeline(nobody, settings)  # type: ignore[arg-type]


@pytest.fixture
def streaming(pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], set[str]]:
    """Return what judges a pipeline as it is, in the middle of its work."""
    pipeline.guard = BadShareGuard(1.0)
    settings = pipeline.settings.model_copy(update={"quality_docs": str(tmp_path / "docs"), "max_bad_share": 1.0})

    def judge() -> set[str]:
        Topics.of(pipeline).serve(monkeypatch)
        return failing(run(settings)) - OLD - {"match_rate_is_as_usual"}  # it falls, as few as they are

    return judge


def test_no_alarm_is_given_between_two_hops(pipeline: Pipeline, streaming: Callable[[], set[str]]) -> None:
    pipeline.send(*HISTORY[0])
    pipeline.run()
    pipeline.send(*HISTORY[1], *HISTORY[2])
    for query in Query:
        pipeline.hop(query)
        assert streaming() == set(), f"after {query}"


@pytest.mark.parametrize(
    ("query", "commits"),
    [
        pytest.param(query, n, id=f"{query}, {n}", marks=() if n == in_ci else pytest.mark.nightly)
        for query, in_ci in ((Query.BRONZE, 1), (Query.SILVER, 2))
        for n in (1, 2)
    ],
)
def test_no_alarm_is_given_within_a_batch(
    pipeline: Pipeline, streaming: Callable[[], set[str]], query: Query, commits: int
) -> None:
    pipeline.send(*HISTORY[0])
    pipeline.run()
    pipeline.send(*HISTORY[1], *HISTORY[3])
    for hop in Query:
        if hop is not query:
            pipeline.hop(hop)
            continue
        with pytest.raises(Died):
            pipeline.hop(hop, dies(FailPoint.COMMITTED, times=commits))
        assert streaming() == set()
        pipeline.repeat(hop)
    assert streaming() == set()


@pytest.mark.parametrize("commits", [pytest.param(1, id="quarantine"), pytest.param(2, id="quarantine and profiles")])
@pytest.mark.parametrize(
    "newest",
    [
        pytest.param([profile("C-1", 6_000), profile("C-2", 6_000), UNREADABLE["C-1"]], id="good and bad ones"),
        pytest.param([UNREADABLE["C-1"], UNREADABLE["C-2"]], id="bad ones"),
        pytest.param([profile("C-1", 6_000), profile("C-2", 6_000)], id="good ones"),
    ],
)
def test_no_alarm_is_given_where_kafka_compacted_a_topic_before_a_batch_was_repeated(
    pipeline: Pipeline, streaming: Callable[[], set[str]], newest: list[Record], commits: int
) -> None:
    """What its commits tell then differs: of the second attempt some records are gone, and others are left."""
    pipeline.send(*HISTORY[0])
    pipeline.run()
    pipeline.send(profile("C-1", 5_000, address="1 Old Street"), *UNREADABLE.values(), purchase("P-50", "C-1"), *newest)
    with pytest.raises(Died):
        pipeline.hop(Query.BRONZE, dies(FailPoint.COMMITTED, times=commits))
    pipeline.compact(PROFILES)
    pipeline.repeat(Query.BRONZE)
    pipeline.run()
    assert streaming() == set()


@pytest.mark.parametrize(
    ("silver_has_read", "is_interrupted", "failed"),
    [
        pytest.param(False, False, set(), id="done between two pins"),
        pytest.param(True, True, {"refused_records_are_not_accepted"}, id="interrupted, and silver has gone on"),
    ],
)
def test_a_replay_gives_an_alarm_only_where_it_was_interrupted(
    pipeline: Pipeline,
    streaming: Callable[[], set[str]],
    monkeypatch: pytest.MonkeyPatch,
    *,
    silver_has_read: bool,
    is_interrupted: bool,
    failed: set[str],
) -> None:
    """What is opened after quarantine has a record that is in quarantine as it was opened."""
    pipeline.send(profile("C-1"), purchase("P-1", "C-1"), purchase("P-2", currency="USD"))
    pipeline.run()
    assert streaming() == set()
    dollars = pipeline.settings.model_copy(update={"currency": "USD"})
    of_the_setting = {"purchases_are_in_the_currency"}  # the rules are judged by the one before
    replayed: list[dict[str, int]] = []

    def replay_once() -> None:
        if not replayed:
            replayed.append(replay(dollars, Selection(), "the currency was wrong").accepted)

    def opened(path: str, **how: Any) -> DeltaTable:
        table = DeltaTable(path, **how)
        if path == table_path(dollars.lake, Table.QUARANTINE):
            replay_once()
        return table

    if is_interrupted:
        monkeypatch.setattr(replaying, "_remove", lambda *_: None)
        replay_once()
    if silver_has_read:
        pipeline.hop(Query.SILVER)
    monkeypatch.setattr(pins, "DeltaTable", opened)
    assert streaming() - of_the_setting == failed
    assert replayed == [{PURCHASES: 1}]
    if not is_interrupted:
        pipeline.run()
        assert streaming() == of_the_setting


@pytest.mark.parametrize(("table", "damage", "rule"), DAMAGES.values(), ids=DAMAGES.keys())
def test_damage_to_a_table_is_caught_by_the_rule_about_it(
    case: Case, table: Table, damage: Callable[[Rows], Rows | None], rule: str
) -> None:
    case.rewrite(table, damage)
    across = {"bronze_has_what_the_topics_have", "bronze_has_nothing_else", "tables_have_what_was_counted"}
    report = case.judge("across.completeness" if rule in across else table.value.replace("/", "."))
    assert rule in failing(report)
    assert rule in report.held


@pytest.mark.parametrize(("damage", "rule"), VIEW_DAMAGES.values(), ids=VIEW_DAMAGES.keys())
def test_damage_to_the_view_is_caught_by_the_rule_about_it(
    case: Case, damage: Callable[[Topics], None], rule: str
) -> None:
    damage(case.topics)
    assert rule in failing(case.judge("across.view"))


@pytest.mark.parametrize(
    ("is_newest", "topic", "failed"),
    [
        pytest.param(True, "customer-activity-view", set(), id="its newest row"),
        pytest.param(False, "customer-activity-view", {"view_has_every_row"}, id="a row before"),
        pytest.param(True, "another-topic", {"view_has_every_row"}, id="a row of another topic"),
    ],
)
def test_a_row_may_be_missing_from_the_view_while_it_is_the_one_that_is_too_large(
    case: Case, *, is_newest: bool, topic: str, failed: set[str]
) -> None:
    changes = DeltaTable(table_path(case.settings.lake, Table.ACTIVITY_CHANGES)).to_pyarrow_table().to_pylist()
    newest = max(row["view_version"] for row in changes if row["customer_id"] == "C-2")
    value = json.dumps({"customerId": "C-2", "viewVersion": newest if is_newest else newest - 1})
    held = {"reason": Reason.TOO_LARGE_TO_PUBLISH.value, "key": b"C-2", "value": value.encode(), "topic": topic}
    case.rewrite(Table.QUARANTINE, lambda rows: [*rows, held])
    del case.topics.values[b"C-2"]
    assert failing(case.judge("across.view")) == failed


def test_a_batch_that_counts_wrongly_is_caught(case: Case) -> None:
    note = {"query": Query.SILVER, "generation": "g", "batch_id": 99, "counts": {PURCHASES: {"accepted": 1}}}
    tell(case.settings.lake, Table.PURCHASES, note)
    assert "every_record_is_accounted_for" in failing(case.judge("across.completeness"))


def test_many_refused_records_are_told_and_hold_nothing(case: Case) -> None:
    case.settings = case.settings.model_copy(update={"max_bad_share": 0.01})
    report = case.judge("bronze.quarantine")
    assert failing(report) == {"share_of_refused_records"}
    assert report.held == {}
    (verdict,) = report.failing
    assert "not_json" in " ".join(verdict.looked), "it says what is refused"


def test_a_match_rate_that_falls_is_told_with_the_hour_and_the_customers(case: Case) -> None:
    for _ in range(3):
        case.judge("across.join_match")
    case.rewrite(Table.PROFILE_CHANGES, without("customer_id", "C-2"))
    report = case.judge("across.join_match")
    assert failing(report) == {"match_rate_is_as_usual"}
    (verdict,) = report.failing
    assert "2023-11-14 22:00" in verdict.looked[0]
    assert "C-2" in verdict.looked[0]


def test_results_are_kept_with_the_versions_that_were_judged(case: Case) -> None:
    report = case.judge("gold")
    rows = DeltaTable(verdicts.path(case.settings.lake)).to_pyarrow_table().to_pylist()
    assert {row["run_id"] for row in rows} == {report.run_id}
    assert {row["rule"]: row["outcome"] for row in rows}["one_row_a_customer"] == "passed"
    version = DeltaTable(table_path(case.settings.lake, Table.ACTIVITY)).version()
    assert f'"gold.customer_activity": {version}' in rows[0]["versions"]


def test_no_result_and_no_page_tells_about_a_person(case: Case) -> None:
    case.rewrite(Table.PROFILES, set_("customer_id", "C-2", name=None))
    case.rewrite(Table.ACTIVITY, set_("customer_id", "C-1", address="2 Secret Street"))
    report = case.judge("silver", "gold")
    assert {"profiles_have_names", "rows_follow_their_changes"} <= failing(report)
    pages = [path.read_text(encoding="utf-8") for path in Path(case.settings.quality_docs).rglob("*.html")]
    assert len(pages) > 5
    told = [str(verdict) for verdict in report.verdicts]
    kept = [str(row) for row in DeltaTable(verdicts.path(case.settings.lake)).to_pyarrow_table().to_pylist()]
    for text in (*pages, *told, *kept):
        assert not any(words in text for words in (*PERSONAL, "Secret Street"))


def test_the_gate_opens_with_the_next_pass(case: Case) -> None:
    intact = DeltaTable(table_path(case.settings.lake, Table.ACTIVITY)).version()
    case.rewrite(Table.ACTIVITY, without("customer_id", "C-2"))
    assert set(case.judge("gold").held) == {"rows_follow_their_changes"}
    case.judge("silver")
    assert set(gate.holding(case.settings.lake)) == {"rows_follow_their_changes"}, "another layer's pass opens nothing"
    DeltaTable(table_path(case.settings.lake, Table.ACTIVITY)).restore(intact)
    case.judge("gold")
    assert gate.holding(case.settings.lake) == {}


def test_a_failing_rule_holds_though_results_cannot_be_kept(case: Case) -> None:
    case.rewrite(Table.ACTIVITY, without("customer_id", "C-2"))
    in_the_way = Path(verdicts.path(case.settings.lake))
    shutil.rmtree(in_the_way, ignore_errors=True)
    in_the_way.parent.mkdir(exist_ok=True)
    in_the_way.write_text("no table can be written here", encoding="utf-8")
    with pytest.raises(DeltaError):
        case.judge("gold")
    assert set(gate.holding(case.settings.lake)) == {"rows_follow_their_changes"}


def test_a_column_that_is_gone_is_no_pass(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Great Expectations meets inside, it tells in its result: an expectation that says so even of a success."""

    def told(self: Any, *_: Any, **__: Any) -> Any:
        raise KeyError("inside")

    module = "great_expectations.expectations.core.expect_column_values_to_not_be_null"
    monkeypatch.setattr(f"{module}.ExpectColumnValuesToNotBeNull._validate", told)
    report = case.judge("silver.purchases")
    errors = {v.rule.rule for v in report.verdicts if v.judged.outcome is Outcome.ERROR}
    assert errors == {"purchases_have_ids", "purchases_have_customers"}
    assert errors <= set(report.held)


def test_an_error_inside_is_no_pass(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("inside")

    monkeypatch.setattr("great_expectations.core.batch_definition.BatchDefinition.get_batch", broken)
    report = case.judge("gold")
    assert {verdict.judged.outcome for verdict in report.verdicts} == {Outcome.ERROR}
    assert len(report.held) == len([verdict for verdict in report.verdicts if verdict.rule.severity == "hold"])


def test_a_total_that_cannot_be_told_and_a_key_on_two_partitions_fail_no_rule(
    pipeline: Pipeline, streaming: Callable[[], set[str]]
) -> None:
    most = "9999999999999999.99"
    pipeline.send(*[profile(f"C-{n}") for n in range(9)], purchase("P-1", "C-1", most), purchase("P-2", "C-2"))
    pipeline.run()
    for partition, address in ((0, "first"), (1, "second")):
        pipeline.sent.append(pipeline.log.append(profile("C-3", updated=2_000 + partition, address=address), partition))
        pipeline.send(
            purchase(f"P-1-{partition}", "C-1", most, sent=NOW_MS + 10_000_000),
            profile("C-1", updated=9_000 + partition, address="not shown"),
        )
        pipeline.run()
        assert streaming() == set()
    assert pipeline.gold()["C-3"]["address"] == "second"
    assert pipeline.gold()["C-1"]["purchase_count"] == 1
