"""Waiting for what another process does."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tenacity import Retrying, stop_after_delay, wait_fixed


class EndedEarly(BaseException):
    """What was to bring something about has ended before; a BaseException, so that nobody tries again."""


def until(
    is_so: Callable[[], object], seconds: float = 90, running: Future[Any] | None = None, every: float = 0.2
) -> None:
    """Wait until something is so.

    Raises:
        AssertionError: it does not come to be.
        EndedEarly: what runs meanwhile, to bring it about, has ended.
    """
    for attempt in Retrying(stop=stop_after_delay(seconds), wait=wait_fixed(every), reraise=True):
        with attempt:
            if running is not None and running.done():
                raise EndedEarly from running.exception()
            assert is_so()
