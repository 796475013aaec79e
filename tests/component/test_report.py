"""The report: right figures from commits, bounded however long a log is, and a page that needs nothing else."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from customer_activity import cli
from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import SettingsError
from customer_activity.lake import merging, named_operations
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.lake.named_operations import Operation
from customer_activity.maintenance import maintenance
from customer_activity.quality import results
from customer_activity.quality.judging import Judged
from customer_activity.quality.verdicts import Outcome
from customer_activity.report import commits, figures
from customer_activity.report.figures import Figures
from customer_activity.report.page import ERROR, PASSED, render
from customer_activity.settings import Settings
from support import tables
from support.reports import rule
from support.shell import environment
from support.streams import Query

BEGIN = int(datetime(2026, 1, 2, 12, tzinfo=UTC).timestamp() * 1000)
MINUTE = 60_000
PURCHASES, PROFILES = "purchase-events", "customer-profile-state"
HOSTILE = "<script>alert(1)</script>\x1b[2J"


@pytest.fixture
def reported(lake: str, settings: Settings) -> Settings:
    """Return a lake with an hour of landings, one every ten minutes, merges into gold, and two quality runs."""
    for table in Table:
        if DeltaTable.is_deltatable(table_path(lake, table)):
            tables.date(lake, table, BEGIN - 60 * MINUTE)
    for number in range(7):
        at = BEGIN + 10 * number * MINUTE
        note = {
            "generation": "g",
            "batch_id": number,
            "counts": {PURCHASES: {"read": 600, "quarantined": number}, PROFILES: {"read": 30}},
            "by_reason": {"good": 630 - number, "wrong_type": number},
        }
        early = {**note, "counts": {PURCHASES: {"read": 600}}}  # what the first commit of a batch knows
        for table, told in ((Table.PURCHASE_EVENTS, early), (Table.PROFILE_EVENTS, note)):
            tables.append(lake, table, {"offset": number}, query=Query.BRONZE, **told)
            tables.date(lake, table, at)
        merge(lake, number, at, behind=1_000 + 500 * number)
    for number, matched in enumerate((0.5, 0.75)):
        keep(lake, BEGIN + number * 30 * MINUTE, f"run-{number}", matched, is_bad=bool(number))
    return settings


def merge(lake: str, number: int, at: int, *, behind: int) -> None:
    row = {
        "customer_id": "C-1",
        "total_amount": Decimal(number),
        "view_version": number,
        "as_of": datetime.fromtimestamp((at - behind) / 1000, UTC),
    }
    source = pa.Table.from_pylist([row], arrow_schema(Table.ACTIVITY))
    merging.merge(source, lake, Table.ACTIVITY, MicroBatch(Query.ACTIVITY, "g", number), key=["customer_id"])
    tables.date(lake, Table.ACTIVITY, at)


def keep(lake: str, at: int, run: str, matched: float, *, is_bad: bool) -> None:
    judged = [
        (rule("purchases_with_a_profile"), Judged(Outcome.PASSED, matched, str(matched), (), None), 0.1),
        (rule("hostile"), Judged(Outcome.FAILED if is_bad else Outcome.PASSED, None, HOSTILE, (), None), 0.1),
    ]
    results.append(lake, run, datetime.fromtimestamp(at / 1000, UTC), judged, {})


def test_it_has_what_commits_and_runs_tell(reported: Settings) -> None:
    found = figures.collect(reported, 24)
    assert (found.begin, found.end) == (BEGIN - 60 * MINUTE, BEGIN + 60 * MINUTE)
    assert found.landed == 7 * 630
    assert found.refused == {"wrong_type": sum(range(7))}
    of_gold, *_ = (series for series in found.freshness if series.name == "gold.customer_activity")
    assert [point.value for point in of_gold.points] == [1 + number / 2 for number in range(7)]
    width = (found.end - found.begin) / figures.BUCKETS / 1000
    landed = {each.name: round(sum(point.value for point in each.points) * width) for each in found.throughput}
    assert landed == {PURCHASES: 7 * 600, PROFILES: 7 * 30}
    assert [point.value for point in found.match_rate.points] == [0.5, 0.75]
    assert [[result.outcome for result in run] for run in found.runs] == [["passed", "passed"], ["passed", "failed"]]
    (bronze,) = (table for table in found.tables if table.table == "bronze.purchase_events")
    assert (bronze.rows, bronze.files, bronze.rows_a_day) == (7, 7, 7 * 24 / 2)
    assert found.notes == []


def test_a_correction_is_no_merge_that_came_late(reported: Settings) -> None:
    before = figures.collect(reported, 24).freshness
    old = {
        "customer_id": "C-2",
        "total_amount": Decimal(1),
        "view_version": 1,
        "as_of": datetime(2025, 1, 1, tzinfo=UTC),
    }
    with named_operations.fenced(reported.lake, Operation.CORRECTION, [Table.ACTIVITY], "wrong cents", rows=1) as fence:
        write_deltalake(
            table_path(reported.lake, Table.ACTIVITY),
            pa.Table.from_pylist([old], arrow_schema(Table.ACTIVITY)),
            mode="append",
            commit_properties=fence.properties(Table.ACTIVITY),
        )
    tables.date(reported.lake, Table.ACTIVITY, BEGIN + 65 * MINUTE)
    assert [
        (each.name, [point.value for point in each.points]) for each in figures.collect(reported, 24).freshness
    ] == [(each.name, [point.value for point in each.points]) for each in before]


def test_it_goes_back_as_far_as_it_is_told_to(reported: Settings) -> None:
    found = figures.collect(reported, 0.5)
    assert found.begin == BEGIN + 30 * MINUTE
    assert found.landed == 4 * 630
    assert len(found.runs) == 1


def test_what_has_left_the_log_is_told_all_the_same(reported: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    before = figures.collect(reported, 24)
    monkeypatch.setattr(maintenance, "needed_from", lambda *_: {})
    for table in (Table.PURCHASE_EVENTS, Table.PROFILE_EVENTS):
        tables.opened(reported.lake, table).create_checkpoint()
        assert maintenance.shorten(reported.lake, table, 0) == 7
    after = figures.collect(reported, 24)
    for name in ("landed", "refused", "throughput", "freshness", "begin", "end"):
        assert getattr(after, name) == getattr(before, name), name


def test_however_long_a_log_is_so_many_commits_are_read(reported: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "MOST_COMMITS", 3)
    found = figures.collect(reported, 24)
    assert found.landed == 3 * 630
    assert found.begin == BEGIN + 40 * MINUTE
    assert found.notes[0] == "bronze.purchase_events: its newest 3 commits were read, back to 2026-01-02 12:40:00"


def test_however_many_merges_there_are_some_are_looked_at(reported: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "MOST_ENTRIES", 3)
    looked_at = [at for at, _ in commits.sampled(reported.lake, Table.ACTIVITY, BEGIN)]
    assert looked_at == [BEGIN + minutes * MINUTE for minutes in (60, 30, 0)]


def test_of_one_lake_there_is_one_page(reported: Settings) -> None:
    first, second = (render(figures.collect(reported, 24)) for _ in range(2))
    assert first == second


class Page(HTMLParser):
    """A page's tags, and the texts that are shown."""

    def __init__(self, page: str) -> None:
        """Read a page."""
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        """Note a text."""
        self.text += f" {data}"


