"""Stop on a bad deploy upstream instead of draining it into quarantine."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from datetime import timedelta

from customer_activity.errors import BadShareExceeded

WINDOW = timedelta(minutes=10)
MINIMUM_RECORDS = 100  # fewer are no share to judge: one bad record in a quiet hour is not a bad deploy


class BadShareGuard:
    """The share of bad records over the last ten minutes of landing.

    A batch that would exceed the share is refused before anything of it is written, so that a restart meets the same
    records again and nothing is half landed.
    """

    def __init__(self, max_share: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Judge against `max_share` (0 to 1; 1 never stops); `clock` counts seconds."""
        self.max_share = max_share
        self.clock = clock
        self.window: deque[tuple[float, Counter[str | None]]] = deque()

    def judge(self, outcomes: Mapping[tuple[str, str | None], int]) -> None:
        """Add a batch's records by topic and reason (None = accepted).

        Raises:
            BadShareExceeded: the share is above the limit; the message gives the counts by reason.
        """
        now = self.clock()
        while self.window and now - self.window[0][0] > WINDOW.total_seconds():
            self.window.popleft()
        batch = Counter[str | None]()
        for (_, reason), count in outcomes.items():
            batch[reason] += count
        total = sum((counts for _, counts in self.window), batch)
        records = total.total()
        bad = records - total[None]
        if self.max_share < 1 and records >= MINIMUM_RECORDS and bad > self.max_share * records:
            reasons = ", ".join(f"{reason} {count}" for reason, count in total.most_common() if reason is not None)
            raise BadShareExceeded(
                f"bronze: {bad} of {records} records of the last 10 minutes are bad ({bad / records:.1%}, "
                f"the limit is {self.max_share:.1%}): {reasons}. The last batch was not landed.",
                remedy="mend the producer; then set ACTIVITY_MAX_BAD_SHARE=1 to let these into quarantine",
            )
        self.window.append((now, batch))
