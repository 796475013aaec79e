"""Stop on a bad deploy upstream instead of draining it into quarantine."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from customer_activity.errors import BadShareExceeded

WINDOW = timedelta(minutes=10)
# What commits note: the batch's records by reason, and those of the minutes before it.
BY_REASON, MINUTES, MINUTE, GOOD = "by_reason", "minutes_before", "minute", "good"
MINIMUM_RECORDS = 100  # fewer are no share to judge: one bad record in a quiet hour is not a bad deploy


class Batch(NamedTuple):
    """A batch that was judged last.

    Attributes:
        key: the checkpoint's generation and the number of the batch.
        minute: when, minutes since 1970.
        counts: its records by reason (None = accepted).
    """

    key: tuple[str, int]
    minute: int
    counts: Counter[str | None]


Window = dict[int, Counter[str | None]]  # by minute since 1970: records by reason (None = accepted)


class BadShareGuard:
    """The share of bad records over the last ten minutes of landing, in whole minutes.

    A batch that would exceed the share is refused before anything of it is written, so that a restart meets the same
    records again and nothing is half landed. One that was let pass stays so: where a crash leaves it half landed, it is
    repeated, be it an hour later, when the good records that it was judged by count no more. It counts at the minute in
    which it was let pass. What counted before a batch is noted in its commits: a restart goes on with that, and a bad
    deploy does not get through between two of them.
    """

    def __init__(
        self,
        max_share: float,
        *,
        stream: str = "bronze",
        clock: Callable[[], float] = time.time,
        noted: Mapping[str, Any] | None = None,
    ) -> None:
        """Judge against `max_share` (0 to 1; 1 never stops).

        Args:
            max_share: of all records, the bad ones that are let pass.
            stream: whose batches these are.
            clock: seconds since 1970.
            noted: what the newest commit of the stream notes.
        """
        self.max_share = max_share
        self.stream = stream
        self.clock = clock
        self.window, self.last = _remembered(noted or {})
        self.let_pass = _key(noted) if noted else None

    def judge(self, outcomes: Mapping[tuple[str, str | None], int], batch: tuple[str, int]) -> dict[str, Any]:
        """Add a batch's records; one that is repeated takes its own place.

        Args:
            outcomes: records by topic and reason (None = accepted).
            batch: the checkpoint's generation and the number of the batch.

        Returns:
            What its commits have to note.

        Raises:
            BadShareExceeded: the share is above the limit; the message gives the counts by reason.
        """
        counts = Counter[str | None]()
        for (_, reason), count in outcomes.items():
            counts[reason] += count
        is_repeated = batch == self.let_pass
        if self.max_share >= 1 or (is_repeated and self.last is None):  # it was not judged then either
            self.let_pass = batch
            return {BY_REASON: _told(counts)}
        if is_repeated and self.last is not None:
            return self._passed(Batch(batch, self.last.minute, counts), self.window)
        if self.last is not None and self.last.key != batch:
            self.window.setdefault(self.last.minute, Counter()).update(self.last.counts)
            self.last = None
        now = self.clock()
        # A clock that was set back leaves minutes in the future: nobody knows when they were.
        window = {
            minute: landed
            for minute, landed in self.window.items()
            if minute * 60 <= now < (minute + 1) * 60 + WINDOW.total_seconds()
        }
        total = sum(window.values(), counts)
        records = total.total()
        bad = records - total[None]
        has_bad = counts.total() > counts[None]
        if has_bad and records >= MINIMUM_RECORDS and bad > self.max_share * records:
            reasons = ", ".join(f"{reason} {count}" for reason, count in total.most_common() if reason is not None)
            raise BadShareExceeded(
                f"{self.stream}: {bad} of {records} records of the last 10 minutes are bad ({bad / records:.1%}, "
                f"the limit is {self.max_share:.1%}): {reasons}. The last batch was not landed.",
                remedy="fix the producer; then set ACTIVITY_MAX_BAD_SHARE=1 to let these into quarantine",
            )
        return self._passed(Batch(batch, int(now // 60), counts), window)

    def _passed(self, batch: Batch, window: Window) -> dict[str, Any]:
        """Keep a batch that is let pass, and what counted before it; return what its commits have to note."""
        self.window, self.last, self.let_pass = window, batch, batch.key
        return {
            BY_REASON: _told(batch.counts),
            MINUTES: {str(minute): _told(counts) for minute, counts in sorted(window.items())},
            MINUTE: batch.minute,
        }


def _told(counts: Counter[str | None]) -> dict[str, int]:
    return {reason or GOOD: count for reason, count in counts.items()}


def _counted(told: Mapping[str, int]) -> Counter[str | None]:
    return Counter({None if reason == GOOD else reason: count for reason, count in told.items()})


def _key(noted: Mapping[str, Any]) -> tuple[str, int]:
    return str(noted.get("generation")), int(noted.get("batch_id", 0))


def _remembered(noted: Mapping[str, Any]) -> tuple[Window, Batch | None]:
    """Return the window before the batch that noted it, and that batch; empty where it was not judged."""
    if MINUTES not in noted:
        return {}, None
    window = {int(minute): _counted(told) for minute, told in noted[MINUTES].items()}
    return window, Batch(_key(noted), int(noted[MINUTE]), _counted(noted[BY_REASON]))
