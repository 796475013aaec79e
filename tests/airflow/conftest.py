"""A program in the place of `activity`, whose answers a test writes: what it was asked is on record; and servers."""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

# Airflow reads them when it is imported: its files go where nothing else is.
os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="customer-activity-airflow-"))
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "false"
os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "true"

PROGRAM = f"""#!{sys.executable}
import json, os, pathlib, sys, time
folder = pathlib.Path(__file__).parent
seen = {{name: os.environ[name] for name in os.environ if "AIRFLOW" in name or name.startswith("ACTIVITY_")}}
with (folder / "asked").open("a") as asked:
    asked.write(json.dumps([*sys.argv[1:], seen]) + "\\n")
answers = json.loads((folder / "answers.json").read_text())
name = " ".join(word for word in sys.argv[1:3] if not word.startswith("-"))
given = answers[name]
mine = given.pop(0) if len(given) > 1 else given[0]
(folder / "answers.json").write_text(json.dumps(answers))
for line in mine.get("lines", []):
    print(line if isinstance(line, str) else json.dumps(line), flush=True)
print(mine.get("error", ""), file=sys.stderr, end="")
while mine.get("stays"):
    time.sleep(60)
sys.exit(mine.get("code", 0))
"""

WELL = {
    "state": "running",
    "message": "",
    "pid": 4711,
    "gold_version": 12,
    "gold_rows": 801,
    "freshness_seconds": 0.7,
}


class Program:
    """Stands in for the command line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "activity"
        self.path.write_text(PROGRAM, encoding="utf-8")
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)

    def answers(self, **by_command: list[dict[str, Any]]) -> None:
        """Say what each command answers, in turn; the last answer is given from then on."""
        named = {name.replace("_", " "): given for name, given in by_command.items()}
        (self.folder / "answers.json").write_text(json.dumps(named), encoding="utf-8")

    @property
    def asked(self) -> list[list[Any]]:
        """What it was called with so far, and what it saw of Airflow's settings."""
        path = self.folder / "asked"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    @property
    def commands(self) -> list[str]:
        """Which commands were called so far."""
        return [" ".join(word for word in call[:2] if not word.startswith("-")) for call in self.asked]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    for name in [name for name in os.environ if name.startswith("ACTIVITY_")]:
        monkeypatch.delenv(name)
    made = Program(tmp_path)
    monkeypatch.setenv("CUSTOMER_ACTIVITY_PROGRAM", str(made.path))
    return made


@pytest.fixture
def well() -> Callable[..., dict[str, Any]]:
    """Make what the driver says when it is well, with what is else."""
    return lambda **other: {**WELL, **other}


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[BaseHTTPRequestHandler], tuple[int, dict[str, Any]]]], int]]:
    """Return what serves HTTP until the test ends: it is given what answers a request, and gives the port."""
    with ExitStack() as servers:

        def start(answer: Callable[[BaseHTTPRequestHandler], tuple[int, dict[str, Any]]]) -> int:
            class Handler(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    status, body = answer(self)
                    content = json.dumps(body).encode()
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

                def do_POST(self) -> None:
                    self.do_GET()

                def log_message(self, *_: Any) -> None:
                    """Say nothing."""

            server = servers.enter_context(HTTPServer(("127.0.0.1", 0), Handler))
            serving = threading.Thread(target=server.serve_forever)
            serving.start()
            servers.callback(serving.join)
            servers.callback(server.shutdown)
            return server.server_port

        yield start
