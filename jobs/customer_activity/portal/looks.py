"""Looks at the lake for all who ask: one at a time for each question, in threads of their own, and waited for not long.

A lake that does not answer keeps a thread for as long as its client tries. So those threads are few and of one route,
and no request waits for one longer than somebody waits for a page; rows, changes and the page itself do without them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

from anyio import CapacityLimiter, to_thread

from customer_activity.errors import EnvironmentFault

THREADS = 2  # of a route: questions about different customers are different looks
WAIT_SECONDS = 5.0

Key = tuple[Any, ...]


class Looks:
    """The looks that are under way."""

    def __init__(self) -> None:
        """Begin with none."""
        self._under_way: dict[Key, asyncio.Task[Any]] = {}
        self._begun: set[Key] = set()
        self._limiters: defaultdict[str, CapacityLimiter] = defaultdict(partial(CapacityLimiter, THREADS))

    async def take(self, name: str, look: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a look finds; who asks the same while it is under way gets the same, or the same failure.

        Raises:
            EnvironmentFault: it takes too long.
        """
        key = (name, *arguments)
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._run(key, look))
            task.add_done_callback(partial(self._ended, key))
        await asyncio.wait({task}, timeout=WAIT_SECONDS)
        if not task.done() and key not in self._begun:
            task.cancel()  # no thread is free: those who ask do not queue up for one
        if not task.done() or task.cancelled():
            raise EnvironmentFault(f"no answer within {WAIT_SECONDS:.0f} s")
        return task.result()

    async def _run(self, key: Key, look: Callable[..., Any]) -> Any:
        name, *arguments = key
        async with self._limiters[name]:
            self._begun.add(key)
            return await to_thread.run_sync(look, *arguments, abandon_on_cancel=True, limiter=CapacityLimiter(1))

    def _ended(self, key: Key, task: asyncio.Task[Any]) -> None:
        self._under_way.pop(key, None)
        self._begun.discard(key)
        if not task.cancelled():
            task.exception()  # nobody may wait any more
