"""Follows the view topic: restores the store from it where there is none, then takes in each committed record.

Two threads: one reads the topic and writes the store, the other asks the broker where the topic ends, also while
nothing comes, so that silence is known from a topic that has nothing new.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from customer_activity import shown
from customer_activity.errors import ActivityError
from customer_activity.kafka import clients
from customer_activity.portal import store
from customer_activity.portal.freshness import Watch
from customer_activity.portal.intake import Intake, Outdated
from customer_activity.portal.reading import Change, Reader
from customer_activity.portal.records import Row
from customer_activity.portal.store import Store
from customer_activity.portal.topic import ViewTopic
from customer_activity.settings import Settings
from customer_activity.storage.filesystem import keep_private

ASK_SECONDS = 1.0  # between two questions where the topic ends
IDENTITY_SECONDS = 10.0  # between two questions which topic it is
AGAIN_SECONDS = 2.0  # after a failure
IDLE_SECONDS = 1.0  # a record that comes meanwhile is returned at once
NOTE_SECONDS = 60.0  # between two notes in the store of how complete it is, while nothing comes
PURGE_SECONDS = 2700.0  # from a removal until the files are rid of it; to do so may take some steps, within the hour
BATCH_RECORDS = 5_000
RESTORE_RECORDS = 20_000  # of a transaction while nobody reads
RESTORE_WAIT_SECONDS = 0.2
QUEUED_KB = 16_384  # that the client fetches ahead
LEAST_KEPT_SECONDS = 60.0  # whatever the topic says: else each pause between two answers would make the store again
DELETE_RETENTION = "delete.retention.ms"
TOO_LONG = "it was not brought up to date for so long that removals may be gone from the topic"
READING, ASKING = "reading", "asking"

log = logging.getLogger("customer_activity")
Notify = Callable[[list[Change]], None]


class Follower:
    """The two threads, and what they bring about."""

    def __init__(self, settings: Settings, watch: Watch, notify: Notify) -> None:
        """Take whom to tell: how fresh the store is, and each change."""
        self.settings = settings
        self.watch = watch
        self.folder = folder_of(settings)
        self.reader: Reader | None = None
        self.customers = 0
        self.restore_seconds: float | None = None
        self.rebuilt = 0
        self._notify = notify
        self._intake = Intake(settings)
        self._identity = ""
        self._partitions: list[int] = []
        self._kept_seconds = 0.0  # for which a removal is on the topic for certain
        self._is_other = threading.Event()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=each, name=each.__name__, daemon=True) for each in (self._run, self._ask)
        ]

    def start(self) -> None:
        """Begin."""
        keep_private(self.folder)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End, after the transaction at work."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(AGAIN_SECONDS + 10)

    @property
    def is_alive(self) -> bool:
        """Whether both threads run."""
        return all(thread.is_alive() for thread in self._threads)

    @property
    def ignored(self) -> int:
        """How many records were passed over, because they are not the publisher's."""
        return self._intake.ignored

    def _run(self) -> None:
        """Follow the topic until the end; `/livez` tells when that comes before its time."""
        try:
            self._keep_following()
        finally:
            self.watch.failed(READING, "it has ended: its log says why")

    def _keep_following(self) -> None:
        """Follow the topic, whatever of it fails on the way."""
        held = store.newest(self.folder)
        if held is not None:
            self.watch.begin(held.positions, held.complete_until)
            self._serve(held)
        while not self._stopping.is_set():
            try:
                self._purge(held)  # also while the broker is gone
                held = self._fitting(held)
                self._follow(held)
            except Outdated as reason:
                log.warning("the portal's store is made again from the topic: %s", reason)
                self._drop(held)
                held = None
            except sqlite3.OperationalError as error:  # a full disk, for one; the file is as it was before
                self._wait(f"the store in {self.folder} cannot be written: {error}")
            except sqlite3.DatabaseError as error:
                log.warning("the portal's store is damaged, and is made again from the topic: %s", type(error).__name__)
                self._drop(held)
                held = None
            except ActivityError as error:
                self._wait(error.what)
            except Exception as error:  # noqa: BLE001 - what it says may be data; nothing ends the portal for good
                place = traceback.extract_tb(error.__traceback__)[-1]
                self._wait(f"{type(error).__name__} in {place.filename}:{place.lineno}")
        if held is not None:
            held.close()

    def _wait(self, problem: str) -> None:
        """Say what is in the way, once, and wait until it may be gone."""
        if problem not in self.watch.now().problem:
            log.warning("the portal does not follow the view topic: %s", shown.in_a_line(problem))
        self.watch.failed(READING, problem)
        self._stopping.wait(AGAIN_SECONDS)

    def _drop(self, held: Store | None) -> None:
        self.reader = None
        self.rebuilt += 1
        self._is_other.clear()
        self.watch.begin({}, 0)
        if held is not None:
            held.close()
        store.discard(self.folder)

    def _fitting(self, held: Store | None) -> Store:
        """Return the store that is there when it is of this topic, and can go on; else a new one.

        Raises:
            Outdated: it cannot; says why.
        """
        topic = ViewTopic(self.settings)
        identity = topic.identity()
        partitions = list(range(identity.partitions))
        begins, ends = topic.begins(partitions), topic.ends(partitions)
        self._identity, self._partitions = identity.text, partitions
        kept = clients.topic_setting(self.settings, self.settings.view_topic, DELETE_RETENTION)
        self._kept_seconds = max(LEAST_KEPT_SECONDS, int(kept) / 1000 / 2)  # half: there is something to read, too
        if held is None:
            held = store.create(self.folder, identity.text, begins)
            self.watch.begin(held.positions, 0)
            return held
        if held.identity != identity.text:
            raise Outdated("it is of another topic, or of one that was deleted and made again")
        for partition, position in held.positions.items():
            if not begins[partition] <= position <= ends[partition]:
                raise Outdated(f"it has partition {partition} up to {position}, and that is not on the topic any more")
        if max(time.time() - held.known_at, self.watch.away_seconds()) > self._kept_seconds:
            raise Outdated(TOO_LONG)
        return held

    def _follow(self, held: Store) -> None:
        with closing(clients.reader(self.settings, queued_max_messages_kbytes=QUEUED_KB)) as consumer:
            clients.find_leaders(consumer, self.settings, [self.settings.view_topic])
            consumer.assign(
                [TopicPartition(self.settings.view_topic, partition, at) for partition, at in held.positions.items()]
            )
            if not held.is_restored:
                self._restore(held, consumer)
            self._serve(held)
            self.watch.failed(READING, "")
            self._live(held, consumer)

    def _restore(self, held: Store, consumer: Consumer) -> None:
        """Take everything in that is on the topic now."""
        began = time.monotonic()
        ends = ViewTopic(self.settings).ends(self._partitions)
        at, begins = dict(held.positions), dict(held.positions)
        total = sum(ends.values()) - sum(begins.values())
        while any(at[partition] < end for partition, end in ends.items()):
            if self._stopping.is_set():
                return
            with clients.explained(self.settings, f"topic {self.settings.view_topic}"):
                messages = consumer.consume(RESTORE_RECORDS, timeout=RESTORE_WAIT_SECONDS)
            positions = self._intake.take(messages, held.restore).positions
            at |= positions
            self.watch.applied(positions)
            self.watch.restoring((sum(at.values()) - sum(begins.values())) / max(1, total))
        held.finish()
        self.restore_seconds = time.monotonic() - began
        log.info("the portal's store is restored from the topic in %.1f s", self.restore_seconds)

    def _purge(self, held: Store | None) -> None:
        """Take a step towards files without what was removed, when it is time; also what another process removed."""
        if held is not None and held.is_to_be_purged(PURGE_SECONDS):
            held.purge()

    def _serve(self, held: Store) -> None:
        """Answer from a store from now on, when it is whole."""
        if held.is_restored:
            if self.reader is None or self.reader.id != held.id:
                self.reader = Reader(held.path, held.id)
            self.customers = held.customers
            self.watch.restored()

    def _live(self, held: Store, consumer: Consumer) -> None:
        """Take in what comes, as it comes."""
        noted = time.monotonic()
        while not self._stopping.is_set():
            if self._is_other.is_set():
                raise Outdated("the topic was deleted and made again, or has other partitions")
            was_away = self.watch.away_seconds() > self._kept_seconds

            def take(rows: list[Row], positions: Mapping[int, int], *, was_away: bool = was_away) -> list[Change]:
                if was_away:  # the broker is back
                    raise Outdated(TOO_LONG)
                return held.take(rows, positions) if rows else []

            with clients.explained(self.settings, f"topic {self.settings.view_topic}"):
                first = consumer.poll(IDLE_SECONDS)
                messages = [] if first is None else [first, *consumer.consume(BATCH_RECORDS, timeout=0)]
            changes, positions = self._intake.take(messages, take)
            if changes:
                self._notify(changes)
            self.customers = held.customers
            self.watch.applied(positions)
            self._purge(held)
            if time.monotonic() - noted > NOTE_SECONDS:
                noted = time.monotonic()
                held.complete(self.watch.complete_until)
        held.complete(self.watch.complete_until)

    def _ask(self) -> None:
        """Ask where the topic ends, and now and then which topic it is."""
        topic, asked_identity = None, 0.0
        while not self._stopping.wait(ASK_SECONDS):
            if not self._identity:
                continue
            try:
                topic = topic or ViewTopic(self.settings)
                had, asked = self.watch.positions, self.watch.moment()
                is_possible = self.watch.heard(asked, topic.ends(self._partitions), had)
                if not is_possible or time.monotonic() - asked_identity > IDENTITY_SECONDS:
                    asked_identity = time.monotonic()
                    if topic.identity().text != self._identity:
                        self._is_other.set()
            except ActivityError as error:
                self.watch.failed(ASKING, error.what)
            else:
                self.watch.failed(ASKING, "")


def folder_of(settings: Settings) -> Path:
    """Where the store is."""
    return settings.run_dir / "portal"
