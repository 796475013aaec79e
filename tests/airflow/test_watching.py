"""The driver's task while it is deferred: what the watch sees, and what pausing, clearing and a lost watch lead to."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from activity_dags import pausing, watching
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


def test_clearing_the_task_stops_the_driver(program: Any) -> None:
    program.answers(driver_stop=[{"lines": ["stopped"]}])
    asyncio.run(DriverTrigger(pipeline=DEFAULT, dag_id="stream", until=FAR).on_kill())
    assert program.commands == ["driver stop"]


class Api(BaseHTTPRequestHandler):
    """Stands in for Airflow's REST API, as its documentation has it."""

    answers: list[bool]
    tokens: list[str]
    given = 0

    def do_POST(self) -> None:
        who = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).given += 1
        self.answer(201, {"access_token": f"token-{self.given}"}) if who == {
            "username": "watcher",
            "password": "secret",
        } else self.answer(401, {})

    def do_GET(self) -> None:
        if self.path != "/api/v2/dags/stream" or self.headers["Authorization"] not in self.tokens:
            return self.answer(401, {})
        paused = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return self.answer(200, {"dag_id": "stream", "is_paused": paused})

    def answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Api]]:
    class Mine(Api):
        answers, tokens = [False], ["Bearer token-1"]

    with HTTPServer(("127.0.0.1", 0), Mine) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()

        async def found(name: str) -> Connection:
            assert name == "customer_activity_airflow"
            return Connection(
                conn_id=name,
                conn_type="http",
                host="127.0.0.1",
                port=server.server_port,
                login="watcher",
                password="secret",  # noqa: S106 - of the server above
            )

        monkeypatch.setattr(BaseHook, "aget_connection", found)
        monkeypatch.setattr(pausing, "ASK_SECONDS", 0.01)
        yield Mine
        server.shutdown()
        serving.join()


def test_pausing_stops_the_driver_until_it_goes_on(program: Any, well: Callable[..., Any], api: type[Api]) -> None:
    api.answers = [True, True, True, False]
    program.answers(driver_watch=[{"lines": [well()], "stays": True}], driver_stop=[{"lines": ["stopped"]}])
    event = watched()
    assert (event["state"], event["message"]) == ("stopped", "the DAG was paused")
    assert program.commands == ["driver watch", "driver stop"]
    assert api.answers == [False]


def test_a_dag_that_is_not_paused_is_left_alone(program: Any, well: Callable[..., Any], api: type[Api]) -> None:
    program.answers(driver_watch=[{"lines": [well(), well(state="dead")], "code": 1}])
    assert watched()["state"] == "dead"
    assert program.commands == ["driver watch"]


def test_a_token_that_is_not_taken_any_longer_is_replaced(api: type[Api]) -> None:
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
    program: Any, well: Callable[..., Any], api: type[Api], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "refused":
        api.tokens = []
    else:
        monkeypatch.setattr(watching, "Pausing", lambda pipeline, _: pausing.Pausing(pipeline, "another"))
    program.answers(driver_watch=[{"lines": [well(), well(state="dead")], "code": 1}])
    assert watched()["state"] == "dead"
    assert program.commands == ["driver watch"]
