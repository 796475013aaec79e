"""The portal's follower on a topic that is made up: what it does with records and times that it should not meet."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from customer_activity.errors import BrokerUnavailable
from customer_activity.kafka import clients
from customer_activity.portal import following, records, store
from customer_activity.portal.following import Follower
from customer_activity.portal.freshness import State, Watch
from customer_activity.portal.records import Row
from customer_activity.portal.store import Store
from customer_activity.settings import Settings
from support.view import gone, row, value

SECONDS = 20.0  # in which anything has to come about


class Message:
    """A record at an offset of partition 0."""

    def __init__(self, offset: int, key: bytes, text: bytes | None) -> None:
        self._offset, self._key, self._value = offset, key, text

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 1, 1


class Topic:
    """A topic, its broker's answers, and the client that reads it."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.at_start = 0  # how many there are when the portal starts
        self.identity_text = "topic"
        self.identities = 0
        self.kept_millis = 604_800_000
        self._at = 0

    def put(self, *sent: tuple[str, bytes | None]) -> None:
        self.messages += [Message(len(self.messages) + i, key.encode(), text) for i, (key, text) in enumerate(sent)]

    def identity(self) -> Any:
        self.identities += 1
        return SimpleNamespace(text=self.identity_text, partitions=1)

    def begins(self, _: object) -> dict[int, int]:
        return {0: 0}

    def ends(self, _: object) -> dict[int, int]:
        return {0: len(self.messages)}

    def assign(self, places: list[Any]) -> None:
        self._at = places[0].offset

    def consume(self, most: int, **_: object) -> list[Message]:
        found = self.messages[self._at : self._at + most]
        self._at += len(found)
        return found

    def poll(self, _: float) -> Message | None:
        found = self.consume(1)
        if not found:
            threading.Event().wait(0.01)
        return found[0] if found else None

    def close(self) -> None:
        pass


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    """Return a topic that every client reads."""
    made = Topic()
    monkeypatch.setattr(following, "ViewTopic", lambda _: made)
    for name, replaced in {
        "topic_setting": lambda *_: str(made.kept_millis),
        "reader": lambda *_, **__: made,
        "find_leaders": lambda *_: None,
        "explained": lambda *_: nullcontext(),
    }.items():
        monkeypatch.setattr(clients, name, replaced)
    monkeypatch.setattr(following, "ASK_SECONDS", 0.02)
    monkeypatch.setattr(following, "AGAIN_SECONDS", 0.02)
    return made


@pytest.fixture
def follower(settings: Settings, topic: Topic) -> Iterator[Follower]:
    """Return a follower of the topic, which is not started."""
    made = Follower(settings, Watch(10.0), lambda _: None)
    yield made
    if made.is_alive:
        made.stop()


def until(follower: Follower, comes: Callable[[], object]) -> None:
    waiting = threading.Event()
    for _ in range(int(SECONDS / 0.01)):
        if comes():
            return
        assert follower.is_alive
        waiting.wait(0.01)
    pytest.fail(f"it has not come about: {follower.watch.now()}")


def has(follower: Follower, customer: str) -> bool:
    return follower.reader is not None and follower.reader.row(customer) is not None


FOREIGN = [
    pytest.param(b'{"viewVersion": 9223372036854775808}', id="a version that SQLite cannot hold"),
    pytest.param(b'{"viewVersion": 1, "x": ' + b"[" * 99_999 + b"]" * 99_999 + b"}", id="deeply nested"),
    pytest.param(b'{"viewVersion": 1, "address": "\xff"}', id="not UTF-8"),
]


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_foreign_record_ends_neither_restoring_nor_following(
    follower: Follower, topic: Topic, foreign: bytes
) -> None:
    topic.put(("C-1", value()), ("C-1", foreign), ("C-2", value("C-2")))
    follower.start()
    until(follower, lambda: has(follower, "C-2"))
    topic.put(("C-2", foreign), ("C-3", value("C-3")))
    until(follower, lambda: follower.watch.positions == topic.ends(None))  # a row is readable before it is counted
    assert has(follower, "C-3")
    assert follower.ignored == 2


