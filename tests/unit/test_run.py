"""The live run's parts: processes that are found and ended, what is shown, and one-liners that work."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from rich.console import Console

from customer_activity import catalog
from customer_activity.catalog import PROFILES_ROLE, PURCHASES_ROLE, Query, Table
from customer_activity.errors import EXIT_TRY_AGAIN, ActivityError, EnvironmentFault, TransientError
from customer_activity.inspection import tables, topics
from customer_activity.inspection.status import QueryReport, Report
from customer_activity.inspection.topics import Topic
from customer_activity.observability import QueryStatus
from customer_activity.run import changes, live, parts, processes, queries, view
from customer_activity.run.changes import Change
from customer_activity.settings import Settings

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
WAIT_SECONDS = 10.0
NO_PROCESS = 2**22 + 1  # above the greatest process number that Linux gives out

STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, __file__, "daemon"], process_group=0) if len(sys.argv) == 1 else None
print("ready", flush=True)
while True: time.sleep(1)
"""
POLITE = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("goodbye", flush=True), sys.exit(0)))
print("ready", flush=True)
while True: time.sleep(1)
"""
FAILING = (
    'import sys; print("INFO started"); print("error: too many bad records\\n  → look at quarantine"); sys.exit(2)'
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(lake=str(tmp_path / "lake"), run_dir=tmp_path / "run", kafka_bootstrap_servers="localhost:1")


@pytest.fixture
def start(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, str], subprocess.Popen[bytes]]]:
    """Start a program in the place of one of our commands; what is left of it is killed after the test."""
    begun = []

    def program(source: str, name: str) -> subprocess.Popen[bytes]:
        script = tmp_path / f"{processes.PACKAGE}_{name}.py"  # its command line names the package, as ours do
        script.write_text(source)
        monkeypatch.setattr(processes, "command", lambda *_: [sys.executable, str(script)])
        begun.append(processes.start(settings, name, []))
        return begun[-1]

    yield program
    for child in begun:
        processes.stop(child.pid, seconds=0)
        child.wait(WAIT_SECONDS)


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.01)


def says(settings: Settings, name: str, word: str, times: int = 1) -> Callable[[], bool]:
    return lambda: processes.log_path(settings, name).read_text().count(word) >= times


class TestProcesses:
    def test_a_polite_process_ends_by_itself(
        self, settings: Settings, start: Callable[[str, str], subprocess.Popen[bytes]]
    ) -> None:
        child = start(POLITE, "stream")
        wait_for(says(settings, "stream", "ready"))
        assert processes.running(settings, "stream") is not None
        assert os.getsid(child.pid) == child.pid  # Ctrl-C in a terminal does not reach it

        assert processes.stop(child.pid, seconds=WAIT_SECONDS)

        assert processes.running(settings, "stream") is None
        assert says(settings, "stream", "goodbye")()

    def test_a_stubborn_process_is_killed_with_what_left_its_group(
        self, settings: Settings, start: Callable[[str, str], subprocess.Popen[bytes]]
    ) -> None:
        child = start(STUBBORN, "stream")
        wait_for(says(settings, "stream", "ready", times=2))
        members = processes.family(child.pid)
        assert len(members) == 2

        assert not processes.stop(child.pid, seconds=0.05)

        assert [member for member in members if processes.is_running(member)] == []

    def test_what_a_dead_leader_left_behind_is_found(
        self, settings: Settings, start: Callable[[str, str], subprocess.Popen[bytes]]
    ) -> None:
        child = start(STUBBORN, "stream")
        wait_for(says(settings, "stream", "ready", times=2))
        child.kill()
        child.wait(WAIT_SECONDS)

        assert parts.stream_pids(settings) == []
        assert parts.stream_pids(settings, left_overs=True) == [child.pid]
        assert len(processes.family(child.pid)) == 1

        processes.stop(child.pid, seconds=0)
        assert processes.family(child.pid) == []

    def test_a_number_that_went_to_another_program_is_not_ours(self, settings: Settings) -> None:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
            settings.run_dir.mkdir()
            processes.pid_path(settings, "stream").write_text(str(stranger.pid))
            assert processes.running(settings, "stream") is None
            assert parts.stream_pids(settings, left_overs=True) == []
            assert not processes.family(stranger.pid)
            assert psutil.pid_exists(stranger.pid)
            stranger.kill()

    @pytest.mark.parametrize("written", [None, "", "soon", str(NO_PROCESS)])
    def test_a_pid_file_without_a_process_is_nothing(self, settings: Settings, written: str | None) -> None:
        if written is not None:
            settings.run_dir.mkdir()
            processes.pid_path(settings, "stream").write_text(written)
        assert processes.running(settings, "stream") is None
        assert parts.stream_pids(settings, left_overs=True) == []

    def test_the_log_before_is_kept(
        self, settings: Settings, start: Callable[[str, str], subprocess.Popen[bytes]]
    ) -> None:
        for word in ("first", "second"):
            start(f"print('{word}')", "produce").wait(WAIT_SECONDS)
        log = processes.log_path(settings, "produce")
        assert (log.with_name("produce.log.1").read_text(), log.read_text()) == ("first\n", "second\n")

    @pytest.mark.parametrize(
        ("logged", "words"),
        [
            pytest.param("", "", id="nothing"),
            pytest.param("one\n\ntwo\nthree\nfour\n", "two\nthree\nfour", id="no error: the end"),
            pytest.param(
                "one\nerror: full\n  → free some\nbye", "error: full\n  → free some\nbye", id="an error of ours"
            ),
            pytest.param(
                f"{processes.TRACEBACK}:\n  File x\nFault: java.lang.No: x\n\tat a.b(C:1)\n\tat d\n\t... 3 more",
                f"{processes.TRACEBACK}:\n  File x\nFault: java.lang.No: x",
                id="a traceback without the JVM's frames",
            ),
            pytest.param(
                f"error: old\n╭─ {processes.TRACEBACK} ─╮\n│ x │\n╰──╯\nFault: no\n        at a.b\n: Cause",
                "Fault: no\n: Cause",
                id="a drawn traceback",
            ),
        ],
    )
    def test_last_lines_say_what_went_wrong(self, settings: Settings, logged: str, words: str) -> None:
        assert processes.last_lines(settings, "stream", 3) == ""
        settings.run_dir.mkdir()
        processes.log_path(settings, "stream").write_text(logged)
        assert processes.last_lines(settings, "stream", 3) == words


class TestParts:
    def test_a_port_that_is_not_kafkas_is_said(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(topics, "REQUEST_SECONDS", 0.2)
        (tmp_path / "jars" / "broker").mkdir(parents=True)
        (tmp_path / "jars" / "broker" / "kafka_2.13-0.jar").touch()
        with socket.create_server(("127.0.0.1", 0)) as other, ExitStack() as started:
            port = other.getsockname()[1]
            settings = Settings(
                kafka_bootstrap_servers=f"localhost:{port}", jars_dir=tmp_path / "jars", broker_dir=tmp_path / "broker"
            )
            with pytest.raises(EnvironmentFault, match=f"port {port} .*is taken"):
                parts.start_broker(settings, Console(), started)

    def test_a_part_that_failed_hands_on_its_exit_code_and_words(
        self, settings: Settings, start: Callable[[str, str], subprocess.Popen[bytes]]
    ) -> None:
        child = start(FAILING, "stream")
        child.wait(WAIT_SECONDS)
        with pytest.raises(ActivityError, match="too many bad records") as caught:
            parts.check_stream(settings, child)
        assert caught.value.exit_code == 2
        assert "INFO started" not in caught.value.what
        assert str(processes.log_path(settings, "stream")) in caught.value.remedy

    def test_a_part_that_was_killed_ends_as_a_shell_says_it(
        self, settings: Settings, start: Callable[[str, str], subprocess.Popen[bytes]]
    ) -> None:
        child = start(POLITE, "produce")
        child.kill()
        child.wait(WAIT_SECONDS)
        with pytest.raises(ActivityError, match="was ended by SIGKILL") as caught:
            parts.is_sent(settings, parts.Traffic(child, "", None))
        assert caught.value.exit_code == 128 + 9

    def test_streams_that_somebody_stopped_may_be_started_again(self, settings: Settings) -> None:
        with pytest.raises(TransientError) as caught:
            parts.check_stream(settings, None)
        assert caught.value.exit_code == EXIT_TRY_AGAIN

    def test_the_streams_are_up_when_all_four_of_this_driver_run(
        self, settings: Settings, start: Callable[[str, str], subprocess.Popen[bytes]]
    ) -> None:
        child = start(POLITE, "stream")
        for query in Query:
            assert not parts.is_up(settings, child)
            write_status(settings, query, child.pid)
        assert parts.is_up(settings, child)
        write_status(settings, Query.PUBLISH, os.getpid())
        assert not parts.is_up(settings, child)
        assert parts.is_up(settings, None)  # streams of somebody else's driver are taken as they are

    @pytest.mark.parametrize(
        ("present", "lines", "expected", "option"),
        [
            pytest.param(0, 500, 500, "--dataset", id="an empty topic gets the data set"),
            pytest.param(200, 500, 700, "--dataset", id="half a data set is sent anew"),
            pytest.param(500, 500, 500 + parts.BURST_PURCHASES, "--seed", id="a full one gets fresh purchases"),
        ],
    )
    def test_the_data_set_is_sent_once(
        self, settings: Settings, monkeypatch: pytest.MonkeyPatch, present: int, lines: int, expected: int, option: str
    ) -> None:
        asked: list[str] = []

        def start(_settings: Settings, name: str, arguments: list[str]) -> None:
            assert name == parts.TRAFFIC
            asked.extend(arguments)

        monkeypatch.setattr(processes, "start", start)
        with ExitStack() as started:
            traffic = parts.start_traffic(settings, report(present), lines, started)
            started.pop_all()
        assert traffic.expected == expected
        assert asked[0] == "produce"
        assert option in asked


def write_status(settings: Settings, query: Query, pid: int) -> None:
    status = QueryStatus(query, state="running", pid=pid)
    status.write(settings.run_dir)


def report(purchases: int = 0, gold: tables.Contents | None = None, *, lag: int = 0) -> Report:
    by_role = {
        PURCHASES_ROLE: Topic("purchase-events", {0: (0, purchases)}, NOON),
        PROFILES_ROLE: Topic("profiles", {}, None),
    }
    reports = [
        QueryReport(
            Query.BRONZE,
            "running",
            lag={"purchase-events": lag},
            lag_records=lag,
            rows_per_second=1234.5,
            freshness_seconds=float(lag),
        )
    ]
    reports += [
        QueryReport(query, "running", lag_versions=0, is_current=True, freshness_seconds=0.0)
        for query in list(Query)[1:]
    ]
    return Report(NOON, "lake", reports, [gold] if gold else [], by_role, [])


def gold(rows: int, version: int) -> tables.Contents:
    return tables.Contents(Table.ACTIVITY, "id", version, rows, 1, 1000, NOON)


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
        for words in ("23 s", "1,500", "bronze 0 (42 records to read, 42 s behind)", "gold 801", "publish 17"):
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
        write_deltalake(catalog.table_path(settings.lake, Table.ACTIVITY), table)
        return {query.engine: query.command for query in queries.one_liners(settings, tmp_path)}

    def test_paths_are_those_below_the_folder(self, programs: dict[str, str]) -> None:
        assert all("'var/lake/gold/customer_activity'" in command for command in programs.values())
        assert queries.near("s3a://bucket/lake", Path("/")) == "s3a://bucket/lake"
        assert queries.near("/elsewhere/lake", Path("/here")) == "/elsewhere/lake"

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
