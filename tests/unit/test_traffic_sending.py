"""Sending: all of it or an error, and a report that counts every kind."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import typer
from confluent_kafka import KafkaError
from typer.testing import CliRunner

from customer_activity import catalog
from customer_activity.demo.commands import traffic as command
from customer_activity.demo.traffic import generator, mixing, profiles, sending
from customer_activity.demo.traffic.mixing import Disturbance
from customer_activity.demo.traffic.profiles import ProfileTraffic
from customer_activity.demo.traffic.record import CONFLICT, PROFILE, PROFILE_CHANGE, PURCHASE
from customer_activity.errors import BrokerUnavailable
from customer_activity.kafka import clients
from customer_activity.settings import load
from support.traffic import small


class Broker:
    """Stands for a producer: takes `room` records between two polls and fails those whose key is in `failing`."""

    def __init__(self, room: int = 10**9, failing: frozenset[bytes] = frozenset()) -> None:
        self.room, self.failing = room, failing
        self.queued: list[tuple[bytes, Callable[[KafkaError | None, None], None]]] = []
        self.sent: list[tuple[str, bytes | None, bytes, Any]] = []

    def produce(self, topic: str, value: bytes | None, key: bytes, *, on_delivery: Any, headers: Any = None) -> None:
        if len(self.queued) >= self.room:
            raise BufferError("queue full")
        self.queued.append((key, on_delivery))
        self.sent.append((topic, value, key, headers))

    def poll(self, _timeout: float) -> int:
        for key, report in self.queued:
            if key in self.failing:
                report(KafkaError(KafkaError._MSG_TIMED_OUT), None)
        self.queued.clear()
        return 0

    def flush(self, timeout: float) -> int:
        return self.poll(timeout)

    def purge(self) -> None:
        self.queued.clear()


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[[Broker], Broker]:
    def connected(broker: Broker) -> Broker:
        monkeypatch.setattr(clients, "partitions", lambda _settings, _topic: [0])
        monkeypatch.setattr(clients, "producer", lambda _settings, **_: broker)
        return broker

    return connected


def test_all_records_are_sent_when_the_queue_runs_full(connect: Callable[[Broker], Broker]) -> None:
    broker = connect(Broker(room=300))
    plan = ProfileTraffic(tombstones=3)
    records = list(mixing.disturbed(generator.records(small(profiles=plan)), Disturbance(bad_share=0.1)))
    progress: list[int] = []
    tally = sending.send(records, load(), progress=progress.append)
    topics = load().topics
    assert broker.sent == [(topics[r.role], r.value, r.key, list(r.headers) or None) for r in records]
    assert tally.records == len(records) == progress[-1]
    assert tally.counts == Counter((record.role, record.kind) for record in records)
    assert not tally.is_interrupted


def test_record_that_is_not_confirmed_is_an_error(connect: Callable[[Broker], Broker]) -> None:
    connect(Broker(failing=frozenset({b"p-0-1999"})))
    with pytest.raises(BrokerUnavailable, match="did not confirm every record"):
        sending.send(generator.records(small()), load())


def test_stop_ends_with_what_was_sent(connect: Callable[[Broker], Broker]) -> None:
    broker = connect(Broker())
    tally = sending.send(generator.records(small()), load(), is_stopping=lambda: bool(broker.sent))
    assert tally.is_interrupted
    assert tally.records == len(broker.sent) == sending.CHUNK_RECORDS


def test_rate_is_kept(connect: Callable[[Broker], Broker]) -> None:
    connect(Broker())
    tally = sending.send(generator.records(small(customers=1, purchases=99)), load(), rate=1_000)
    assert tally.records / tally.seconds <= 1_000


@pytest.fixture
def run(connect: Callable[[Broker], Broker]) -> Callable[..., Any]:
    connect(Broker())
    app = typer.Typer()

    @app.callback()
    def keep_settings(ctx: typer.Context) -> None:
        ctx.obj = load()

    app.command("produce")(command.produce)
    return lambda *arguments: CliRunner().invoke(app, ["produce", *arguments])


def test_report_counts_every_kind_and_what_belongs_in_quarantine(run: Callable[..., Any]) -> None:
    shares = ("--bad-share", "0.1", "--duplicate-share", "0.05", "--conflict-share", "0.05")
    result = run("--customers", "20", "--purchases", "3000", "--profile-changes", "30", "--json", *shares)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    topics = load().topics
    purchases, updates = (report["topics"][topics[r]] for r in (catalog.PURCHASES_ROLE, catalog.PROFILES_ROLE))
    assert purchases[PURCHASE] == 3_000
    assert (updates[PROFILE], updates[PROFILE_CHANGE]) == (20, 30)
    bad = purchases["bad"] + updates["bad"]
    assert sum(report["bad_kinds"].values()) == bad
    assert sum(report["expected_in_quarantine"].values()) == bad + purchases[CONFLICT]
    assert report["records"] == sum(purchases.values()) + sum(updates.values())


def test_summary_is_readable(run: Callable[..., Any]) -> None:
    result = run(
        "--dataset", "completejourney", "--lines", "1000", "--rate", "100000", "--profile-updates-per-second", "5000"
    )
    assert result.exit_code == 0, result.output
    assert "completejourney" in result.stdout
    assert "profile_change" in result.stdout
    assert "sent and confirmed 1,854 records" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param(["--lines", "5"], "--dataset", id="lines without a data set"),
        pytest.param(["--dataset", "completejourney", "--purchases", "5"], "--lines", id="purchases of a data set"),
        pytest.param(["--profile-updates-per-second", "5"], "--rate", id="updates a second without a rate"),
        pytest.param(["--profile-updates-per-second", "5", "--rate", "5"], "--rate", id="updates at the whole rate"),
    ],
)
def test_options_that_do_not_fit_are_refused(run: Callable[..., Any], arguments: list[str], complaint: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert complaint in result.output


def test_population_without_profiles_leaves_the_purchases_alone() -> None:
    purchases = list(generator.purchases(small()))
    nobody = profiles.Population(0, generator.person, 0)
    assert (
        list(profiles.among(iter(purchases), generator.moments(small()), nobody, ProfileTraffic(changes=5)))
        == purchases
    )
