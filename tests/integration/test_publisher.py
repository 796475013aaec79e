"""The publisher against a real broker: whose topics they are, what others' transactions hide, and bounded ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from customer_activity.errors import TerminalError, TransientError
from customer_activity.kafka import clients, settled, topics
from customer_activity.kafka.marker import BEFORE_THE_FIRST, Marker
from customer_activity.settings import Settings
from customer_activity.streams.publish import transaction
from customer_activity.streams.publish.transaction import Publisher
from support.broker import view

OURS, THEIRS = "our gold", "their gold"


def publish(settings: Settings, table_id: str, key: bytes = b"C-1", version: int = 1) -> None:
    with Publisher(settings) as publisher:
        publisher.publish([(key, b"{}")], Marker(table_id, version))


def other_topics(settings: Settings, **names: str) -> Settings:
    """Return settings with other topics, which are made."""
    other = settings.model_copy(update={name: f"{topic}-{uuid4().hex[:8]}" for name, topic in names.items()})
    topics.check(other, create=True)
    return other


@contextmanager
def open_transaction(settings: Settings, topic: str) -> Iterator[Producer]:
    """Have somebody's transaction open on a topic."""
    producer = clients.producer(settings, transactional_id=f"somebody-{topic}", transaction_timeout_ms=600_000)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, key=b"somebody", value=b"")
    assert producer.flush(30) == 0
    try:
        yield producer
    finally:
        producer.abort_transaction(30)


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        pytest.param({}, "published to from another lake", id="both topics are theirs"),
        pytest.param({"view_topic": "theirs"}, "markers of another deployment.*theirs", id="the progress topic"),
    ],
)
def test_a_deployment_on_topics_of_another_is_refused_and_does_it_no_harm(
    settings: Settings, theirs: dict[str, str], message: str
) -> None:
    other = other_topics(settings, **theirs)
    with Publisher(other) as running:
        running.publish([(b"C-1", b"{}")], Marker(THEIRS, 1))

        with pytest.raises(TerminalError, match=message):
            Publisher(settings, [OURS])

        running.publish([(b"C-1", b"{}")], Marker(THEIRS, 2))  # nobody fenced it


def test_a_resync_takes_over_from_a_pipeline_of_another_name_that_is_at_work(settings: Settings) -> None:
    """Each would undo what the other sends: its next transaction fails, and its driver says who has taken over."""
    theirs = settings.model_copy(update={"pipeline": "theirs"})
    with Publisher(theirs) as running:
        running.publish([(b"C-1", b"{}")], Marker(THEIRS, 1))
        with Publisher(settings) as resyncing:
            resyncing.publish([(b"C-1", b'{"row": 1}')], Marker(OURS, 1))
            with pytest.raises(TerminalError, match="another publisher took over"):
                running.publish([(b"C-1", b"{}")], Marker(THEIRS, 2))
    assert view(settings) == [("C-1", {}), ("C-1", {"row": 1})]
    with Publisher(settings, [OURS]) as again:
        assert again.marker == Marker(OURS, 1)


def test_a_view_topic_that_another_progress_topic_tells_of_is_refused(settings: Settings) -> None:
    publish(other_topics(settings, progress_topic="theirs"), THEIRS)
    with pytest.raises(TerminalError, match="no marker of who published"):
        Publisher(settings, [OURS])


@pytest.mark.parametrize(
    ("ours", "before"),
    [
        pytest.param([OURS], OURS, id="the same lake, wherever it is"),
        pytest.param([OURS, "gold of before"], "gold of before", id="another generation of it"),
    ],
)
def test_a_deployment_goes_on_with_its_own_topics(settings: Settings, ours: list[str], before: str) -> None:
    publish(settings, before)
    publish(other_topics(settings, view_topic="before"), before)  # its view had another name
    with Publisher(settings, ours) as publisher:
        assert publisher.marker == Marker(before, 1)


