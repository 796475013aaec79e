"""The live run's parts: processes that are found and ended, and what ended early."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from customer_activity.demo.run import local_airflow, parts
from customer_activity.engine import pids
from customer_activity.engine.observability import QueryStatus
from customer_activity.errors import (
    EXIT_TERMINAL,
    EXIT_TRY_AGAIN,
    ActivityError,
    EnvironmentFault,
    TerminalError,
    TransientError,
)
from customer_activity.inspection import topics
from customer_activity.settings import Settings
from customer_activity.supervision import driver, processes, running
from support import inspected
from support.run_reports import report
from support.streams import Query
from support.waiting import until

Start = Callable[[str, str], subprocess.Popen[bytes]]
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
# As a driver with a JVM below it: both have the log open, and a round of maintenance is when it may be cut.
TALKATIVE = """
import os, subprocess, sys
from customer_activity import settings
from customer_activity.engine.logs import keep_log_short
def say(words): subprocess.run(["sh", "-c", "cat >&2"], input=words.encode(), check=True); os.write(2, words.encode())
folder = settings.load().run_dir
for words in ("one", "two", "three", "four"):
    say(words + "\\n")
    keep_log_short(folder, most=20)
"""
FAILING = (
    'import sys; print("INFO started"); print("error: too many bad records\\n  → look at quarantine"); sys.exit(2)'
)


@pytest.fixture
def start(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
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


def says(settings: Settings, name: str, word: str, times: int = 1) -> Callable[[], bool]:
    return lambda: processes.log_path(settings, name).read_text().count(word) >= times


class TestProcesses:
    def test_a_polite_process_ends_by_itself(self, settings: Settings, start: Start) -> None:
        child = start(POLITE, "stream")
        until(says(settings, "stream", "ready"), WAIT_SECONDS, every=0.01)
        assert processes.running(settings, "stream") is not None
        assert os.getsid(child.pid) == child.pid  # Ctrl-C in a terminal does not reach it

        assert processes.stop(child.pid, seconds=WAIT_SECONDS)

        assert processes.running(settings, "stream") is None
        assert says(settings, "stream", "goodbye")()

    def test_a_log_that_grows_large_begins_anew_and_the_one_before_is_kept(
        self, settings: Settings, start: Start
    ) -> None:
        settings.run_dir.mkdir()
        (settings.run_dir / "other.log").write_text("somebody else's, and large")
        assert start(TALKATIVE, "talk").wait(WAIT_SECONDS) == 0
        log = processes.log_path(settings, "talk")
        assert log.read_text(encoding="utf-8") == "four\nfour\n"
        assert log.with_name("talk.log.1").read_text(encoding="utf-8") == "one\none\ntwo\ntwo\nthree\nthree\n"
        assert not (settings.run_dir / "other.log.1").exists()

    def test_a_stubborn_process_is_killed_with_what_left_its_group(self, settings: Settings, start: Start) -> None:
        child = start(STUBBORN, "stream")
        until(says(settings, "stream", "ready", times=2), WAIT_SECONDS, every=0.01)
        members = processes.family(child.pid)
        assert len(members) == 2

        assert not processes.stop(child.pid, seconds=0.05)

        assert [member for member in members if processes.is_running(member)] == []

    def test_what_a_dead_leader_left_behind_is_found(self, settings: Settings, start: Start) -> None:
        child = start(STUBBORN, "stream")
        until(says(settings, "stream", "ready", times=2), WAIT_SECONDS, every=0.01)
        child.kill()
        child.wait(WAIT_SECONDS)

        assert running.stream_pids(settings) == []
        assert running.stream_pids(settings, left_overs=True) == [child.pid]
        assert len(processes.family(child.pid)) == 1

        processes.stop(child.pid, seconds=0)
        assert processes.family(child.pid) == []

    def test_a_number_that_went_to_another_program_is_not_ours(self, settings: Settings) -> None:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
            settings.run_dir.mkdir()
            processes.pid_path(settings, "stream").write_text(str(stranger.pid))
            assert processes.running(settings, "stream") is None
            assert running.stream_pids(settings, left_overs=True) == []
            assert not processes.family(stranger.pid)
            assert psutil.pid_exists(stranger.pid)
            stranger.kill()

    @pytest.mark.parametrize("earlier", [0, 1], ids=["the process itself", "another one, which is ours as well"])
    def test_a_process_is_known_by_when_it_started(self, settings: Settings, start: Start, earlier: int) -> None:
        child = start(POLITE, "stream")
        until(says(settings, "stream", "ready"), WAIT_SECONDS, every=0.01)
        path, start_time = processes.pid_path(settings, "stream"), pids.start_time(child.pid)
        assert start_time is not None
        assert path.read_text().splitlines() == [str(child.pid), f"start={start_time}"]
        path.write_text(f"{child.pid}\nstart={start_time - earlier}")
        known = [] if earlier else [child.pid]
        assert (processes.running(settings, "stream") is None) == (not known)
        assert running.stream_pids(settings) == running.stream_pids(settings, left_overs=True) == known
        assert driver.stop(settings, WAIT_SECONDS) is (True if known else None)
        assert (child.poll() is None) == (not known)

    def test_a_pid_file_of_an_older_release_is_read(self, settings: Settings, start: Start) -> None:
        child = start(POLITE, "stream")
        until(says(settings, "stream", "ready"), WAIT_SECONDS, every=0.01)
        processes.pid_path(settings, "stream").write_text(str(child.pid))
        assert running.stream_pids(settings) == [child.pid]

    @pytest.mark.parametrize(
        "written", [{"host": "another-host"}, {"process_start": 1.0}], ids=["another host's", "another process's"]
    )
    def test_a_status_of_another_drivers_process_is_not_taken_for_one_of_ours(
        self, settings: Settings, start: Start, written: dict[str, Any]
    ) -> None:
        child = start(POLITE, "portal")
        until(says(settings, "portal", "ready"), WAIT_SECONDS, every=0.01)
        inspected.write_status(settings, Query.SILVER, pid=child.pid)
        assert running.stream_pids(settings) == [child.pid]
        inspected.write_status(settings, Query.SILVER, pid=child.pid, **written)
        assert running.stream_pids(settings) == []

    @pytest.mark.parametrize("written", [None, "", "soon", str(NO_PROCESS)])
    def test_a_pid_file_without_a_process_is_nothing(self, settings: Settings, written: str | None) -> None:
        if written is not None:
            settings.run_dir.mkdir()
            processes.pid_path(settings, "stream").write_text(written)
        assert processes.running(settings, "stream") is None
        assert running.stream_pids(settings, left_overs=True) == []

    def test_the_log_before_is_kept(self, settings: Settings, start: Start) -> None:
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

    def test_a_portal_that_has_no_port_is_said_and_the_run_goes_on(
        self, settings: Settings, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other, ExitStack() as started:
            own = settings.model_copy(update={"portal_port": other.getsockname()[1]})
            parts.start_portal(own, Console(width=200), started)
        assert "portal: not started: something else listens on port" in capsys.readouterr().out
        assert not parts.is_portal_up(own)

    def test_a_portal_ends_with_the_run(self, settings: Settings, start: Start) -> None:
        child = start(POLITE, parts.PORTAL)
        until(says(settings, parts.PORTAL, "ready"), WAIT_SECONDS, every=0.01)
        assert parts.is_portal_up(settings)
        assert parts.stop(settings) == ["portal"]
        assert child.wait(WAIT_SECONDS) == 0
        assert not parts.is_portal_up(settings)

    def test_a_part_that_failed_hands_on_its_exit_code_and_words(self, settings: Settings, start: Start) -> None:
        child = start(FAILING, "stream")
        child.wait(WAIT_SECONDS)
        with pytest.raises(ActivityError, match="too many bad records") as caught:
            running.check_stream(settings, child)
        assert caught.value.exit_code == 2
        assert "INFO started" not in caught.value.what
        assert str(processes.log_path(settings, "stream")) in caught.value.remedy

    def test_a_part_that_was_killed_ends_as_a_shell_says_it(self, settings: Settings, start: Start) -> None:
        child = start(POLITE, "produce")
        child.kill()
        child.wait(WAIT_SECONDS)
        with pytest.raises(ActivityError, match="was ended by SIGKILL") as caught:
            parts.is_sent(settings, parts.Traffic(child, "", None))
        assert caught.value.exit_code == 128 + 9

    def test_a_child_without_a_command_line_of_ours_runs_all_the_same(self, settings: Settings) -> None:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
            running.check_stream(settings, child)
            child.kill()

    def test_streams_that_somebody_stopped_may_be_started_again(self, settings: Settings) -> None:
        with pytest.raises(TransientError) as caught:
            running.check_stream(settings, None)
        assert caught.value.exit_code == EXIT_TRY_AGAIN

    def test_streams_that_airflow_has_given_up_are_waited_for_no_more(
        self, settings: Settings, start: Start, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        start(FAILING, "stream").wait(WAIT_SECONDS)
        monkeypatch.setattr(parts, "ASK_SECONDS", 0.0)
        monkeypatch.setattr(parts, "START_SECONDS", WAIT_SECONDS)
        monkeypatch.setattr(local_airflow, "has_given_up", lambda _: True)
        with pytest.raises(TerminalError, match="Airflow has stopped trying:\nerror: too many bad records") as caught:
            parts.wait_for_streams(settings)
        assert caught.value.exit_code == EXIT_TERMINAL
        assert str(processes.log_path(settings, "stream")) in caught.value.remedy

    def test_the_streams_are_up_when_all_four_of_this_driver_run(self, settings: Settings, start: Start) -> None:
        child = start(POLITE, "stream")
        for query in Query:
            assert not running.is_up(settings, child)
            write_status(settings, query, child.pid)
        assert running.is_up(settings, child)
        write_status(settings, Query.PUBLISH, os.getpid())
        assert not running.is_up(settings, child)
        assert running.is_up(settings, None)  # streams of somebody else's driver are taken as they are

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
