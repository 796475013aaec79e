"""Work on a part of a batch on executors, with what sorted runs know of the past."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from customer_activity.engine import reach
from customer_activity.engine.executors import InputGone
from customer_activity.lake.feeds import Feed
from customer_activity.state.catalogue import Past
from customer_activity.state.sorted_runs import StateGone

Done = TypeVar("Done")


def with_past(part: Feed, known: Callable[..., Past], work: Callable[[Past], Done]) -> tuple[Past, Done]:
    """Do work with what is known, or, where some of that is gone by then, with the tables alone; return both.

    Args:
        part: what is worked on.
        known: looks up what is known; with `without_runs=True` it leaves the runs aside.
        work: is done by executors.

    Raises:
        ChangeFeedLost: files of the part are gone, or it cannot be told what was in the tables before it.
        SettingsError: an executor does not see what the driver sees.
    """
    for without_runs in (False, True):
        past = known(without_runs=without_runs)
        try:
            return past, work(past)
        except (InputGone, StateGone):
            for table in part.added:
                if part.is_gone(table):
                    raise part.lost(table) from None
    raise reach.blind()
