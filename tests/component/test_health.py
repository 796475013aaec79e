"""Health over HTTP: what a stalled stream does to it, where it is served, and who is believed."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from customer_activity.errors import BrokerUnavailable, SettingsError
from customer_activity.inspection.query_status import QueryReport
from customer_activity.inspection.status import Report
from customer_activity.metrics import pacing, serving
from customer_activity.metrics.looks import Look
from customer_activity.metrics.pacing import Paced
from customer_activity.metrics.usage import Usage
from customer_activity.settings import Settings
from customer_activity.supervision import driver, endpoint, readiness, running
from customer_activity.supervision.driver import Driver, State
from support import scraped
from support.streams import Query
from support.waiting import until

EPOCHS: dict[str, int] = dict.fromkeys(Query, 1)


@pytest.fixture
def settings(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(serving, "POLL_SECONDS", 0.01)
    return settings.model_copy(update={"metrics_port": 0, "ready_batch_seconds": 30.0})


def look(
    settings: Settings, *, batch: float = 1.0, taken: float = 0.0, pid: int = 4_711, start: float | None = None
) -> Look:
    """Return a look at streams whose last batch ended some seconds before it, and that have something to read."""
    at = datetime.now(UTC) - timedelta(seconds=taken)
    ended = {"id": 7, "at": (at - timedelta(seconds=batch)).isoformat()}
    queries = [
        QueryReport(name, "running", pid=pid, batch=ended, lag_records=5 if name == Query.BRONZE else None)
        for name in Query
    ]
    report = Report(at, settings.lake, queries, [], {}, [])
    state, message = driver.judged(report, pid, 1_000.0, settings)
    found = Driver(state, message, pid, 1_000.0, lag_records=5, gold_rows=3, process_start=start)
    not_ready = readiness.not_ready(report, EPOCHS, 1_000.0, settings)
    return Look(report, found, not_ready, EPOCHS, {}, (), {}, {"python": Usage(1.0, 1)}, 0.0, 0.1)


class Looked:
    """Looks, as a test says."""

    def __init__(self, found: Look) -> None:
        self.found: Look | Exception = found
        self.now = 0.0
        self.seconds = 0.0
        self.taken = 0

    def take(self) -> Look:
        self.taken += 1
        self.now += self.seconds
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def show(self, found: Look | Exception) -> None:
        """Have the next one who asks see this."""
        self.found = found
        self.now += 3_600.0

    def paced(self) -> Paced:
        return Paced(self.take, clock=lambda: self.now)


@contextmanager
def driving(settings: Settings, looked: Looked) -> Iterator[None]:
    with serving.exported(settings, EPOCHS, looked.paced()):
        yield


def test_a_stalled_stream_is_not_ready_and_ready_again(settings: Settings) -> None:
    looked = Looked(look(settings))
    with driving(settings, looked):
        assert scraped.ask(settings, "/readyz")[0] == 200
        looked.show(look(settings, batch=31.0))  # behind the limit for being ready, before that for being stalled
        status, body = scraped.ask(settings, "/readyz")
        assert (status, body["ready"], list(body["not_ready"])) == (503, False, ["bronze"])
        assert "no batch for 31 s" in body["not_ready"]["bronze"]
        assert [name for name, stream in body["streams"].items() if not stream["ready"]] == ["bronze"]
        assert scraped.ask(settings, "/livez") == (200, {"alive": True, "state": "running", "message": ""})
        looked.show(look(settings))
        assert scraped.ask(settings, "/readyz")[0] == 200


def test_a_stalled_driver_is_not_alive_and_alive_again(settings: Settings) -> None:
    looked = Looked(look(settings, batch=driver.STALLED_SECONDS + 1))
    with driving(settings, looked):
        status, body = scraped.ask(settings, "/livez")
        assert (status, body["state"]) == (503, "stalled")
        assert "bronze has something to read" in body["message"]
        looked.show(look(settings))
        assert scraped.ask(settings, "/livez")[0] == 200


def test_what_cannot_be_read_any_more_is_not_ready(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    looked = Looked(look(settings, taken=pacing.old_after(0.1) + 1))
    with driving(settings, looked):
        assert scraped.ask(settings, "/readyz")[0] == 200, "nobody has asked since"
        looked.show(OSError(errno.EIO, "the first disk is gone"))
        message = scraped.ask(settings, "/readyz")[1]["message"]
        assert "nothing could be read for 71 s" in message
        assert "the first disk is gone" in message
        looked.show(look(settings))
        assert scraped.ask(settings, "/readyz")[0] == 200
        for _ in range(3):
            looked.show(RuntimeError("something new"))
            assert scraped.ask(settings, "/readyz")[0] == 200, "what was read last is still true enough"
            looked.show(BrokerUnavailable("no answer from Kafka"))
            scraped.get(settings, "/livez")
        assert scraped.get(settings, "/metrics")[0] == 200
        looked.show(look(settings))
        assert scraped.ask(settings, "/readyz")[0] == 200
        for _ in range(3):
            looked.show(OSError(errno.EIO, "the disk is gone"))
            scraped.get(settings, "/livez")
    told = [record.message for record in caplog.records if "the disk is gone" in record.message]
    assert len(told) == 1, "once, however often somebody asks"


@pytest.mark.parametrize("seconds", [0.1, 6.0, 30.0, 300.0])
def test_a_look_that_took_long_is_good_until_the_next_one_has_ended(settings: Settings, seconds: float) -> None:
    """Somebody asks every minute, so that the next one may begin a minute after it is due."""
    found = dataclasses.replace(look(settings), seconds=seconds)
    looked = Looked(found)
    looked.seconds = seconds
    paced = looked.paced()
    assert paced.look() is found
    paced.close()
    ended = found.at + timedelta(seconds=paced.due_at + 60.0 + seconds)
    later = ended + timedelta(minutes=2)
    assert serving.ready(found, ended, "the disk is gone")[0]
    assert not serving.ready(found, later, "the disk is gone")[0]
    assert serving.ready(found, later)[0], "nobody has asked"
    assert paced.due_at <= seconds + 120.0, "metrics of a large lake are not forgotten"


def test_a_look_that_does_not_end_is_told(settings: Settings) -> None:
    looked = Looked(look(settings, taken=200.0))
    begun, going_on = threading.Event(), threading.Event()

    def hangs() -> Look:
        begun.set()
        going_on.wait(30)
        return looked.take()

    paced = Paced(looked.take, wait=0.0, clock=lambda: looked.now)
    until(lambda: paced.look() is not None)
    paced.take = hangs
    looked.now += 3_600.0
    paced.look()
    assert begun.wait(30)
    assert paced.trouble() == ""
    looked.now += 100.0
    assert paced.trouble() == "a look has taken 100 s"
    assert not serving.ready(paced.newest, datetime.now(UTC), paced.trouble())[0]
    going_on.set()
    until(lambda: paced.trouble() == "")
    paced.close()


def test_nothing_is_known_before_the_first_look(settings: Settings) -> None:
    looked = Looked(look(settings))
    looked.show(OSError(errno.EIO, "the disk is gone"))
    with driving(settings, looked):
        assert scraped.ask(settings, "/readyz")[0] == 503
        assert scraped.ask(settings, "/livez")[0] == 200
        assert "activity_rows_read_total" in scraped.get(settings, "/metrics")[1]


def test_who_asks_often_costs_one_look(settings: Settings) -> None:
    looked = Looked(look(settings))
    with driving(settings, looked):
        for _ in range(5):
            scraped.get(settings, "/metrics")
            scraped.ask(settings, "/readyz")
        assert looked.taken == 1
        looked.now += 3_600.0
        scraped.get(settings, "/metrics")
        assert looked.taken == 2


def test_nobody_waits_for_a_look_that_hangs(settings: Settings) -> None:
    hangs, begun = threading.Event(), threading.Event()

    def take() -> Look:
        begun.set()
        hangs.wait()
        return look(settings)

    paced = Paced(take, wait=0.01)
    with serving.exported(settings, EPOCHS, paced):
        assert scraped.ask(settings, "/readyz")[0] == 503
        assert begun.is_set()
        assert scraped.ask(settings, "/livez")[0] == 200
    hangs.set()


def test_a_scrape_has_always_all(settings: Settings) -> None:
    with driving(settings, Looked(look(settings))):
        body = scraped.get(settings, "/metrics?name[]=activity_gate_held")[1]
    assert "activity_gate_held" in body
    assert "activity_stream_state" in body


def test_other_paths_are_named(settings: Settings) -> None:
    with driving(settings, Looked(look(settings))):
        assert scraped.ask(settings, "/") == (404, {"paths": ["/metrics", "/livez", "/readyz"]})


class TestPlace:
    def test_two_pipelines_have_a_port_each(self, settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
        other = settings.model_copy(update={"run_dir": settings.run_dir / "other", "pipeline": "orders"})
        with driving(settings, Looked(look(settings))):
            port = int(str(endpoint.url(settings)).rpartition(":")[2])
            same = other.model_copy(update={"metrics_port": port})
            with driving(same, Looked(look(same))):
                assert f"port {port} is taken by another process" in caplog.text
                assert endpoint.url(same) != endpoint.url(settings)
                assert scraped.ask(same, "/readyz")[0] == 200

    def test_prometheus_finds_it_by_its_file(self, settings: Settings) -> None:
        file = settings.run_dir / "metrics.json"
        with driving(settings, Looked(look(settings))):
            port = str(endpoint.url(settings)).rpartition(":")[2]
            labels = {"expected_pipeline": settings.pipeline}
            assert json.loads(file.read_text()) == [{"targets": [f"127.0.0.1:{port}"], "labels": labels}]
        assert file.exists(), "it is missed there"

    @pytest.mark.parametrize("address", ["0.0.0.0", "::1", "::"])  # noqa: S104 - meant
    def test_other_addresses_are_asked_here_by_loopback(self, settings: Settings, address: str) -> None:
        chosen = settings.model_copy(update={"metrics_address": address})
        with driving(chosen, Looked(look(chosen))):
            assert scraped.ask(chosen, "/readyz")[0] == 200

    def test_an_address_of_another_machine_is_refused(self, settings: Settings) -> None:
        wrong = settings.model_copy(update={"metrics_address": "192.0.2.1"})
        with (
            pytest.raises(SettingsError, match=r"cannot be served at 192\.0\.2\.1"),
            driving(wrong, Looked(look(wrong))),
        ):
            pass

    def test_it_can_be_switched_off(self, settings: Settings) -> None:
        off = settings.model_copy(update={"metrics": False})
        with serving.served(off, EPOCHS):
            assert endpoint.url(off) is None

    def test_a_backfill_serves_nothing(self, settings: Settings) -> None:
        with serving.served(settings, {}):
            assert endpoint.url(settings) is None


class TestSupervision:
    """`activity driver watch` believes a driver that answers, and looks from outside where none does."""

    @pytest.fixture(autouse=True)
    def _one_driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(running, "stream_pids", lambda *_, **__: [os.getpid()])

    @pytest.fixture
    def outside(self, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Driver:
        found = Driver(State.STALLED, "seen from outside", os.getpid())
        monkeypatch.setattr(driver, "look", lambda _: (look(settings).report, found))
        return found

    def test_a_driver_says_itself_how_it_is(self, settings: Settings, outside: Driver) -> None:
        with driving(settings, Looked(look(settings, pid=os.getpid()))):
            found = driver.observe(settings)
        assert (found.state, found.lag_records, found.gold_rows) == (State.RUNNING, 5, 3)
        assert driver.observe(settings) == outside, "it has ended"

    def test_a_driver_that_is_stalled_says_so_itself(self, settings: Settings, outside: Driver) -> None:
        stalled = look(settings, batch=driver.STALLED_SECONDS + 1, pid=os.getpid())
        with driving(settings, Looked(stalled)):
            found = driver.observe(settings)
        assert found != outside
        assert (found.state, "bronze has something to read" in found.message) == (State.STALLED, True)

    @pytest.mark.parametrize(
        "changed",
        [
            pytest.param({"pid": 1}, id="another process answers"),
            pytest.param({"pid": os.getpid(), "start": 1.0}, id="another process of the same number answers"),
            pytest.param({"pid": os.getpid(), "taken": driver.ANSWER_SECONDS + 1}, id="its look is old"),
        ],
    )
    def test_who_is_not_believed(self, settings: Settings, outside: Driver, changed: dict[str, Any]) -> None:
        with driving(settings, Looked(look(settings, **changed))):
            assert driver.observe(settings) == outside

    @pytest.mark.parametrize(
        "answer",
        [
            pytest.param(b"", id="it hangs up"),
            pytest.param(b"HTTP/1.0 200 OK\r\n\r\nnot JSON", id="it is no driver"),
            pytest.param(b"HTTP/1.0 200 OK\r\n\r\n[]", id="another thing in JSON"),
            pytest.param(b'HTTP/1.0 200 OK\r\n\r\n{"driver": {"pid": 1}, "at": "yesterday"}', id="another release"),
            pytest.param(b"HTTP/1.0 500 Oops\r\n\r\n", id="it has a fault"),
            pytest.param(b"EHLO\r\n", id="it does not speak HTTP"),
        ],
    )
    def test_what_is_no_answer(self, settings: Settings, outside: Driver, answer: bytes) -> None:
        settings.run_dir.mkdir(parents=True)
        with socket.create_server(("127.0.0.1", 0)) as server:
            endpoint.tell(settings, "127.0.0.1", server.getsockname()[1])

            def serve() -> None:
                connection, _ = server.accept()
                connection.recv(1_000)
                connection.sendall(answer)
                connection.close()

            thread = threading.Thread(target=serve)
            thread.start()
            assert driver.observe(settings) == outside
            thread.join()

    def test_one_that_is_frozen_is_not_waited_for(
        self, settings: Settings, outside: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(endpoint, "ANSWER_SECONDS", 0.05)
        settings.run_dir.mkdir(parents=True)
        with socket.create_server(("127.0.0.1", 0)) as server:  # takes a connection, and never answers
            endpoint.tell(settings, "127.0.0.1", server.getsockname()[1])
            assert driver.observe(settings) == outside

    def test_a_file_that_is_none_of_ours(self, settings: Settings, outside: Driver) -> None:
        settings.run_dir.mkdir(parents=True)
        (settings.run_dir / endpoint.FILE).write_text("{}")
        assert driver.observe(settings) == outside
