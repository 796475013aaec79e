"""Waiting for what another process does."""

from __future__ import annotations

from collections.abc import Callable

from tenacity import Retrying, stop_after_delay, wait_fixed


def until(is_so: Callable[[], object], seconds: float = 90, every: float = 0.5) -> None:
    """Wait until something is so."""
    for attempt in Retrying(stop=stop_after_delay(seconds), wait=wait_fixed(every), reraise=True):
        with attempt:
            assert is_so()