@pytest.mark.parametrize("where", ["read", "words"])
def test_a_record_that_nobody_thought_of_is_passed_over_with_its_coordinates(
    follower: Follower, topic: Topic, where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read = records.read

    def reads(key: bytes | None, text: bytes | None, at: int) -> Row | None:
        if key == b"C-poison" and where == "read":
            raise AssertionError("Myrtle Ridgeway")
        row = read(key, text, at)
        return row._replace(view_version=2**64) if row is not None and key == b"C-poison" else row

    monkeypatch.setattr(records, "read", reads)
    poison = ("C-poison", value("C-poison"))
    topic.put(("C-1", value()), poison, ("C-2", value("C-2")))
    follower.start()
    until(follower, lambda: has(follower, "C-1") and has(follower, "C-2"))
    topic.put(("C-3", value("C-3")), poison, ("C-4", value("C-4")))
    until(follower, lambda: has(follower, "C-3") and has(follower, "C-4"))
    assert follower.ignored == 2
    assert "partition 0, offset 1:" in caplog.text
    assert "partition 0, offset 4:" in caplog.text
    assert "Myrtle" not in caplog.text
    assert "C-poison" not in caplog.text


def test_what_nobody_thought_of_is_told_and_tried_again(
    follower: Follower, topic: Topic, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fails = [KeyError("Myrtle Ridgeway")]
    monkeypatch.setattr(topic, "begins", lambda _: {0: 0} if not fails else (_ for _ in ()).throw(fails.pop()))
    topic.put(("C-1", value()))
    follower.start()
    until(follower, lambda: has(follower, "C-1"))
    assert "KeyError in " in caplog.text
    assert "Myrtle" not in caplog.text


def test_a_topic_that_ends_before_what_was_read_is_asked_at_once_which_one_it_is(
    follower: Follower, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.put(("C-1", value()), ("C-2", value("C-2")))
    follower.start()
    until(follower, lambda: follower.watch.now().state is State.CURRENT)
    monkeypatch.setattr(following, "IDENTITY_SECONDS", 1e9)
    topic.identity_text, topic.messages = "made again", [Message(0, b"C-3", value("C-3"))]
    until(follower, lambda: has(follower, "C-3"))
    assert not has(follower, "C-1")
    assert follower.rebuilt == 1


def test_a_topic_that_keeps_removals_hardly_at_all_is_followed(follower: Follower, topic: Topic) -> None:
    topic.kept_millis = 0
    for customer in ("C-1", "C-2", "C-3"):
        topic.put((customer, value(customer)))
        if customer == "C-1":
            follower.start()
        until(follower, partial(has, follower, customer))
        until(follower, lambda: follower.watch.now().state is State.CURRENT)
    assert follower.rebuilt == 0


def test_what_another_process_removed_is_purged_also_while_the_broker_is_gone(
    settings: Settings, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = store.create(following.folder_of(settings), "topic", {0: 0})
    held.finish()
    held.take([row()], {0: 1})
    held.take([gone()], {0: 2})
    held.close()

    def is_gone(_: object) -> None:
        raise BrokerUnavailable("no answer")

    monkeypatch.setattr(following, "ViewTopic", is_gone)
    monkeypatch.setattr(following, "PURGE_SECONDS", 0.0)
    purged = threading.Event()
    purge = Store.purge

    def purges(each: Store) -> bool:
        is_done = purge(each)
        if is_done:
            purged.set()
        return is_done

    monkeypatch.setattr(Store, "purge", purges)
    follower = Follower(settings, Watch(10.0), lambda _: None)
    follower.start()
    assert purged.wait(SECONDS)
    follower.stop()


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "customer_activity")
