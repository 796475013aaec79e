"""Which processes are the product's own, by their command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from customer_activity.settings import Settings
from customer_activity.supervision import processes


@contextmanager
def started(script: Path, *arguments: str) -> Iterator[int]:
    """Run a script that waits for its input to end, as a console script is run; yield its number."""
    script.parent.mkdir(parents=True)
    script.write_text("print(flush=True); input()", encoding="utf-8")
    line = [sys.executable, str(script), *arguments]
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=nowhere) as process:
        assert process.stdout is not None
        process.stdout.readline()  # until then it may still have its parent's command line
        yield process.pid


@pytest.mark.parametrize(
    ("script", "argument", "is_ours"),
    [
        pytest.param("bin/activity", "stream", True, id="the console script, as pods and systemd run it"),
        pytest.param("bin/other", "stream", False, id="another program's"),
        pytest.param("bin/activity-report", "stream", False, id="a program of a similar name"),
        pytest.param("bin/other", "activity", False, id="a program that is told of it"),
    ],
)
def test_a_driver_is_known_by_how_it_was_started(script: str, argument: str, is_ours: bool, tmp_path: Path) -> None:
    with started(tmp_path / script, argument) as pid:
        assert (processes.ours(pid) is not None) == is_ours


NOISE = json.dumps({"time": "now", "level": "WARN", "logger": "o.a.s.Spark", "message": "stopping", "stack": ""})


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        pytest.param(
            [NOISE, json.dumps({"message": "no broker", "remedy": "start it", "exit_code": 75}), NOISE],
            "error: no broker\n  → start it",
            id="an error of ours",
        ),
        pytest.param(
            [json.dumps({"message": "nobody foresaw it", "stack": "Traceback\nValueError: why", "exit_code": 1})],
            "error: nobody foresaw it\nTraceback\nValueError: why",
            id="another one",
        ),
        pytest.param([NOISE, "{cut off"], f"{NOISE}\n{{cut off", id="it was killed"),
    ],
)
def test_a_log_of_json_ends_with_why(lines: list[str], words: str, tmp_path: Path) -> None:
    settings = Settings(run_dir=tmp_path)
    processes.log_path(settings, "stream").write_text("\n".join(lines), encoding="utf-8")
    assert processes.last_lines(settings, "stream") == words


def test_a_process_that_a_native_library_crashes_leaves_its_stack(settings: Settings) -> None:
    line = [sys.executable, "-c", "import os, signal\ndef inside():\n  os.kill(os.getpid(), signal.SIGSEGV)\ninside()"]
    process = processes.launch(settings, "stream", line, {})
    assert process.wait() == -signal.SIGSEGV
    said = processes.log_path(settings, "stream").read_text(encoding="utf-8")
    assert said.startswith("Fatal Python error: Segmentation fault")
    assert "in inside" in said
