"""One live driver for each stream: a lease with a fencing epoch (`epochs.py` says where epochs are kept).

A driver creates `_locks/<query>.<epoch>` with an epoch greater than every one before (the storage lets one driver
create it), and writes it again every few seconds, whatever else it is busy with. On a lake that is a folder it also
locks `_locks/<query>.lock` for as long as its JVM lives.

- The lock is free, or the epoch was given back: the next driver goes on at once.
- The epoch is fresh: a driver is at work. The next one waits a little, then says so.
- It is old: its driver is frozen, or dead where there is no lock to tell. The next one takes the epoch and goes on.

Where `_locks` was lost or is of an earlier time, epochs go on above those that the tables' commits carry.

A frozen driver that wakes finds the newer epoch before each commit, and each commit carries its epoch as a transaction
id of the table: where a successor's is greater, or is committed meanwhile, Delta refuses the commit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from customer_activity.errors import ActivityError, LeaseLost, QueryAlreadyRunning, StorageUnavailable
from customer_activity.lease import epochs
from customer_activity.lease.epochs import FROZEN, GIVEN_BACK, LOCKED, Epochs, Lock, ProcessLock
from customer_activity.storage import s3

LEASE_SECONDS = 30.0  # one that was not renewed for so long is its successor's
RENEW_SECONDS = 5.0
AT_WORK_SECONDS = 2 * RENEW_SECONDS  # one that was renewed within so long has a driver
WAIT_SECONDS = 15.0  # a driver that was just killed holds its locks until its JVM has gone
LOOK_SECONDS = 0.5
# Whoever works on tables holds their streams, as a driver does, and a lease does not tell who.
OR_A_COMMAND = "or a command is at work on its tables"
WAIT_FOR_IT = "wait for that command to end (`activity maintain`, for one)"


class Lease:
    """The queries that this driver holds, until it is closed or lost."""

    def __init__(self, open_lock: Callable[[Path], Lock], lake: str, queries: Sequence[str]) -> None:
        """Take the streams; on a lake in a folder `open_lock` opens locks that live as long as what commits here.

        Raises:
            QueryAlreadyRunning: another driver is at work on one.
            StorageUnavailable: the lake's storage does not answer.
        """
        self.lake = lake
        self.place: Epochs = epochs.of(lake, open_lock)
        self.epochs: dict[str, int] = {}
        self.frozen: list[str] = []  # whose former driver may live: what it has open on this machine stays its own
        self.unlocked: dict[str, Lock] = {}
        self.resources = ExitStack()
        self.fault: Exception | None = None
        self.renewed = time.monotonic()
        self.ended = threading.Event()
        try:
            self.place.newest()  # of a storage that does not do as asked this says what is wrong
            in_tables = epochs.in_tables(lake, queries)
            for query in queries:
                self._take(query, in_tables[query])
            if time.monotonic() - self.renewed > RENEW_SECONDS:  # the first one has waited for the others
                self.renew()
        except BaseException:
            self._give_back()
            raise
        # A thread of its own: a start, a compaction or a slow broker may hold up any other for longer than the lease.
        self.keeper = threading.Thread(target=self._keep, name="lease", daemon=True)
        self.keeper.start()

    def _take(self, query: str, in_tables: int) -> None:
        lock = self.place.lock(query)
        if lock is not None:
            self.resources.callback(lock.close)
        running = QueryAlreadyRunning(
            f"{query} already runs on {self.lake}, {OR_A_COMMAND}",
            remedy=f"stop that driver first (`activity driver stop`) or {WAIT_FOR_IT}, or run other queries here",
        )
        deadline = time.monotonic() + WAIT_SECONDS
        is_locked = False
        while True:
            newest = self.place.newest().get(query)
            is_locked = is_locked or (lock is not None and lock.take())
            text, silent = _read(self.place, query, newest)
            # One that took over from a frozen driver has no lock until that one has ended.
            is_free = text == GIVEN_BACK if lock is None else is_locked and text != FROZEN
            if is_free or silent > LEASE_SECONDS:
                break
            # One that is silent is waited for: it is dead or frozen, or is renewed meanwhile.
            if time.monotonic() > deadline and silent <= AT_WORK_SECONDS:
                raise running
            time.sleep(LOOK_SECONDS)
        epoch = max(newest or 0, in_tables) + 1
        was_silent = not is_free and not is_locked
        if was_silent and lock is not None:
            self.unlocked[query] = lock
        if not self.epochs:
            self.renewed = time.monotonic()
        try:
            self.place.create(query, epoch, self._text(query))
        except FileExistsError:
            raise running from None
        self.epochs[query] = epoch
        if was_silent:
            self.frozen.append(query)
        self.place.remove(query, range(max(1, epoch - 2), epoch))

    def _text(self, query: str) -> str:
        return FROZEN if query in self.unlocked else LOCKED

    def fencing_epoch(self, query: str) -> int:
        """Return the epoch under which a query may commit.

        Raises:
            LeaseLost: another driver took it over.
            StorageUnavailable: another one may before a commit that begins now has ended.
        """
        epoch = self._held(query, self.place.newest())
        silent = time.monotonic() - self.renewed
        if not self.place.is_near and silent > LEASE_SECONDS - s3.WRITE_SECONDS:
            raise StorageUnavailable(
                f"{query}: the lease was last renewed {silent:.0f} s ago, so a commit might end after it",
                remedy="find out what holds up writing to the lake's bucket, then start again; nothing was committed",
            )
        return epoch

    def _held(self, query: str, newest: Mapping[str, int]) -> int:
        epoch = self.epochs[query]
        if newest.get(query) != epoch:
            raise lost(query, epoch)
        return epoch

    def check(self) -> None:
        """Make sure that the queries are still this driver's.

        Raises:
            LeaseLost: another driver took one over.
            OSError, ActivityError: the lease could not be renewed for as long as it lasts.
        """
        if self.fault is not None:
            raise self.fault
        if self.place.is_near:  # one that was just woken learns it here, not with its next renewal
            self._look()

    def _look(self) -> None:
        newest = self.place.newest()
        for query in self.epochs:
            self._held(query, newest)

    def _keep(self) -> None:
        while not self.ended.wait(RENEW_SECONDS):
            try:
                self.renew()
            except LeaseLost as fault:
                self.fault = fault
                return
            except (OSError, ActivityError) as fault:  # nothing is committed meanwhile: each commit looks, too
                if time.monotonic() - self.renewed > LEASE_SECONDS:
                    self.fault = fault
                    return

    def renew(self) -> None:
        """Say that this driver is at work.

        Raises:
            LeaseLost: another driver took a query over.
        """
        began = time.monotonic()
        self._look()
        for query, lock in list(self.unlocked.items()):
            if lock.take():
                del self.unlocked[query]
                self.frozen.remove(query)
        for query, epoch in self.epochs.items():
            self.place.renew(query, epoch, self._text(query))
        self.renewed = began

    def __enter__(self) -> Self:
        """Return itself: the queries are taken already."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Give the queries back; the epochs stay, for the next one to be greater."""
        self.ended.set()
        self.keeper.join()
        self._give_back()

    def _give_back(self) -> None:
        with self.resources, suppress(ActivityError):  # where that fails, the next driver waits for the lease to expire
            newest = self.place.newest()
            for query, epoch in self.epochs.items():
                if newest.get(query) == epoch:
                    self.place.give_back(query, epoch)