@pytest.fixture
def page(reported: Settings) -> Page:
    return Page(render(figures.collect(reported, 24)))


def test_the_page_needs_nothing_else_and_runs_nothing(page: Page) -> None:
    assert not {"script", "link", "img", "iframe", "object", "form", "a"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in ("src", "href", "srcset", "action") or name[:2] == "on"]
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes
    assert "url(" not in page.text
    assert page.tags.count("svg") == 3


def test_what_the_data_says_is_text(page: Page) -> None:
    assert "<script>alert(1)</script>" in page.text
    assert "\x1b" not in page.text


def test_the_page_says_what_is_asked(page: Page) -> None:
    words = " ".join(page.text.split())
    for expected in (
        "2.5 s median; 4.0 s in the worst interval",
        "4,410",
        "75.0 % by 2 quality runs",
        "21 0.5 % of what landed",
        "1 of 2 at 2026-01-02 12:30:00",
        "wrong_type 21",
        "bronze.purchase_events 7 7",
    ):
        assert expected in words, expected


def test_outcomes_are_those_of_quality() -> None:
    assert {PASSED, ERROR} == {Outcome.PASSED, Outcome.ERROR}


def test_an_empty_lake_has_a_page_too(lake: str, settings: Settings) -> None:
    words = " ".join(Page(render(figures.collect(settings, 24))).text.split())
    assert "Nothing landed in this span." in words
    assert "Quality did not run in this span" in words


def test_the_command_writes_the_page_or_prints_the_figures(
    reported: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in environment(reported).items():
        monkeypatch.setenv(name, value)
    runner = CliRunner()
    assert runner.invoke(cli.app, ["report"]).output.strip() == f"report: {reported.quality_docs}/report.html"
    assert Path(reported.quality_docs, "report.html").exists()
    monkeypatch.setenv("ACTIVITY_QUALITY_URL", "https://dq.example.org")
    assert runner.invoke(cli.app, ["report"]).output.strip() == "report: https://dq.example.org/report.html"
    told = runner.invoke(cli.app, ["report", "--json", "--out", str(tmp_path / "other.html")])
    assert json.loads(told.stdout)["landed"] == 7 * 630
    assert (tmp_path / "other.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_without_a_lake_it_says_so(settings: Settings) -> None:
    with pytest.raises(SettingsError, match="there are no tables at"):
        figures.collect(settings, 24)


def test_as_data_it_is_plain(reported: Settings) -> None:
    found: Figures = figures.collect(reported, 24)
    assert json.loads(json.dumps(figures.as_data(found)))["refused"] == {"wrong_type": 21}
