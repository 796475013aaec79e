"""A driver that does what commands ask of it, without its streams."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from customer_activity.settings import Settings
from customer_activity.supervision import requests
from customer_activity.supervision.requests import Request


@contextmanager
def asked_driver(settings: Settings, kind: str, does: Callable[[Request], object]) -> Iterator[None]:
    """Stand in for a driver: a thread that takes the first request of a kind, and does something with it."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.01):
            if (request := requests.pending(settings, kind)) is not None:
                does(request)
                return

    working = threading.Thread(target=work)
    working.start()
    try:
        yield
    finally:
        over.set()
        working.join()
