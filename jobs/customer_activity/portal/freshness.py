"""How fresh the portal's answers are: up to when they have everything that was committed to the view topic.

The broker is asked for the ends of the topic once a second. When the store has come to ends that were asked for at some
time, it has everything that had been committed by then: `complete_until`. So that also holds while new records keep
coming, and it stands still when the broker is gone or the portal does not keep up.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

ASKED = 120  # times at which the ends were asked for that are remembered while the store is behind them


class State(StrEnum):
    """How an answer is to be taken."""

    RESTORING = "restoring"  # there is none yet
    CURRENT = "current"
    BEHIND = "behind"  # the broker answers, and the store has not what it has, or has what it has not
    SILENT = "silent"  # the broker does not answer


class Freshness(NamedTuple):
    """How fresh the portal's answers are at one moment.

    Attributes:
        state: what to make of it.
        complete_until: up to when everything that was committed is there, in seconds since 1970; None: not known.
        behind_seconds: seconds since then; None: not known.
        lag_records: offsets of the topic that are not in the store; None: not known.
        heard_seconds_ago: since the broker last said where the topic ends; None: it has not yet.
        positions: next offset by partition.
        restored: share of the topic that has been read, from 0 to 1, while restoring.
        problem: why it does not go on, in words; empty when it does.
    """

    state: State
    complete_until: float | None
    behind_seconds: float | None
    lag_records: int | None
    heard_seconds_ago: float | None
    positions: dict[int, int]
    restored: float
    problem: str

    @property
    def is_served(self) -> bool:
        """Whether there are answers at all."""
        return self.state is not State.RESTORING

    @property
    def is_stale(self) -> bool:
        """Whether answers are older than they may be."""
        return self.state is not State.CURRENT

    def as_json(self) -> dict[str, Any]:
        """Return it as it stands in answers."""
        return {
            "state": self.state.value,
            "stale": self.is_stale,
            "completeUntilEpochMillis": None if self.complete_until is None else int(self.complete_until * 1000),
            "behindSeconds": _rounded(self.behind_seconds),
            "lagRecords": self.lag_records,
            "heardSecondsAgo": _rounded(self.heard_seconds_ago),
            "position": {str(partition): offset for partition, offset in sorted(self.positions.items())},
            "restored": round(self.restored, 4),
            "problem": self.problem,
        }


class Moment(NamedTuple):
    """A time of the wall clock, which is shown, and of the monotonic one, which nobody sets."""

    wall: float
    tick: float


class Watch:
    """What is known of how fresh the store is; told by the threads that read and ask, asked by those that answer."""

    def __init__(
        self,
        stale_seconds: float,
        wall: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without a store."""
        self.stale_seconds = stale_seconds
        self._wall, self._ticks = wall, ticks
        self._lock = threading.Lock()
        self.begin({}, 0)

    def begin(self, positions: Mapping[int, int], complete_until: float) -> None:
        """Take note of a store that has the topic up to these positions, and all of it up to a time; 0: not known."""
        with self._lock:
            now = self.moment()
            self._positions = dict(positions)
            known = Moment(complete_until, now.tick - max(0.0, now.wall - complete_until))
            self._complete = known if complete_until else None
            self._is_restored = False
            self._ends: dict[int, int] = {}
            self._asked: deque[tuple[Moment, dict[int, int]]] = deque(maxlen=ASKED)
            self._heard: Moment | None = None
            self._is_beyond = False
            self._restored = 0.0
            self._problems: dict[str, str] = {}

    def moment(self) -> Moment:
        """Return what both clocks say."""
        return Moment(self._wall(), self._ticks())

    @property
    def positions(self) -> dict[int, int]:
        """Return up to where the store has the topic, by partition."""
        with self._lock:
            return dict(self._positions)

    def heard(self, asked: Moment, ends: Mapping[int, int], had: Mapping[int, int]) -> bool:
        """Take note of where the topic ended when the broker was asked, and where the store was just before that.

        Return whether that can be the topic that the store is made from: it ends nowhere before what was read of it.
        """
        with self._lock:
            self._heard = asked
            self._ends = dict(ends)
            self._is_beyond = any(had.get(partition, 0) > end for partition, end in ends.items())
            if not self._is_beyond:
                self._asked.append((asked, dict(ends)))
                self._come_to()
            return not self._is_beyond

    def applied(self, positions: Mapping[int, int]) -> None:
        """Take note of what is in the store now."""
        with self._lock:
            self._positions |= positions
            self._come_to()

    def restoring(self, share: float) -> None:
        """Take note of how much of the topic has been read."""
        with self._lock:
            self._restored = share

    def restored(self) -> None:
        """Take note that there are answers from now on."""
        with self._lock:
            self._is_restored, self._restored = True, 1.0

    def failed(self, what: str, problem: str) -> None:
        """Take note of why reading or asking does not go on; with no words: it does."""
        with self._lock:
            self._problems[what] = problem

    @property
    def complete_until(self) -> float:
        """Up to when the store has everything, in seconds since 1970; 0 when that is not known."""
        return self._complete.wall if self._complete else 0

    def away_seconds(self) -> float:
        """Return for how long the store may lack something; 0 when it is not known up to when it has everything.

        The greater of what both clocks say: one may have been set, the other stands still while the machine sleeps.
        """
        with self._lock:
            now, known = self.moment(), self._complete
            return 0.0 if known is None else max(0.0, now.wall - known.wall, now.tick - known.tick)

    def now(self) -> Freshness:
        """Say how fresh it is."""
        with self._lock:
            tick = self._ticks()
            behind = None if self._complete is None else max(0.0, tick - self._complete.tick)
            heard_ago = None if self._heard is None else max(0.0, tick - self._heard.tick)
            lag = sum(max(0, end - self._positions.get(p, 0)) for p, end in self._ends.items())
            return Freshness(
                self._state(behind, heard_ago),
                self.complete_until or None,
                behind,
                lag if self._ends and not self._is_beyond else None,
                heard_ago,
                dict(self._positions),
                1.0 if self._is_restored else self._restored,
                next(filter(None, self._problems.values()), ""),
            )

    def _state(self, behind: float | None, heard_ago: float | None) -> State:
        if not self._is_restored:
            return State.RESTORING
        if heard_ago is None or heard_ago > self.stale_seconds:
            return State.SILENT
        is_current = behind is not None and behind <= self.stale_seconds and not self._is_beyond
        return State.CURRENT if is_current else State.BEHIND

    def _come_to(self) -> None:
        """Find the last time at which the topic ended where the store is now, or before."""
        for index in range(len(self._asked) - 1, -1, -1):
            asked, ends = self._asked[index]
            if all(self._positions.get(partition, 0) >= end for partition, end in ends.items()):
                self._complete = asked
                for _ in range(index + 1):
                    self._asked.popleft()
                return


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
