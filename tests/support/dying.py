"""Processes that end in the middle of their work."""

from __future__ import annotations

from collections.abc import Callable

from customer_activity.lake.failpoints import FailPoint


class Died(Exception):
    """Raised at a fail point, as if the process had ended there."""


def dies(at: FailPoint | None = None, *, times: int = 1) -> Callable[[str], None]:
    """Return what ends a process when it comes to a fail point for the nth time; to whichever, where none is named."""
    before = iter(range(times - 1))

    def failpoint(point: str) -> None:
        if at in (None, point) and next(before, None) is None:
            raise Died

    return failpoint
