"""The embedded broker and the topic checks, on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from customer_activity.commands import broker as commands
from customer_activity.commands import extras
from customer_activity.demo.broker import node, process
from customer_activity.errors import BrokerUnavailable, EnvironmentFault, TopicMismatch
from customer_activity.inspection import doctor
from customer_activity.inspection import topics as inspected
from customer_activity.kafka import clients, topics
from customer_activity.settings import Settings
from support.broker import create_topic
from support.waiting import until

SENT_MS = 1_790_000_000_000


@contextmanager
def closing_transaction(settings: Settings) -> Iterator[Producer]:
    producer = clients.producer(settings, transactional_id="test-oldest")
    producer.init_transactions(20)
    producer.begin_transaction()
    yield producer
    producer.commit_transaction(20)


def send(settings: Settings, topic: str, value: bytes) -> None:
    producer = clients.producer(settings)
    producer.produce(topic, value, key=b"k", partition=0)
    assert producer.flush(20) == 0


def test_topics_are_made_as_the_file_says(settings: Settings) -> None:
    assert [len(clients.partitions(settings, name)) for name in topics.used(settings).values()] == [4, 4, 4, 1]
    assert topics.check(settings, create=False) == []
    assert topics.check(settings, create=True) == []


def test_missing_topics_are_named_and_made_only_when_told(settings: Settings) -> None:
    missing = settings.model_copy(update={"view_topic": f"{settings.view_topic}-b"})
    with pytest.raises(TopicMismatch, match=f"missing on .*: {missing.view_topic}\n") as raised:
        topics.check(missing, create=False)
    assert "--create-topics" in raised.value.remedy
    assert topics.check(missing, create=True) == [missing.view_topic]
    assert topics.check(missing, create=False) == []


def test_the_topics_of_brokers_that_others_run_are_made_by_a_command(settings: Settings) -> None:
    missing = settings.model_copy(update={"progress_topic": f"{settings.progress_topic}-c"})
    first, second = (CliRunner().invoke(commands.app, ["topics"], obj=missing) for _ in range(2))
    assert (first.exit_code, first.output.split()) == (0, ["created:", missing.progress_topic])
    assert (second.exit_code, second.output.strip()) == (0, "nothing to create")
    assert topics.check(missing, create=False) == []


def test_the_oldest_record_is_that_at_the_places_or_behind_them(settings: Settings) -> None:
    name = f"{settings.view_topic}-oldest"
    create_topic(settings, name, 3)
    with closing_transaction(settings) as producer:
        for partition, offset_ms in ((0, 5), (0, 9), (1, 7)):
            producer.produce(name, b"x" * 20_000, partition=partition, timestamp=SENT_MS + offset_ms)

    def found(**places: int) -> int | None:
        at = inspected.oldest(settings, {name: {int(key[1:]): offset for key, offset in places.items()}})
        return None if at is None else round(at.timestamp() * 1000) - SENT_MS

    until(lambda: found(p0=0, p1=0) == 5)  # the markers of a transaction come after its commit
    assert found(p0=1, p1=0) == 7
    until(lambda: found(p0=1) == 9)
    assert found(p0=2, p1=0) == 7, "only a marker of the transaction is left in the first"
    assert found(p2=0) is None, "there is nothing"
    assert found(p0=99) is None, "an offset that there is not"
    assert inspected.oldest(settings, {f"{name}-x": {0: 0}}) is None


def test_what_an_open_transaction_holds_back_is_told(settings: Settings) -> None:
    name = f"{settings.view_topic}-open"
    create_topic(settings, name, 1)
    send(settings, name, b"before")
    with closing_transaction(settings) as producer:
        producer.produce(name, b"held", partition=0, timestamp=SENT_MS)
        producer.flush(20)
        send(settings, name, b"behind")
        found = inspected.topics(settings, [name])[name]
        assert (found.offsets[0], found.held_back()) == ((0, 1), {0: 1})
        since = inspected.oldest(settings, {name: found.held_back()}, held_back=True)
        assert since is not None
        assert round(since.timestamp() * 1000) == SENT_MS
    until(lambda: inspected.topics(settings, [name])[name].held_back() == {})


def test_a_view_that_is_not_compacted_is_refused_by_its_setting(settings: Settings) -> None:
    name = f"{settings.view_topic}-deletes"
    create_topic(settings, name, 4, cleanup_policy="delete", delete_retention_ms="604800000")
    with pytest.raises(TopicMismatch, match=rf"topic {name} has cleanup\.policy=delete: it must be compact") as raised:
        topics.check(settings.model_copy(update={"view_topic": name}), create=True)
    assert ";" not in raised.value.what  # nothing else is wrong


def test_topics_that_somebody_just_made_otherwise_are_refused(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    raced = settings.model_copy(update={"purchase_topic": f"{settings.purchase_topic}-raced"})
    make = topics._create

    def make_too_late(admin: AdminClient, missing: list[topics.Topic]) -> None:
        create_topic(
            settings, raced.purchase_topic, 2, cleanup_policy="compact"
        )  # it was not there when this start looked
        make(admin, missing)

    monkeypatch.setattr(topics, "_create", make_too_late)
    with pytest.raises(TopicMismatch, match=rf"{raced.purchase_topic} has cleanup\.policy=compact"):
        topics.check(raced, create=True)


def test_inputs_as_kafka_makes_them_can_be_used_and_are_told_once(settings: Settings) -> None:
    own = {"purchase_topic": f"{settings.purchase_topic}-own", "profile_topic": f"{settings.profile_topic}-own"}
    for name, partitions in zip(own.values(), (3, 2), strict=True):
        create_topic(settings, name, partitions)
    theirs = settings.model_copy(update=own)
    assert topics.warning(settings) == ""  # as the file says
    assert topics.check(theirs, create=True) == []
    assert topics.warning(theirs).count("keeps records for 7 days") == 2
    (found,) = (finding for finding in doctor.diagnose(theirs) if finding.check == "topics")
    assert (found.ok, found.found.count("keeps records for 7 days"), bool(found.remedy)) == (True, 2, True)


def test_nothing_is_made_while_something_differs(settings: Settings) -> None:
    wrong, missing = f"{settings.view_topic}-one", f"{settings.profile_topic}-missing"
    create_topic(settings, wrong, 1, cleanup_policy="delete")
    with pytest.raises(TopicMismatch):
        topics.check(settings.model_copy(update={"view_topic": wrong, "profile_topic": missing}), create=True)
    assert missing not in clients.admin(settings).list_topics(timeout=10).topics


def test_a_topic_that_kafka_refuses_is_no_outage(settings: Settings) -> None:
    refused = settings.model_copy(update={"view_topic": ".."})  # the broker allows no such name
    with pytest.raises(TopicMismatch, match=r"topic \.\. cannot be created"):
        topics.check(refused, create=True)


def test_a_topic_nobody_declared_is_not_made_by_writing_to_it(settings: Settings) -> None:
    producer = clients.producer(settings, message_timeout_ms=1000)
    failures = []
    producer.produce("undeclared", b"v", on_delivery=lambda error, _: failures.append(error))
    producer.flush(20)
    assert failures[0] is not None
    assert "undeclared" not in clients.admin(settings).list_topics(timeout=10).topics


def test_a_second_start_finds_the_first(kafka: Settings) -> None:
    before = process.status(kafka)
    assert (before.is_running, before.is_answering) == (True, True)
    assert process.start(kafka) is False
    assert process.status(kafka).pid == before.pid


def test_the_port_of_another_broker_is_refused(kafka: Settings, tmp_path: Path) -> None:
    other = kafka.model_copy(update={"broker_dir": tmp_path / "other"})
    port = kafka.kafka_bootstrap_servers.rpartition(":")[2]
    with pytest.raises(EnvironmentFault, match=f"port {port} of .* is taken by"):
        process.start(other)
    assert not process.status(other).is_running


def test_the_doctor_finds_nothing_wrong(settings: Settings) -> None:
    assert [finding for finding in doctor.diagnose(settings, extras.checks()) if not finding.ok] == []


def test_the_doctor_names_a_topic_that_differs(settings: Settings) -> None:
    name = f"{settings.progress_topic}-three"
    create_topic(settings, name, 3, cleanup_policy="compact")
    wrong = [
        finding for finding in doctor.diagnose(settings.model_copy(update={"progress_topic": name})) if not finding.ok
    ]
    assert [finding.check for finding in wrong] == ["topics"]
    assert "has 3 partitions" in wrong[0].found


@pytest.mark.parametrize(
    "ends",
    [pytest.param([process.kill], id="a crash"), pytest.param([process.stop, process.kill], id="a stop and a crash")],
)
@pytest.mark.nightly
def test_data_outlives_its_broker(
    kafka: Settings, tmp_path: Path, free_address: str, ends: list[Callable[[Settings], object]]
) -> None:
    own = kafka.model_copy(update={"kafka_bootstrap_servers": free_address, "broker_dir": tmp_path / "kafka"})
    try:
        for end in ends:
            assert process.start(own) is True
            topics.check(own, create=True)
            send(own, own.purchase_topic, b"before the end")
            end(own)
            assert not process.status(own).is_running
            with pytest.raises(BrokerUnavailable):
                clients.metadata(own, seconds=1.0)

        process.start(own)
        assert topics.check(own, create=False) == []
        assert clients.offset_range(own, own.purchase_topic)[0] == (0, len(ends))
        assert process.stop(own) is True
        assert process.stop(own) is False
    finally:
        process.stop(own)


def test_a_cluster_id_may_begin_with_a_dash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Settings(kafka_bootstrap_servers="localhost:9092", broker_dir=tmp_path)
    monkeypatch.setattr("customer_activity.demo.broker.node.uuid.uuid4", lambda: UUID(bytes=b"\xfb" * 16))
    node.format_once(own, node.configure(own))
    assert "cluster.id=-_v7" in (node.data(own) / "meta.properties").read_text(encoding="utf-8")