def test_what_a_publisher_that_dies_has_not_committed_is_nobodys_and_on_no_topic(settings: Settings) -> None:
    with Publisher(settings) as dying:
        dying.producer.begin_transaction()
        dying.producer.produce(settings.view_topic, key=b"C-1", value=b"{}")
        assert dying.producer.flush(30) == 0
        with Publisher(settings, [OURS]) as publisher:
            assert publisher.marker == Marker(OURS, BEFORE_THE_FIRST)
            publisher.publish([(b"C-2", b"{}")], Marker(OURS, 1))
            assert view(settings) == [("C-2", {})]


@pytest.mark.parametrize("theirs", [{}, {"view_topic": "theirs"}], ids=["both topics", "the progress topic"])
def test_a_deployment_is_seen_before_it_has_published_anything(settings: Settings, theirs: dict[str, str]) -> None:
    with (
        Publisher(other_topics(settings, **theirs), [THEIRS]) as running,
        pytest.raises(TerminalError, match="another"),
    ):
        Publisher(settings, [OURS])
    with Publisher(running.settings, [THEIRS]) as again:
        assert again.marker == Marker(THEIRS, BEFORE_THE_FIRST)


def test_what_a_resync_has_begun_a_resync_has_to_end(settings: Settings) -> None:
    with Publisher(settings) as resyncing:
        resyncing.publish([(b"C-1", b"{}")], Marker(OURS, 1, is_resyncing=True))
        with pytest.raises(TerminalError, match="a resync of publish has sent some of what differs to") as refused:
            Publisher(settings, [OURS])
        assert "activity resync publish" in str(refused.value)
        resyncing.publish([(b"C-2", b"{}")], Marker(OURS, 1))  # nobody fenced it
    with Publisher(settings, [OURS]) as publisher:
        assert publisher.marker == Marker(OURS, 1)


@pytest.fixture
def hidden(settings: Settings) -> Iterator[Producer]:
    """Have the newest marker, of version 2, behind a transaction of somebody's that is open."""
    with Publisher(settings) as publisher:
        publisher.publish([(b"C-1", b"{}")], Marker(OURS, 1))
        with open_transaction(settings, settings.progress_topic) as somebody:
            publisher.publish([(b"C-1", b"{}")], Marker(OURS, 2))
            yield somebody


@pytest.mark.usefixtures("hidden")
def test_a_marker_that_somebodys_transaction_hides_is_not_gone_without(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settled, "SETTLE_SECONDS", 1.0)
    with pytest.raises(TransientError, match="transaction of another producer is open"):
        Publisher(settings)


def test_a_marker_that_somebodys_transaction_hides_is_waited_for(
    settings: Settings, hidden: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden.abort_transaction(30)
    hidden.begin_transaction()
    hidden.produce(settings.progress_topic, key=b"somebody", value=None)
    assert hidden.flush(30) == 0
    looked = 0

    def look(_: float) -> None:
        nonlocal looked
        looked += 1
        if looked == 1:
            hidden.abort_transaction(30)
            hidden.begin_transaction()

    monkeypatch.setattr(time, "sleep", look)
    with Publisher(settings) as publisher:
        assert publisher.marker == Marker(OURS, 2)
    assert looked


def test_a_transaction_that_takes_too_long_says_so_and_leaves_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "TRANSACTION_TIMEOUT_SECONDS", 3.0)
    with Publisher(settings) as publisher:

        def slowly() -> Iterator[tuple[bytes, bytes]]:
            yield b"C-1", b"{}"
            assert publisher.producer.flush(30) == 0
            settled.settle(settings, settings.view_topic)  # until the broker has ended it
            yield b"C-2", b"{}"

        with pytest.raises(TransientError, match=r"the transaction took .* and the broker ends one after 3 s"):
            publisher.publish(slowly(), Marker(OURS, 1))
    with Publisher(settings) as publisher:
        assert publisher.marker is None
        publisher.publish([(b"C-3", b"{}")], Marker(OURS, 1))
    assert view(settings) == [("C-3", {})]
