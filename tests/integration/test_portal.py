"""The portal with a broker: restores, follows, is killed, and meets topics that are not what they were."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from customer_activity.demo.broker import process
from customer_activity.kafka import clients, topics
from customer_activity.portal.following import Follower
from customer_activity.portal.freshness import State, Watch
from customer_activity.portal.reading import Change
from customer_activity.portal.store import newest
from customer_activity.settings import Settings
from support import addresses
from support.portal import begun, running, send, write
from support.view import row, value
from support.waiting import until


@dataclass
class Portal:
    """A portal's follower in this process."""

    settings: Settings
    changes: list[Change] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = Watch(10.0)
        self.follower = Follower(self.settings, self.watch, self.changes.extend)

    def row(self, customer_id: str) -> dict[str, Any] | None:
        reader = self.follower.reader
        found = reader.row(customer_id) if reader else None
        return None if found is None else dict(json.loads(found))

    def has_all(self) -> bool:
        """Whether it has everything that had been committed when this was asked first."""
        now = self.watch.now()
        return now.is_served and now.lag_records == 0 and now.state is State.CURRENT


@contextmanager
def following(settings: Settings) -> Iterator[Portal]:
    """Follow the view topic until the block ends; it has all that was there at its beginning."""
    portal = Portal(settings)
    portal.follower.start()
    try:
        until(portal.has_all)
        yield portal
    finally:
        portal.follower.stop()


def test_what_is_on_the_topic_is_restored_and_what_comes_is_followed(settings: Settings) -> None:
    send(settings, ("C-1", value()), ("C-2", value("C-2")), ("C-3", value("C-3")))
    send(settings, ("C-3", None))
    with following(settings) as portal:
        assert [bool(portal.row(each)) for each in ("C-1", "C-2", "C-3")] == [True, True, False]
        send(settings, ("C-1", value(viewVersion=2, address="38 New Street")), ("C-2", None))
        until(lambda: len(portal.changes) == 2)
        assert (portal.row("C-1") or {})["address"] == "38 New Street"
        assert portal.row("C-2") is None
        told = {change.customer_id: (change.kind, change.fields) for change in portal.changes}
        assert told == {"C-1": ("changed", ["address"]), "C-2": ("removed", [])}


def test_what_is_not_committed_is_never_seen(settings: Settings) -> None:
    send(settings, ("C-1", value(name="aborted")), commits=False)
    send(settings, ("C-2", value("C-2")))
    with following(settings) as portal:
        assert portal.row("C-1") is None
        producer = begun(settings)
        write(producer, settings, [("C-2", value("C-2", viewVersion=2, name="open"))])
        asked = portal.watch.now().complete_until
        until(lambda: (portal.watch.now().complete_until or 0) > (asked or 0))  # an open transaction holds nothing up
        producer.abort_transaction(30)
        send(settings, ("C-2", value("C-2", viewVersion=3, name="committed")))
        until(lambda: portal.changes)
        assert [json.loads(change.value or b"{}")["name"] for change in portal.changes] == ["committed"]


def test_a_portal_goes_on_where_it_was(settings: Settings) -> None:
    send(settings, ("C-1", value()), ("C-2", value("C-2")))
    with following(settings):
        pass
    send(settings, ("C-1", value(viewVersion=2, name="Ann")), ("C-2", None))
    with following(settings) as portal:
        until(lambda: portal.row("C-2") is None)
        assert (portal.row("C-1") or {})["name"] == "Ann"
        assert (portal.follower.restore_seconds, portal.follower.rebuilt) == (None, 0)


def remade(settings: Settings) -> None:
    """Delete the view topic and make it again, longer than it was."""
    admin = clients.admin(settings)  # held until the answer is there
    admin.delete_topics([settings.view_topic])[settings.view_topic].result(20)
    until(lambda: settings.view_topic not in clients.metadata(settings).topics)
    topics.check(settings, create=True)
    send(settings, *((f"C-{number}", value(f"C-{number}")) for number in range(2, 40)))  # some in each partition


def shortened(settings: Settings) -> None:
    """Take records off the topic that the portal had still to read."""
    for version in range(2, 4):
        send(settings, *((f"C-{number}", value(f"C-{number}", viewVersion=version)) for number in range(9)))
    ends = {p: end for p, (_, end) in clients.offset_range(settings, settings.view_topic).items()}
    cut = [TopicPartition(settings.view_topic, partition, end) for partition, end in ends.items()]
    admin = clients.admin(settings)  # held until the answers are there
    resource = ConfigResource(ConfigResource.Type.TOPIC, settings.view_topic)
    resource.add_incremental_config(
        ConfigEntry("cleanup.policy", "compact,delete", incremental_operation=AlterConfigOpType.SET)
    )
    admin.incremental_alter_configs([resource])[resource].result(20)  # of a topic that is only compacted none go
    for answer in admin.delete_records(cut).values():
        answer.result(20)
    send(settings, ("C-9", value("C-9")))


def away(settings: Settings) -> None:
    """Have it not be brought up to date for longer than the topic keeps tombstones."""
    held = newest(settings.run_dir / "portal")
    assert held is not None
    held._tell("begun_at", "0")
    held.complete(time.time() - 8 * 24 * 3600)
    held.close()
    send(settings, ("C-1", None), ("C-9", value("C-9")))


def interrupted(settings: Settings) -> None:
    """Have it be killed long ago while it restored; since then a removal is gone from the topic."""
    held = newest(settings.run_dir / "portal")
    assert held is not None
    held.restore([row("C-gone")], {})
    held._tell("begun_at", "0")
    held.connection.execute("DELETE FROM facts WHERE name IN ('restored_at', 'complete_until')")
    held.close()
    send(settings, ("C-1", None), ("C-9", value("C-9")))


