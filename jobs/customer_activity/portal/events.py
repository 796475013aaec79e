"""Changes as server-sent events: one broadcast, a bounded queue for each listener."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from customer_activity.portal.reading import Change

MOST_LISTENERS = 200
MOST_WAITING = 20  # batches; a listener that takes them no faster has missed some, and is told
MOST_CHANGES = 100  # of a batch for those who listen to all customers: the newest


class Listener:
    """Somebody who listens to all customers, to one, or to one above all."""

    def __init__(self, customer_id: str | None, *, others: bool) -> None:
        """Take whose changes are wanted, and whether those of all others are, too."""
        self.customer_id = customer_id
        self.others = others
        self.has_missed = False
        self._waiting: asyncio.Queue[list[Change]] = asyncio.Queue(MOST_WAITING)

    def put(self, changes: list[Change]) -> None:
        """Have changes wait; the oldest give way, but never those of the customer to those of others."""
        own = [change for change in changes if change.customer_id == self.customer_id]
        others = [change for change in changes if change.customer_id != self.customer_id] if self.others else []
        if not own and not others:
            return
        if self._waiting.full():
            self.has_missed = True
            self._waiting.get_nowait()
        self.has_missed = self.has_missed or len(others) > MOST_CHANGES
        self._waiting.put_nowait(sorted([*others[-MOST_CHANGES:], *own], key=lambda change: change.number))

    async def next(self, seconds: float) -> list[Change]:
        """Return the next changes; none when there are none within some seconds."""
        try:
            return await asyncio.wait_for(self._waiting.get(), seconds)
        except TimeoutError:
            return []


class Broadcast:
    """Who listens. Used by the event loop's thread alone."""

    def __init__(self) -> None:
        """Begin without listeners."""
        self._listeners: set[Listener] = set()

    @property
    def is_full(self) -> bool:
        """Whether nobody more may listen."""
        return len(self._listeners) >= MOST_LISTENERS

    def __len__(self) -> int:
        """Count the listeners."""
        return len(self._listeners)

    def send(self, changes: list[Change]) -> None:
        """Tell everybody."""
        for listener in self._listeners:
            listener.put(changes)

    @contextmanager
    def listen(self, customer_id: str | None, *, others: bool) -> Iterator[Listener]:
        """Listen until the block ends, to one customer, to all others, or to both."""
        listener = Listener(customer_id, others=others)
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
