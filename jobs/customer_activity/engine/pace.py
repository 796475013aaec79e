"""How often a stream behind the hot path looks for something new.

Spark begins batches at whole multiples of the interval, so two streams of one interval begin together, and the second
finds what the first wrote a whole interval ago. One that follows another has something new only when that has written:
so it looks more often, which costs a glance at a log, and does not work more often.
"""

from __future__ import annotations

from customer_activity import topology
from customer_activity.settings import Settings

LOOKS = 4  # of a stream that follows another, in an interval of that one


def pause(settings: Settings, stream: str) -> float:
    """Return the seconds between two looks of a stream; 0 on the hot path."""
    spec = topology.spec(stream)
    if not spec.is_behind:
        return 0.0
    own = interval(settings, stream)
    above = [interval(settings, each.name) for each in topology.upstream(spec) if each.is_behind]
    return own / LOOKS if above and min(above) >= own else own


def interval(settings: Settings, stream: str) -> float:
    """Return the seconds between two batches of a stream: its own pace, or that of the fastest that follows it."""
    paces = {topology.spec(name).paced_by for name in topology.with_followers(stream)}
    return float(min(getattr(settings, name) for name in paces))
