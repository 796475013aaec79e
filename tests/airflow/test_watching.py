"""The driver's task while it is deferred: what the watch sees, and what pausing, clearing and a lost watch lead to."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from activity_dags import pausing, watching
from activity_dags import program as program_module
from activity_dags.pipelines import DEFAULT, Pipeline
from activity_dags.watching import DriverTrigger

FAR = 3_000_000_000.0


async def first_event(trigger: DriverTrigger) -> dict[str, Any]:
    async for event in trigger.run():
        return dict(event.payload)
    raise AssertionError("the trigger ended without an event")


def watched(until: float = FAR) -> dict[str, Any]:
    return asyncio.run(asyncio.wait_for(first_event(DriverTrigger(pipeline=DEFAULT, dag_id="stream", until=until)), 60))


@pytest.fixture(autouse=True)
def unconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection to Airflow's API, unless a test makes one."""

    async def missing(name: str) -> Connection:
        raise AirflowNotFoundException(f"The conn_id `{name}` isn't defined")

    monkeypatch.setattr(BaseHook, "aget_connection", missing)


@pytest.mark.parametrize("state", ["dead", "failed", "stalled", "stopped"])
def test_a_driver_that_is_not_well_is_an_event(program: Any, well: Callable[..., Any], state: str) -> None:
    program.answers(driver_watch=[{"lines": [well(), well(state=state, message="why")], "code": 1}])
    event = watched()
    assert (event["state"], event["message"]) == (state, "why")


def test_the_end_of_the_shift_is_an_event_and_leaves_no_watch(program: Any, well: Callable[..., Any]) -> None:
    program.answers(driver_watch=[{"lines": [well()], "stays": True}])
    assert watched(until=time.time() - 1) == well()
    assert program.commands == ["driver watch"]


def test_a_watch_that_fails_is_an_event_with_its_words(program: Any) -> None:
    program.answers(driver_watch=[{"error": "error: ACTIVITY_LAKE is not set", "code": 2}])
    event = watched()
    assert event["state"] == "unwatched"
    assert "ACTIVITY_LAKE is not set" in event["message"]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param({"time": "2026-11-24T10:00:00Z", "level": "error", "event": "no lake"}, id="an event of the log"),
        pytest.param("5", id="a number"),
        pytest.param("null", id="null"),
        pytest.param({"state": None}, id="no state"),
    ],
)
def test_what_is_no_look_is_one_of_its_words(program: Any, line: Any) -> None:
    program.answers(driver_watch=[{"lines": [line], "code": 2}])
    event = watched()
    assert event["state"] == "unwatched"
    assert (line if isinstance(line, str) else next(iter(line))) in event["message"]


def test_a_look_may_be_long(program: Any, well: Callable[..., Any]) -> None:
    program.answers(driver_watch=[{"lines": [well(state="dead", last_words="x" * 200_000)], "code": 1}])
    assert len(watched()["last_words"]) == 200_000


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param({"code": 1}, id="its last one"),
        pytest.param({"stays": True}, id="and it goes on"),
    ],
)
def test_a_look_that_is_too_long_is_an_event(
    program: Any, well: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, rest: dict[str, Any]
) -> None:
    monkeypatch.setattr(program_module, "LOOK_BYTES", 1_000)
    program.answers(driver_watch=[{"lines": [well(), well(state="dead", last_words="x" * 200_000)], **rest}])
    event = watched()
    assert event == {"state": "unwatched", "message": "the watch has printed a line of more than 1,000 bytes"}


def test_a_watch_that_hangs_is_an_event(
    program: Any, well: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "SILENT_SECONDS", 2.0)
    program.answers(driver_watch=[{"lines": [well()], "stays": True}])
    event = watched()
    assert event["state"] == "unwatched"
    assert "nothing for 2 s" in event["message"]


def test_clearing_the_task_stops_the_driver(program: Any) -> None:
    program.answers(driver_stop=[{"lines": ["stopped"]}])
    asyncio.run(DriverTrigger(pipeline=DEFAULT, dag_id="stream", until=FAR).on_kill())
    assert program.commands == ["driver stop"]


class Api:
    """Stands in for Airflow's REST API, as its documentation has it."""

    def __init__(self) -> None:
        self.answers, self.tokens = [False], ["Bearer token-1"]
        self.given = 0

    def __call__(self, request: BaseHTTPRequestHandler) -> tuple[int, dict[str, Any]]:
        if request.command == "POST":
            who = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
            self.given += 1
            known = who == {"username": "watcher", "password": "secret"}
            return (201, {"access_token": f"token-{self.given}"}) if known else (401, {})
        if request.path != "/api/v2/dags/stream" or request.headers["Authorization"] not in self.tokens:
            return 401, {}
        paused = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return 200, {"dag_id": "stream", "is_paused": paused}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, serve: Callable[..., int]) -> Api:
    mine = Api()
    of_the_server: dict[str, Any] = {"host": "127.0.0.1", "port": serve(mine), "login": "watcher", "password": "secret"}

    async def found(name: str) -> Connection:
        assert name == "customer_activity_airflow"
        return Connection(conn_id=name, conn_type="http", **of_the_server)

    monkeypatch.setattr(BaseHook, "aget_connection", found)
    monkeypatch.setattr(pausing, "ASK_SECONDS", 0.01)
    return mine


def test_pausing_stops_the_driver_until_it_goes_on(program: Any, well: Callable[..., Any], api: Api) -> None:
    api.answers = [True, True, True, False]
    program.answers(driver_watch=[{"lines": [well()], "stays": True}], driver_stop=[{"lines": ["stopped"]}])
    event = watched()
    assert (event["state"], event["message"]) == ("stopped", "the DAG was paused")
    assert program.commands == ["driver watch", "driver stop"]
    assert api.answers == [False]


def test_a_dag_that_is_not_paused_is_left_alone(program: Any, well: Callable[..., Any], api: Api) -> None:
    program.answers(driver_watch=[{"lines": [well(), well(state="dead")], "code": 1}])
    assert watched()["state"] == "dead"
    assert program.commands == ["driver watch"]


def test_a_token_that_is_not_taken_any_longer_is_replaced(api: Api) -> None:
    api.answers = [True]
    asking = pausing.Pausing(Pipeline(DEFAULT), "stream")

    async def twice() -> tuple[bool, bool]:
        first = await asking.is_paused()
        api.tokens = ["Bearer token-2"]
        return first, await asking.is_paused()

    assert asyncio.run(twice()) == (True, True)
    assert api.given == 2


@pytest.mark.parametrize("fault", ["refused", "not there"])
def test_without_an_answer_the_driver_runs_on(
    program: Any, well: Callable[..., Any], api: Api, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "refused":
        api.tokens = []
    else:
        monkeypatch.setattr(watching, "Pausing", lambda pipeline, _: pausing.Pausing(pipeline, "another"))
    program.answers(driver_watch=[{"lines": [well(), well(state="dead")], "code": 1}])
    assert watched()["state"] == "dead"
    assert program.commands == ["driver watch"]


@pytest.mark.parametrize("host", ["airflow-api:8080", "a b"])
def test_a_host_that_is_none_leaves_the_driver_alone(
    program: Any, well: Callable[..., Any], host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def found(name: str) -> Connection:
        return Connection(conn_id=name, conn_type="http", host=host)

    monkeypatch.setattr(BaseHook, "aget_connection", found)
    program.answers(driver_watch=[{"lines": [well(), well(state="dead")], "code": 1}])
    assert watched()["state"] == "dead"
