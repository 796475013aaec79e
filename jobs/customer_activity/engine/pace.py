"""How often a stream begins a batch: the hot path by what arrives, what is behind it by what a batch costs.

A round of the hot path costs nearly the same for one purchase as for two hundred. So while little arrives the next
round waits a little, and takes more with it; the more arrives, the shorter it waits, and at some hundred records a
second the rounds follow each other. The first record after a quiet time never waits.

A stream behind the hot path waits for its setting, and for longer where its last batch took long: a table that has
grown must not take the hot path's cores. Spark begins batches at whole multiples of the interval of a trigger, so that
two streams of one interval begin together, and the second finds what the first wrote a whole interval ago. So the
interval is short, which costs a glance at a log, and the waiting is done here.
"""

from __future__ import annotations

from customer_activity import topology
from customer_activity.settings import Settings

LOOKS = 4  # of a stream behind the hot path, in the interval between its batches
LOOK_SECONDS = 1.0  # and not longer than this
HALVED_AT = 400.0  # records a second that halve the pause between two rounds of the hot path
SHARE_OF_TIME = 0.2  # that a stream behind the hot path is at work at most …
LONGEST_SECONDS = 30.0  # … unless that would make it wait for longer: the batch after a backlog is a small one again


def look(settings: Settings, stream: str) -> float:
    """Return the seconds between two looks of a stream for something new; 0 on the hot path: Spark looks all the time.

    Spark's pause between two looks that find nothing is `spark.sql.streaming.pollingDelay`.
    """
    return min(LOOK_SECONDS, interval(settings, stream) / LOOKS) if topology.spec(stream).is_behind else 0.0


def period(settings: Settings, stream: str, seconds: float, records: int, since: float) -> float:
    """Return the least seconds from one batch's begin to the next one's.

    Args:
        settings: the paces.
        stream: whose batches.
        seconds: that the last one took.
        records: in it.
        since: seconds from the start of the batch before it to its own, in which these records have come.
    """
    spec = topology.spec(stream)
    if spec.is_behind:
        return max(interval(settings, stream), min(seconds / SHARE_OF_TIME, LONGEST_SECONDS))
    if spec != topology.hot_path()[0]:
        return 0.0  # it follows the one above it
    return settings.linger_seconds / (1 + records / max(since, 1e-3) / HALVED_AT)


def interval(settings: Settings, stream: str) -> float:
    """Return the seconds between two batches of a stream behind the hot path: its own, or its fastest follower's."""
    paces = {topology.spec(name).paced_by for name in topology.with_followers(stream)}
    return float(min(getattr(settings, name) for name in paces))
