"""One live driver a query: a lease with an epoch, on a lake that is a folder.

A driver locks `_locks/<query>.lock` for as long as its JVM lives, creates `_locks/<query>.<epoch>` with an epoch
greater than every one before (the file system lets one driver create it), and touches that file every few seconds,
whatever else it is busy with.

- The lock is free: whoever held it is dead. The next driver goes on at once.
- The lock is held and the epoch's file is fresh: a driver is at work. The next one waits a little, then says so.
- The lock is held and the file is old: its driver is frozen. The next one takes the epoch and goes on without the lock.

A frozen driver that wakes finds the newer epoch before each commit, and each commit carries its epoch as a transaction
id of the table: where a successor's is greater, or is committed meanwhile, Delta refuses the commit. Object stores
have neither the lock nor the exclusive file: on them nothing tells two drivers apart, and the driver says so.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from customer_activity.catalog import Query, lock_path
from customer_activity.errors import LeaseLost, QueryAlreadyRunning

LEASE_SECONDS = 30.0  # one that was not renewed for so long is its successor's
RENEW_SECONDS = 5.0
WAIT_SECONDS = 15.0  # a driver that was just killed holds its locks until its JVM has gone
LOOK_SECONDS = 0.5
LOCKED, FROZEN = "", "its predecessor was frozen and holds the lock"


class Lock(Protocol):
    """A lock on a file, held until it is closed or the process is gone that has it."""

    def take(self) -> bool:
        """Take it; say whether it is held here now."""

    def close(self) -> None:
        """Give it back."""


class ProcessLock:
    """A lock that this process has; a driver's is its JVM's (`session.JvmLock`). Each sees the other's."""

    def __init__(self, path: Path) -> None:
        """Open the file."""
        self.file = path.open("ab+")

    def take(self) -> bool:
        """Take it; say whether it is held here now."""
        try:
            fcntl.lockf(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Give it back."""
        self.file.close()


class Lease:
    """The queries that this driver holds, until it is closed or lost."""

    def __init__(self, open_lock: Callable[[Path], Lock], lake: str, queries: Sequence[Query]) -> None:
        """Take the queries.

        Args:
            open_lock: opens a lock that lives as long as what commits here.
            lake: a folder.
            queries: which ones.

        Raises:
            QueryAlreadyRunning: another driver is at work on one.
        """
        self.open_lock = open_lock
        self.lake = lake
        self.epochs: dict[Query, int] = {}
        self.unlocked: dict[Query, Lock] = {}
        self.resources = ExitStack()
        self.fault: Exception | None = None
        self.ended = threading.Event()
        try:
            for query in queries:
                self._take(query)
        except BaseException:
            self.resources.close()
            raise
        # A thread of its own: a start, a compaction or a slow broker may hold up any other for longer than the lease.
        self.keeper = threading.Thread(target=self._keep, name="lease", daemon=True)
        self.keeper.start()

    def _take(self, query: Query) -> None:
        path = Path(lock_path(self.lake, query))
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = self.open_lock(path)
        self.resources.callback(lock.close)
        running = QueryAlreadyRunning(
            f"{query} already runs on {self.lake}",
            remedy="stop that driver first (`activity stop`), or run other queries here",
        )
        deadline = time.monotonic() + WAIT_SECONDS
        is_locked = False
        while True:
            newest = newest_epoch(self.lake, query)
            is_locked = is_locked or lock.take()
            is_old = newest is None or time.time() - _file(self.lake, query, newest).stat().st_mtime > LEASE_SECONDS
            # One that took over from a frozen driver has no lock until that one has ended.
            has_lock = newest is None or _file(self.lake, query, newest).read_text(encoding="utf-8") == LOCKED
            if (is_locked and (has_lock or is_old)) or (not is_locked and is_old and newest is not None):
                break
            if time.monotonic() > deadline:
                raise running
            time.sleep(LOOK_SECONDS)
        epoch = (newest or 0) + 1
        try:
            with _file(self.lake, query, epoch).open("x", encoding="utf-8") as file:
                file.write(LOCKED if is_locked else FROZEN)
        except FileExistsError:
            raise running from None
        self.epochs[query] = epoch
        if not is_locked:
            self.unlocked[query] = lock
        for older in range(max(1, epoch - 2), epoch):
            _file(self.lake, query, older).unlink(missing_ok=True)

    @property
    def frozen(self) -> list[Query]:
        """Queries whose former driver still lives: what it has open on this machine stays its own."""
        return list(self.unlocked)

    def hold(self, query: Query) -> int:
        """Return the epoch under which a query may commit.

        Raises:
            LeaseLost: another driver took it over.
        """
        epoch = self.epochs[query]
        if newest_epoch(self.lake, query) != epoch:
            raise lost(query, epoch)
        return epoch

    def check(self) -> None:
        """Make sure that the queries are still this driver's.

        Raises:
            LeaseLost: another driver took one over.
            OSError: the lease could not be renewed.
        """
        if self.fault is not None:
            raise self.fault
        for query in self.epochs:  # one that was just woken learns it here, not with its next renewal
            self.hold(query)

    def _keep(self) -> None:
        while not self.ended.wait(RENEW_SECONDS):
            try:
                self.renew()
            except (LeaseLost, OSError) as fault:
                self.fault = fault
                return

    def renew(self) -> None:
        """Say that this driver is at work.

        Raises:
            LeaseLost: another driver took a query over.
        """
        for query, epoch in self.epochs.items():
            self.hold(query)
            os.utime(_file(self.lake, query, epoch))
        for query, lock in list(self.unlocked.items()):
            if lock.take():
                _file(self.lake, query, self.epochs[query]).write_text(LOCKED, encoding="utf-8")
                del self.unlocked[query]

    def __enter__(self) -> Self:
        """Return itself: the queries are taken already."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Give the locks back; the epochs stay, for the next one to be greater."""
        self.ended.set()
        self.keeper.join()
        self.resources.close()


def newest_epoch(lake: str, query: Query) -> int | None:
    """Return a query's newest epoch; None when no driver ever ran it."""
    folder = Path(lock_path(lake, query)).parent
    suffixes = (path.name.removeprefix(f"{query.value}.") for path in folder.glob(f"{query.value}.*"))
    return max((int(suffix) for suffix in suffixes if suffix.isdigit()), default=None)


def refuse_running(lake: str, query: Query) -> None:
    """Make sure that no driver holds a query; on storage without locks nobody can tell.

    Raises:
        QueryAlreadyRunning: one does.
    """
    path = Path(lock_path(lake, query))
    if "://" in lake or not path.exists():
        return
    with path.open("rb+") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise QueryAlreadyRunning(f"{query} runs on {lake}", remedy="stop it first (`activity stop`)") from None


@contextmanager
def kept_out(lake: str, queries: Sequence[Query]) -> Iterator[None]:
    """Keep drivers from some queries for as long as somebody works on what is theirs; a no-op without locks.

    Raises:
        QueryAlreadyRunning: a driver is at work on one.
    """
    if "://" in lake:
        yield
        return
    for query in queries:  # at once, where a lease would wait for the driver, and take over from a frozen one
        refuse_running(lake, query)
    with Lease(ProcessLock, lake, queries):
        yield


def lost(query: Query, epoch: int) -> LeaseLost:
    """Say that another driver took a query over from the one with this epoch."""
    return LeaseLost(
        f"{query}: another driver has taken over from this one (epoch {epoch}), which did not answer for "
        f"{LEASE_SECONDS:.0f} s; nothing more is committed here",
        remedy="leave it to that driver; find out what held this one up",
    )


def _file(lake: str, query: Query, epoch: int) -> Path:
    return Path(lock_path(lake, query)).with_name(f"{query.value}.{epoch}")
