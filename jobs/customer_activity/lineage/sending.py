"""Sends what is told: by a thread of its own, from a queue of a bounded length, and never in anybody's way.

A backend that is slow or down costs events, which are counted and logged, and nothing else.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from customer_activity.engine.logs import log
from customer_activity.lineage.told import Emit, Told
from customer_activity.settings import Settings

WAITING_EVENTS = 1_000
CLOSE_SECONDS = 5.0
COMPLAIN_SECONDS = 60.0


class Sender:
    """A thread that sends events one after the other.

    Attributes:
        dropped: how many were not sent.
    """

    def __init__(
        self,
        open_transport: Callable[[], Emit],
        waiting: int = WAITING_EVENTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the thread; the transport is opened by it."""
        self.open_transport = open_transport
        self.clock = clock
        self.waiting: queue.Queue[Told | None] = queue.Queue(waiting)
        self.dropped = 0
        self.complained_at: float | None = None
        self.thread = threading.Thread(target=self._send_all, name="lineage", daemon=True)
        self.thread.start()

    def put(self, told: Told) -> None:
        """Have an event sent, or drop it where too many wait."""
        try:
            self.waiting.put_nowait(told)
        except queue.Full:
            self._drop("too many wait")

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Wait for so long at most until all is sent."""
        end = self.clock() + seconds
        try:
            self.waiting.put(None, timeout=seconds)
        except queue.Full:
            pass
        else:
            self.thread.join(max(0.0, end - self.clock()))
        left = self.waiting.qsize()
        if self.thread.is_alive() or self.dropped:
            lost = self.dropped + left
            log.warning("lineage: %d events were not sent", lost, extra={"dropped": lost})

    def _send_all(self) -> None:
        emit: Emit | None = None
        while (told := self.waiting.get()) is not None:
            try:
                emit = emit or self.open_transport()
                emit(told)
            except Exception as error:  # noqa: BLE001 - whatever it is, the streams go on
                self._drop(type(error).__name__)  # not its words: they may name a backend with its key

    def _drop(self, why: str) -> None:
        self.dropped += 1
        now = self.clock()
        if self.complained_at is None or now - self.complained_at >= COMPLAIN_SECONDS:
            self.complained_at = now
            log.warning(
                "lineage: an event was not sent (%s), %d so far", why, self.dropped, extra={"dropped": self.dropped}
            )


def opening(settings: Settings) -> Callable[[], Emit]:
    """Return what opens the transport: OpenLineage's own configuration where there is one, else a file."""

    def open_transport() -> Emit:
        from customer_activity.lineage import transport  # noqa: PLC0415 - brings OpenLineage's client: not in the way of a start

        return transport.emitter(settings)

    return open_transport
