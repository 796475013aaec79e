"""How Compose learns whether a part is well, and how a command gets its keys: shell scripts."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from customer_activity.settings import Settings
from customer_activity.supervision import endpoint
from support.images import PROJECT

SCRIPTS = PROJECT / "infra" / "compose"


# --- healthy.sh

WELL = {"status": "healthy"}


@pytest.mark.parametrize(
    ("health", "parts", "words"),
    [
        pytest.param({"scheduler": WELL, "triggerer": WELL}, ["scheduler", "triggerer"], "", id="both are"),
        pytest.param({"scheduler": WELL, "triggerer": {"status": None}}, ["scheduler"], "", id="the one asked for is"),
        pytest.param(
            {"scheduler": WELL, "triggerer": {"status": "unhealthy"}},
            ["scheduler", "triggerer"],
            "triggerer: unhealthy",
            id="one is not",
        ),
        pytest.param({"dag_processor": {"status": None}}, ["dag_processor"], "dag_processor: None", id="never seen"),
        pytest.param({"triggerer": None}, ["triggerer"], "triggerer: None", id="there is none"),
        pytest.param({}, ["scheduler"], "scheduler: None", id="not told"),
        pytest.param(None, ["scheduler"], "503", id="the API server is not well itself"),
    ],
)
def test_a_part_is_well_when_the_api_server_says_so(
    health: dict[str, Any] | None, parts: list[str], words: str
) -> None:
    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if health is not None and self.path == "/api/v2/monitor/health" else 503)
            self.end_headers()
            self.wfile.write(json.dumps(health).encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Api) as api:
        threading.Thread(target=api.handle_request, daemon=True).start()
        known = {**os.environ, "AIRFLOW_URL": f"http://127.0.0.1:{api.server_port}"}
        line = [str(SCRIPTS / "healthy.sh"), *parts]
        answer = subprocess.run(line, env=known, capture_output=True, text=True, check=False)
    assert (answer.returncode == 0) == (words == "")
    assert words in answer.stderr


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Return the folder of a driver that was started."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "stream.pid").write_text("7", encoding="utf-8")
    return folder


READY = {"ready": True, "not_ready": {}, "message": "", "driver": {"pid": 7}}


def asked(
    run_dir: Path, body: dict[str, Any] | None, *, at: str = "127.0.0.1", told: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Ask whether a driver is well that answers so at an address, or not at all; `told`: as the settings have it."""

    class Driver(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if body and body["ready"] and self.path == "/readyz" else 503)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    class Server(HTTPServer):
        address_family = socket.AF_INET6 if ":" in at else socket.AF_INET

    with Server((at, 0), Driver) as driver:
        if body is not None:
            threading.Thread(target=driver.handle_request, daemon=True).start()
        else:
            driver.socket.close()
        endpoint.tell(Settings(run_dir=run_dir), "127.0.0.1", driver.server_port)
        known = {**os.environ, "ACTIVITY_RUN_DIR": str(run_dir), **({"ACTIVITY_METRICS_ADDRESS": told} if told else {})}
        line = [str(SCRIPTS / "healthy.sh"), "driver"]
        return subprocess.run(line, env=known, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(READY, "", id="ready"),
        pytest.param(
            {"ready": False, "not_ready": {"gold": "it is failed"}, "message": ""}, "gold: it is failed", id="a stream"
        ),
        pytest.param({"ready": False, "not_ready": {}, "message": "nothing read"}, "nothing read", id="nothing known"),
        pytest.param(None, "connect", id="it does not answer"),
        pytest.param({**READY, "driver": {"pid": 4_242}}, "process 7, does not answer", id="another one is ready"),
        pytest.param({**READY, "driver": None}, "process 7, does not answer", id="who answers does not say who it is"),
    ],
)
def test_a_driver_is_well_when_it_says_so(run_dir: Path, body: dict[str, Any] | None, words: str) -> None:
    answer = asked(run_dir, body)
    assert (answer.returncode == 0) == (words == "")
    assert words in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("at", "told"),
    [
        pytest.param("127.0.0.2", "127.0.0.2", id="an address of its own"),
        pytest.param("127.0.0.1", "0.0.0.0", id="every address"),  # noqa: S104 - meant
        pytest.param("::1", "::1", id="IPv6"),
        pytest.param("::1", "::", id="every address of IPv6"),
    ],
)
def test_a_driver_is_asked_where_it_listens(run_dir: Path, at: str, told: str) -> None:
    assert asked(run_dir, READY, at=at, told=told).returncode == 0


def test_a_pid_file_may_say_when_its_process_started(run_dir: Path) -> None:
    (run_dir / "stream.pid").write_text("7\nstart=1234.0", encoding="utf-8")
    assert asked(run_dir, READY).returncode == 0


@pytest.mark.parametrize("missing", ["stream.pid", "metrics.json"])
def test_a_driver_that_nobody_wants_has_no_say(run_dir: Path, missing: str) -> None:
    """None was started, or it was told to stop (a paused DAG), or it does not serve anything."""
    endpoint.tell(Settings(run_dir=run_dir), "127.0.0.1", 1)
    (run_dir / missing).unlink()
    known = {**os.environ, "ACTIVITY_RUN_DIR": str(run_dir)}
    assert subprocess.run([str(SCRIPTS / "healthy.sh"), "driver"], env=known, check=False).returncode == 0


def test_of_several_pipelines_each_driver_is_asked(run_dir: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    for folder in (other, run_dir):
        (pipelines / f"{folder.name}.env").write_text(f"ACTIVITY_RUN_DIR={folder}\n", encoding="utf-8")
    endpoint.tell(Settings(run_dir=run_dir), "127.0.0.1", 1)
    known = {**os.environ, "CUSTOMER_ACTIVITY_PIPELINES": str(pipelines)}
    answer = subprocess.run([str(SCRIPTS / "healthy.sh"), "driver"], env=known, capture_output=True, check=False)
    assert answer.returncode != 0


# --- bin/activity

WITH_KEYS = {"AWS_ACCESS_KEY_ID": "lake", "AWS_SECRET_ACCESS_KEY": "a-b_c"}


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        pytest.param(
            "AWS_ACCESS_KEY_ID=lake\nAWS_SECRET_ACCESS_KEY=a-b_c", WITH_KEYS, id="of a part that is given some"
        ),
        pytest.param(None, {}, id="of a part that is given none"),
    ],
)
def test_the_command_has_the_keys(keys: str | None, found: dict[str, str], tmp_path: Path) -> None:
    place = tmp_path / "infra" / "compose" / "bin"
    shutil.copytree(SCRIPTS / "bin", place)
    program = tmp_path / ".venv" / "bin" / "activity"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$*"\nenv\n', encoding="utf-8")
    program.chmod(0o755)
    if keys is not None:
        (tmp_path / "lake_keys").write_text(keys, encoding="utf-8")
    known = {"PATH": os.environ["PATH"], "SECRETS": str(tmp_path)}
    line = [str(place / "activity"), "show", "two words"]
    said, *seen = subprocess.run(line, env=known, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said == "show two words"
    assert dict(pair.split("=", 1) for pair in seen if pair.startswith("AWS")) == found
