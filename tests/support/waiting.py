"""Waiting for what another process does."""

from __future__ import annotations

from collections.abc import Callable

from tenacity import Retrying, stop_after_delay, wait_fixed


def until(is_so: Callable[[], bool], seconds: float = 90) -> None:
    """Wait until something is so."""
    for attempt in Retrying(stop=stop_after_delay(seconds), wait=wait_fixed(0.5), reraise=True):
        with attempt:
            assert is_so()
