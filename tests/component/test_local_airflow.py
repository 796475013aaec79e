"""The local Airflow before it runs: what it is started with, and what keeps its secrets."""

from __future__ import annotations

import json
import socket
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from customer_activity.demo.run import local_airflow
from customer_activity.errors import EnvironmentFault
from customer_activity.settings import Settings
from customer_activity.supervision import processes


@pytest.fixture
def own(settings: Settings, tmp_path: Path) -> Settings:
    return settings.model_copy(update={"airflow_dir": tmp_path / "airflow", "airflow_port": 1})


def test_passwords_are_made_once_and_for_this_user_alone(own: Settings) -> None:
    first = local_airflow._passwords(own)
    assert set(first) == {"admin", "watcher"}
    assert len(set(first.values())) == 2
    assert min(len(password) for password in first.values()) > 16
    assert local_airflow._passwords(own) == first
    assert (own.airflow_dir / "passwords.json").stat().st_mode & 0o077 == 0


def test_it_listens_on_this_machine_only_and_its_tasks_get_the_same_settings(own: Settings) -> None:
    variables = local_airflow.environment(own, {"admin": "one", "watcher": "two"})
    assert variables["AIRFLOW__API__HOST"] == "127.0.0.1"
    assert variables["ACTIVITY_LAKE"] == own.lake
    assert len(variables["AIRFLOW__API_AUTH__JWT_SECRET"]) >= 64
    assert "one" not in variables.values()
    connection = json.loads(variables["AIRFLOW_CONN_CUSTOMER_ACTIVITY_AIRFLOW"])
    assert (connection["login"], connection["password"], connection["port"]) == ("watcher", "two", 1)
    assert variables["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"] == "admin:admin,watcher:viewer"


@pytest.mark.parametrize(
    ("set_to", "leads_to"),
    [
        pytest.param(None, "http://localhost:8099/data-docs", id="the portal's"),
        pytest.param("https://dq.example.org", "https://dq.example.org", id="where they are served"),
    ],
)
def test_its_buttons_lead_to_pages_that_a_browser_opens(own: Settings, set_to: str | None, leads_to: str) -> None:
    known = own.model_copy(update={"portal_port": 8099, "quality_url": set_to})
    variables = local_airflow.environment(known, {"admin": "one", "watcher": "two"})
    assert variables["ACTIVITY_PORTAL_URL"] == "http://localhost:8099"
    assert variables["ACTIVITY_QUALITY_URL"] == leads_to


def test_its_dags_and_connections_are_called_after_the_pipeline(own: Settings) -> None:
    named = own.model_copy(update={"pipeline": "orders-eu"})
    assert local_airflow.stream_dag(named) == "orders_eu_stream"
    variables = local_airflow.environment(named, {"admin": "one", "watcher": "two"})
    connections = {name for name in variables if name.startswith("AIRFLOW_CONN_")}
    assert connections == {"AIRFLOW_CONN_ORDERS_EU_AIRFLOW", "AIRFLOW_CONN_ORDERS_EU_SPARK"}
    assert variables["ACTIVITY_PIPELINE"] == "orders-eu"


def test_each_pipeline_that_is_declared_to_it_has_a_connection(
    own: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("customer-activity", "orders-eu"):
        (tmp_path / f"{name}.env").touch()
    monkeypatch.setenv("CUSTOMER_ACTIVITY_PIPELINES", str(tmp_path))
    variables = local_airflow.environment(own, {"admin": "one", "watcher": "two"})
    assert variables["CUSTOMER_ACTIVITY_PIPELINES"] == str(tmp_path)
    for prefix in ("CUSTOMER_ACTIVITY", "ORDERS_EU"):
        assert json.loads(variables[f"AIRFLOW_CONN_{prefix}_AIRFLOW"])["login"] == "watcher"


def test_nothing_secret_is_on_its_command_line(own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[list[str]] = []
    process = object()

    def launch(_: Settings, __: str, line: list[str], ___: dict[str, str]) -> object:
        lines.append(line)
        return process

    monkeypatch.setattr(processes, "launch", launch)
    monkeypatch.setattr(local_airflow, "is_well", lambda _: True)
    monkeypatch.setattr(local_airflow, "ENVIRONMENT", Path(own.run_dir))
    program = own.run_dir / "bin" / "airflow"
    program.parent.mkdir(parents=True)
    program.touch()
    found = local_airflow.start(own)
    assert lines == [[str(program), "standalone"]]
    assert (found.process, found.is_new, found.url) == (process, True, "http://localhost:1")


def test_a_port_that_is_taken_is_said_at_once(own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    (own.airflow_dir / "bin").mkdir(parents=True)
    (own.airflow_dir / "bin" / "airflow").touch()
    monkeypatch.setattr(local_airflow, "ENVIRONMENT", own.airflow_dir)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        mine = own.model_copy(update={"airflow_port": taken.getsockname()[1]})
        with pytest.raises(EnvironmentFault, match="something else listens") as fault:
            local_airflow.start(mine)
    assert "ACTIVITY_AIRFLOW_PORT" in str(fault.value)


def test_the_logs_of_two_airflows_have_ports_of_their_own(own: Settings) -> None:
    def ports(mine: Settings) -> set[str]:
        variables = local_airflow.environment(mine, {"admin": "one", "watcher": "two"})
        return {value for name, value in variables.items() if name.startswith("AIRFLOW__") and name.endswith("PORT")}

    assert len(ports(own)) == 3
    assert not ports(own) & ports(own.model_copy(update={"airflow_port": 11}))


def test_without_set_up_it_says_what_to_do(own: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(local_airflow, "ENVIRONMENT", tmp_path / "nowhere")
    with pytest.raises(EnvironmentFault, match="make setup"):
        local_airflow.start(own)


def test_what_does_not_answer_is_not_well_and_what_does_not_run_is_not_stopped(own: Settings) -> None:
    assert not local_airflow.is_well(own)
    assert not local_airflow.has_given_up(own)
    assert not local_airflow.stop(own)


@pytest.mark.parametrize(
    ("status", "dag", "has_given_up"),
    [
        pytest.param(200, {"is_paused": True}, True, id="paused by Airflow"),
        pytest.param(200, {"is_paused": False}, False, id="tries on"),
        pytest.param(503, {}, False, id="cannot tell"),
    ],
)
def test_airflow_has_given_up_when_it_has_paused_the_dag(
    own: Settings, status: int, dag: dict[str, bool], has_given_up: bool
) -> None:
    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.reply(201, {"access_token": "a token"})

        def do_GET(self) -> None:
            assert (self.path, self.headers["Authorization"]) == (
                "/api/v2/dags/customer_activity_stream",
                "Bearer a token",
            )
            self.reply(status, dag)

        def reply(self, code: int, body: dict[str, Any]) -> None:
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Api) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        there = own.model_copy(update={"airflow_port": server.server_port})
        try:
            assert local_airflow.has_given_up(there) is has_given_up
        finally:
            server.shutdown()
            thread.join()