def damaged(settings: Settings) -> None:
    """Overwrite a part of the store."""
    send(settings, ("C-1", None), ("C-9", value("C-9")))
    for path in (settings.run_dir / "portal").glob("*.sqlite*"):
        path.write_bytes(path.read_bytes()[:50] + b"\x00" * 5000)


@pytest.mark.parametrize(
    "happens",
    [
        remade,
        interrupted,
        pytest.param(away, marks=pytest.mark.nightly),
        pytest.param(shortened, marks=pytest.mark.nightly),
        pytest.param(damaged, marks=pytest.mark.nightly),
    ],
)
def test_a_store_that_is_not_of_the_topic_is_made_again(settings: Settings, happens: Any) -> None:
    send(settings, ("C-1", value()))
    with following(settings):
        pass
    happens(settings)
    with following(settings) as portal:
        until(lambda: portal.row("C-9"))
        assert portal.row("C-1") is None
        assert portal.row("C-gone") is None
        assert portal.follower.restore_seconds is not None


def test_a_portal_whose_broker_was_away_for_long_reads_the_topic_again(settings: Settings) -> None:
    send(settings, ("C-1", value()))
    with following(settings) as portal:
        portal.follower._kept_seconds = -1.0  # any time is long

        def is_made_again() -> bool:
            send(settings, ("C-2", value("C-2")))  # the poll at work may have begun before that
            return portal.follower.rebuilt == 1

        until(is_made_again)
        until(lambda: portal.row("C-2"))


def test_a_topic_that_is_made_again_while_it_is_followed_is_noticed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("customer_activity.portal.following.IDENTITY_SECONDS", 0.2)
    send(settings, ("C-1", value()))
    with following(settings) as portal:
        remade(settings)
        # A record of the new topic may be among the old rows until the identity is asked.
        until(lambda: portal.follower.rebuilt == 1 and portal.row("C-9"))
        assert portal.row("C-1") is None


def test_what_is_not_the_publishers_is_passed_over_and_counted(settings: Settings) -> None:
    send(settings, ("C-1", value()), ("C-1", b"no row"), ("C-2", value("C-2")))
    with following(settings) as portal:
        assert [bool(portal.row(each)) for each in ("C-1", "C-2")] == [True, True]
        assert portal.follower.ignored == 1


@pytest.mark.nightly
def test_a_topic_that_is_not_there_yet_is_waited_for(settings: Settings) -> None:
    own = settings.model_copy(update={"view_topic": f"{settings.view_topic}-later"})
    portal = Portal(own)
    portal.follower.start()
    until(lambda: f"topic {own.view_topic}" in portal.watch.now().problem)
    topics.check(own, create=True)
    send(own, ("C-1", value()))
    until(lambda: portal.row("C-1") and portal.has_all())
    assert portal.watch.now().problem == ""
    portal.follower.stop()


@pytest.fixture
def served(settings: Settings) -> Settings:
    """Return settings of a portal with a port of its own."""
    return settings.model_copy(update={"portal_port": int(addresses.free().rpartition(":")[2])})


def test_a_portal_that_is_killed_answers_right_again_without_reading_all(served: Settings) -> None:
    send(served, *((f"C-{number}", value(f"C-{number}")) for number in range(200)))
    with running(served) as asks:
        assert asks.get("/customers/C-7").json()["customer"]["name"] == "Myrtle Ridgeway"
        with asks.stream("GET", "/events?customer=C-7") as events:
            lines = events.iter_lines()
            assert next(line for line in lines if line == "event: row")
            send(served, ("C-7", value("C-7", viewVersion=2, address="38 New Street")))
            assert next(line for line in lines if line == "event: changes")
            assert json.loads(next(lines).removeprefix("data: "))["changes"][0]["fields"] == ["address"]
    send(served, ("C-7", value("C-7", viewVersion=3, address="39 New Street")), ("C-8", None))
    with running(served, "portal-again") as asks:
        assert asks.get("/customers/C-7").json()["customer"]["address"] == "39 New Street"
        assert asks.get("/customers/C-8").status_code == 404
        metrics = asks.get("/metrics").text
        assert "activity_portal_customers 199.0" in metrics
        assert "\nactivity_portal_restore_seconds " not in metrics  # it was not restored from the topic
    log = (served.run_dir / "portal-again.log").read_text(encoding="utf-8")
    assert not [word for word in ("C-7", "Myrtle", "New Street") if word in log]


@pytest.mark.nightly
def test_when_the_broker_is_gone_rows_are_served_as_stale_and_followed_when_it_is_back(
    kafka: Settings, tmp_path: Path
) -> None:
    own = kafka.model_copy(
        update={
            "kafka_bootstrap_servers": addresses.free(),
            "broker_dir": tmp_path / "kafka",
            "run_dir": tmp_path / "run",
        }
    )
    process.start(own)
    topics.check(own, create=True)
    send(own, ("C-1", value()))
    with following(own) as portal:
        portal.watch.stale_seconds = 2.0
        process.stop(own)
        until(lambda: portal.watch.now().state is State.SILENT)
        assert (portal.row("C-1") or {})["name"] == "Myrtle Ridgeway"
        assert "no answer from Kafka" in portal.watch.now().problem
        process.start(own)
        send(own, ("C-1", value(viewVersion=2, name="Ann")))
        until(lambda: (portal.row("C-1") or {})["name"] == "Ann" and portal.watch.now().state is State.CURRENT)
        assert (portal.follower.rebuilt, portal.watch.now().problem) == (0, "")
    process.stop(own)
    late = Portal(own)
    late.follower.start()
    until(lambda: late.row("C-1"))
    assert late.watch.now().state is State.SILENT
    late.follower.stop()
