"""What the live run shows, and one-liners that work."""

from __future__ import annotations

import sys
from collections import deque
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from rich.console import Console

from customer_activity.catalog import Table, table_path
from customer_activity.demo.run import changes, live, queries, view
from customer_activity.demo.run.changes import Change
from customer_activity.inspection import tables
from customer_activity.settings import Settings
from support.run_reports import gold, report


class TestView:
    FRAME = view.Frame(
        23.4,
        report(1500, gold(801, 3), lag=42),
        "real purchases",
        2000,
        "first gold row after 21 s",
        17,
        (Change("C-1", 3, Decimal("12.50"), "gold", 9), Change("C-2", None, None, None, None)),
    )

    def test_the_screen_shows_input_layers_and_customers(self) -> None:
        console = Console(width=120, force_terminal=False)
        with console.capture() as captured:
            console.print(view.screen(self.FRAME))
        shown = captured.get()
        for words in (
            "1,500 of 2,000 purchases",
            "42 records",
            "42 s behind",
            "801",
            "current",
            "12.50",
            "removed",
            "after 21 s",
        ):
            assert words in shown

    def test_a_line_shows_the_same_in_a_log(self) -> None:
        line = view.line(self.FRAME)
        for words in (
            "23 s",
            "1,500",
            "bronze 0 (42 records to read, 42 s behind)",
            "gold 801",
            "publish 17",
            "summaries 0",
            "activity 801",
        ):
            assert words in line
        assert "\n" not in line

    def test_lines_come_every_few_seconds_and_the_last_always(self) -> None:
        console = Console(width=300, force_terminal=False)
        with console.capture() as captured, live.shown(console) as show:
            for second in range(9):
                show(self.FRAME._replace(seconds=float(second)))
        lines = captured.get().splitlines()
        assert lines.pop(1) == "first gold row after 21 s"
        assert [line.split()[0] for line in lines] == ["0", "5", "8"]

    @pytest.mark.parametrize(
        ("before", "now", "sentence"),
        [
            pytest.param(None, None, "", id="no gold yet"),
            pytest.param(gold(0, 0), gold(0, 0), "", id="an empty table"),
            pytest.param(gold(0, 0), gold(5, 1), "first gold row after 12 s", id="the first row"),
            pytest.param(gold(5, 7), gold(5, 7), "", id="gold from an earlier run"),
            pytest.param(gold(5, 7), gold(5, 8), "first change of gold after 12 s", id="a change of it"),
        ],
    )
    def test_when_gold_first_moved(
        self, before: tables.Contents | None, now: tables.Contents | None, sentence: str
    ) -> None:
        assert live.sentence_about_gold(report(0, before), report(0, now), 12.0) == sentence


class TestChanges:
    def test_a_record_is_shown_without_anything_personal(self) -> None:
        value = (
            b'{"customerId": "C-1", "name": "Ann", "email": "a@b.c", "address": "Street 1", "loyaltyStatus": "gold", '
            b'"purchaseCount": 3, "totalAmount": 12.50, "viewVersion": 9}'
        )
        assert changes.parse(b"C-1", value) == Change("C-1", 3, Decimal("12.50"), "gold", 9)

    def test_a_null_value_is_a_row_that_was_removed(self) -> None:
        assert changes.parse(b"C-1", None) == Change("C-1", None, None, None, None)

    def test_a_customer_is_shown_once_and_only_the_newest_few(self) -> None:
        newest: deque[Change] = deque(maxlen=2)
        for customer_id, version in (("C-1", 1), ("C-2", 2), ("C-1", 3), ("C-3", 4)):
            changes.show(newest, Change(customer_id, 0, Decimal(0), None, version))
        assert [(change.customer_id, change.view_version) for change in newest] == [("C-1", 3), ("C-3", 4)]


class TestQueries:
    COLUMNS = ("customer_id", "loyalty_status", "purchase_count", "total_amount")

    @pytest.fixture
    def programs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
        monkeypatch.chdir(tmp_path)
        settings = Settings(lake="var/lake")
        rows = [("C-1", "gold", 2, Decimal("3.50")), ("C-2", "silver", 3, Decimal("91.25"))]
        table = pa.table(dict(zip(self.COLUMNS, zip(*rows, strict=True), strict=True)))
        write_deltalake(table_path(settings.lake, Table.ACTIVITY), table)
        return {query.engine: query.command for query in queries.one_liners(settings, tmp_path)}

    def test_paths_are_those_below_the_folder(self, programs: dict[str, str]) -> None:
        assert all("'var/lake/gold/customer_activity'" in command for command in programs.values())
        assert queries.near("s3a://bucket/lake", Path("/")) == "s3a://bucket/lake"
        assert queries.near("/elsewhere/lake", Path("/here")) == "/elsewhere/lake"

    def test_where_s3_is_is_told_to_those_that_do_not_know_our_settings(self) -> None:
        settings = Settings(lake="s3a://bucket/lake", s3_endpoint="http://minio:9000", s3_path_style=True)
        commands = {query.engine: query.command for query in queries.one_liners(settings, Path("/"))}
        assert {engine for engine, command in commands.items() if "AWS_ENDPOINT=http://minio:9000 " in command} == {
            "DuckDB",
            "Polars",
            "pandas",
        }
        on_aws = queries.one_liners(Settings(lake="s3a://bucket/lake"), Path("/"))
        assert not [query.engine for query in on_aws if "AWS_" in query.command]

    @pytest.mark.parametrize("engine", ["DuckDB", "Polars", "pandas"])
    def test_a_one_liner_prints_the_most_first(
        self, programs: dict[str, str], engine: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        if engine == "DuckDB":
            pytest.importorskip("duckdb")
        python, option, program = programs[engine].split(" ", 2)
        assert (python, option, program[0], program[-1]) == (sys.executable, "-c", '"', '"')
        assert not set(program[1:-1]) & set('"$`\\!')  # nothing that a shell would read between double quotes
        exec(program[1:-1], {})  # noqa: S102 - the very text that is printed
        printed = capsys.readouterr().out
        assert printed.index("silver") < printed.index("gold")
        assert "91.25" in printed
