"""When looks are taken: by a thread of its own, while somebody asks, and not more often than is cheap."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from customer_activity import unforeseen
from customer_activity.metrics.looks import Look

EVERY_SECONDS = 10.0  # from the start of a look to that of the next, at least
COST_SHARE = 10  # and so many times what the last one took: of a large lake they cost a tenth of a core at most …
LONGEST_SECONDS = 120.0  # … unless that would be longer than this
OLD_SECONDS = 60.0  # what is read is out of date so long after the next look should have ended
WAIT_SECONDS = 5.0  # so long somebody waits who finds an old one; Prometheus gives up after 10 s

log = logging.getLogger("customer_activity")


def pause(seconds: float) -> float:
    """Return the seconds between the end of a look that took so many and the start of the next."""
    return min(COST_SHARE * seconds, LONGEST_SECONDS)


def old_after(seconds: float) -> float:
    """Return the seconds after its begin from which on a look that took so many is old: the next ones have failed.

    The next one has been due by then, was asked for within `OLD_SECONDS`, and may have taken as long.
    """
    return OLD_SECONDS + max(EVERY_SECONDS, seconds + pause(seconds)) + seconds


class Paced:
    """The newest look. Nobody who asks reads a log: who asks often gets the same look, and who asks first waits."""

    def __init__(
        self,
        take: Callable[[], Look],
        *,
        every: float = EVERY_SECONDS,
        wait: float = WAIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look by `take`; no look is taken before somebody asks."""
        self.take = take
        self.every = every
        self.wait = wait
        self.clock = clock
        self.changed = threading.Condition()
        self.newest: Look | None = None
        self.due_at = 0.0
        self.is_wanted = False
        self.is_closed = False
        self.began_at: float | None = None  # of the look at work
        self.fault = ""
        self.thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self.thread.start()

    def look(self) -> Look | None:
        """Return the newest look; None where there is none yet. One that is due is waited for, for some seconds."""
        with self.changed:
            if self.clock() >= self.due_at:
                self.is_wanted = True
                self.changed.notify_all()
                self.changed.wait_for(lambda: not self.is_wanted or self.is_closed, self.wait)
            return self.newest

    def trouble(self) -> str:
        """Say what keeps looks from being taken; empty where the newest is old because nobody has asked."""
        with self.changed:
            if self.fault:
                return self.fault
            if self.began_at is None or self.newest is None:
                return ""
            seconds = self.clock() - self.began_at
            return f"a look has taken {seconds:,.0f} s" if seconds > old_after(self.newest.seconds) else ""

    def close(self) -> None:
        """Take no more looks; one at work is left to itself."""
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()

    def _run(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.is_wanted or self.is_closed)
                if self.is_closed:
                    return
                began = self.began_at = self.clock()
            found = self._taken()
            ended = self.clock()
            with self.changed:
                self.newest = found or self.newest
                self.due_at = max(began + self.every, ended + pause(ended - began))
                self.is_wanted = False
                self.began_at = None
                self.changed.notify_all()

    def _taken(self) -> Look | None:
        """Take a look; None where something cannot be read, which is logged when it is another thing than before."""
        try:
            found = self.take()
        except Exception as error:  # noqa: BLE001 - whatever it is, the streams go on, and the next look may find more
            fault = unforeseen.brief(error)
            if fault != self.fault:
                log.warning("metrics could not be read, tried again later: %s", fault)
            self.fault = fault
            return None
        self.fault = ""
        return found