def _read(place: Epochs, query: str, newest: int | None) -> tuple[str, float]:
    """Return what a query's newest epoch says, and for how many seconds it has been silent.

    Who takes a query over removes the epochs before: one that is gone since it was listed has a successor at work.
    """
    if newest is None:
        return GIVEN_BACK, 0.0
    try:
        return place.read(query, newest)
    except FileNotFoundError:
        return LOCKED, 0.0


def newest_epoch(lake: str, query: str) -> int | None:
    """Return a query's newest epoch; None when no driver ever ran it."""
    return epochs.of(lake, ProcessLock).newest().get(query)


def at_work(lake: str, queries: Iterable[str]) -> set[str]:
    """Return which of some queries, on or off in this process, have a driver; a look alone, that takes no lock.

    On a lake that is a folder, one that has just stopped counts for some seconds more.

    Raises:
        OSError, ActivityError: the lake's storage does not answer.
    """
    place = epochs.of(lake, ProcessLock)
    newest, found = place.newest(), set()
    for query in queries:
        if query in newest:
            text, silent = _read(place, query, newest[query])
            if text != GIVEN_BACK and silent <= AT_WORK_SECONDS:
                found.add(query)
    return found


def refuse_running(lake: str, query: str) -> None:
    """Make sure that no driver holds a query.

    Raises:
        QueryAlreadyRunning: one does.
    """
    place = epochs.of(lake, ProcessLock)
    lock = place.lock(query)
    if lock is not None:
        is_at_work = not lock.take()
        lock.close()
    else:
        text, silent = _read(place, query, place.newest().get(query))
        is_at_work = text != GIVEN_BACK and silent <= AT_WORK_SECONDS
    if is_at_work:
        raise QueryAlreadyRunning(
            f"{query} runs on {lake}, {OR_A_COMMAND}",
            remedy=f"stop its driver first (`activity driver stop`), or {WAIT_FOR_IT}",
        )


@contextmanager
def kept_out(lake: str, queries: Sequence[str]) -> Iterator[Lease]:
    """Keep drivers from some queries while their tables are worked on; yield the lease of them.

    Raises:
        QueryAlreadyRunning: a driver is at work on one.
    """
    for query in queries:  # at once, where a lease would wait for the driver, and take over from a frozen one
        refuse_running(lake, query)
    with Lease(ProcessLock, lake, queries) as held:
        yield held


def lost(query: str, epoch: int) -> LeaseLost:
    """Say that another driver took a stream over from the one with this fencing epoch."""
    return LeaseLost(
        f"{query}: another driver has taken over from this one (fencing epoch {epoch}), which did not answer for "
        f"{LEASE_SECONDS:.0f} s; nothing more is committed here",
        remedy="leave it to that driver; find out what held this one up",
    )
