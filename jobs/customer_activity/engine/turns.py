"""Turns of the queries on few cores: who begins a batch when."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from customer_activity import topology

# When nothing comes for so long, Spark may note the batch as done and look for itself. A stream that is told of news at
# once loses nothing by waiting; bronze does when what it landed changes nothing in gold.
IDLE_SECONDS = 5.0
IDLE_BRONZE_SECONDS = 1.0
LARGE_SECONDS = 2.0  # a batch that has run for so long is not a small one
MERGES_WAIT_SECONDS = 60.0  # so long the current rows may stay behind for a large batch's sake
TELL_SECONDS = 5.0  # how often one that waits says so
LOOK_SECONDS = 0.25  # how often one that waits looks at the clock, and whether to stop

OnProgress = Callable[[str], None]


class Turns:
    """Up to which batch of bronze each query is through, so that the queries of the hot path take turns on few cores.

    A stream begins when the one above it has something new, and bronze cuts its next batch when the last is in gold:
    each has the machine to itself, and idle streams wait instead of polling their tables' logs. What merges behind the
    path leaves the cores to a large batch on it.
    """

    def __init__(self, queries: Iterable[str], stopping: threading.Event) -> None:
        """Keep the turns of these queries; those that run elsewhere are not waited for."""
        specs = topology.hot_path()
        self.path = [spec.name for spec in specs]
        # Publishing and landing do not get in each other's way: landing waits for the last that writes a table. Waiting
        # for the one before it, or for publishing, was measured to be slower.
        self.last_waited_for = next(spec.name for spec in reversed(specs) if not spec.is_publisher)
        self.through = dict.fromkeys((query for query in queries if query in self.path), 0)
        self.begun: dict[str, float] = {}
        self.draining_to, self.draining_until = 0, 0.0
        self.stopping = stopping
        self.changed = threading.Condition()

    def begin(self, query: str, progress: OnProgress = lambda _: None) -> int:
        """Return up to which batch of bronze the batch that begins reads.

        Args:
            query: whose batch.
            progress: told every few seconds for as long as the batch waits, as in `finish`: a query that waits has
                something to read and no batch, and would be taken for stuck. What it waits for is found by its own
                silence.
        """
        with self.changed:
            if query not in self.path:
                self._wait_while(self._is_draining, MERGES_WAIT_SECONDS, progress)
                return 0
            self.begun[query] = time.monotonic()
            if query == self.path[0]:
                return self.through[query] + 1
            return self.through.get(self._above(query), 0)

    def finish(self, query: str, through: int, progress: OnProgress = lambda _: None) -> None:
        """Note a finished batch, and wait for the next turn; not longer than IDLE_SECONDS when nothing comes."""
        if query not in self.path:
            return
        with self.changed:
            self.through[query] = through
            now = time.monotonic()
            if now - self.begun.pop(query, now) > LARGE_SECONDS:
                self.draining_to, self.draining_until = max(self.draining_to, through), now + MERGES_WAIT_SECONDS
            self.changed.notify_all()
            # What is at work above will bring something: a look now might find half of what a batch commits.
            above = self.path[: self.path.index(query)]
            idle = IDLE_SECONDS if above else IDLE_BRONZE_SECONDS
            self._wait_while(lambda: not self._is_next(query, through), idle, progress, lambda: self._is_at_work(above))

    def _wait_while(
        self,
        is_early: Callable[[], bool],
        seconds: float,
        progress: OnProgress,
        is_coming: Callable[[], bool] = lambda: False,
    ) -> None:
        """Wait for as long as it is early, but not more than so many seconds in which nothing is coming."""
        until, told = time.monotonic() + seconds, time.monotonic()
        while is_early() and not self.stopping.is_set():
            if time.monotonic() - told >= TELL_SECONDS:
                told = time.monotonic()
                progress("waits for the hot path")
            if is_coming():
                until = time.monotonic() + seconds
            elif time.monotonic() >= until:
                return
            self.changed.wait(LOOK_SECONDS)

    def _above(self, query: str) -> str:
        """Return the query before one on the hot path."""
        return self.path[self.path.index(query) - 1]

    def _is_at_work(self, queries: Iterable[str]) -> bool:
        return any(query in self.begun for query in queries)

    def _is_draining(self) -> bool:
        """Whether a large batch is on the hot path; one is known by how long it takes."""
        now = time.monotonic()
        is_on_the_way = min(self.through.values(), default=0) < self.draining_to and now < self.draining_until
        return is_on_the_way or any(now - begun > LARGE_SECONDS for begun in self.begun.values())

    def _is_next(self, query: str, through: int) -> bool:
        waits_for = self.last_waited_for if query == self.path[0] else self._above(query)
        if waits_for not in self.through:
            return True
        return self.through[waits_for] >= (through if query == self.path[0] else through + 1)


class Turn:
    """One turn between all queries that merge behind the hot path: two cores are few."""

    def __init__(self) -> None:
        """Begin with the turn free."""
        self._lock = threading.Lock()

    @contextmanager
    def taken(self, progress: OnProgress) -> Iterator[None]:
        """Wait for the turn, which is told of as in `Turns.begin`, and hold it; supervision counts from then on."""
        while not self._lock.acquire(timeout=TELL_SECONDS):
            progress("waits for another merge")
        try:
            progress("begins")
            yield
        finally:
            self._lock.release()
