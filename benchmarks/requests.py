"""Requests that do not wait for one another: each is sent when it is due, however long others take.

An asyncio client of its own over connections that are kept: it writes a request and reads its answer, and parses no
more than the length, so that it takes little of the cores that it shares with what it measures. How long an answer took
counts from when the request was due.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from typing import NamedTuple

HEADER_END = b"\r\n\r\n"
LENGTH = b"content-length: "
SLICE_SECONDS = 0.002  # a request is late by so much at most before the loop is to blame
CONNECTIONS = 16


class Measured(NamedTuple):
    """What became of the requests.

    Attributes:
        requests: how many were sent.
        failed: how many were not answered with 200 or 404, or not at all.
        seconds: how long it took to send them all.
        p50_ms: half of the answers were there in so many milliseconds, counted from when the request was due.
        p95_ms: likewise.
        p99_ms: likewise.
        greatest_ms: likewise all of them.
    """

    requests: int
    failed: int
    seconds: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    greatest_ms: float


def run(port: int, customers: int, per_second: int, seconds: float, seed: int) -> Measured:
    """Ask for rows of customers that are drawn evenly."""
    return asyncio.run(_run(port, customers, per_second, seconds, seed))


async def _run(port: int, customers: int, per_second: int, seconds: float, seed: int) -> Measured:
    drawn, count = random.Random(seed), int(per_second * seconds)
    free: asyncio.Queue[_Connection] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        free.put_nowait(await _Connection.opened(port))
    taken: list[float] = []
    failed = 0

    async def ask(due: float, customer: int) -> None:
        nonlocal failed
        connection = await free.get()
        try:
            status = await connection.get(f"/customers/C-{customer:08d}")
            failed += status not in (200, 404)
        except (OSError, asyncio.IncompleteReadError):
            failed += 1
            connection = await _Connection.opened(port)
        taken.append(time.perf_counter() - due)
        free.put_nowait(connection)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as asking:
        for number in range(count):
            due = began + number / per_second
            if (wait := due - time.perf_counter()) > SLICE_SECONDS:
                await asyncio.sleep(wait)
            asking.create_task(ask(due, drawn.randrange(customers)))
    took = time.perf_counter() - began
    taken.sort()
    p50, p95, p99 = (1000 * taken[math.ceil(share * len(taken)) - 1] for share in (0.5, 0.95, 0.99))
    return Measured(count, failed, took, p50, p95, p99, 1000 * taken[-1])


class _Connection:
    """A connection that one request at a time uses."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def opened(cls, port: int) -> _Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def get(self, path: str) -> int:
        """Return the status of an answer that has been read whole."""
        self.writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = await self.reader.readuntil(HEADER_END)
        _, _, rest = head.partition(LENGTH)
        await self.reader.readexactly(int(rest[: rest.index(b"\r\n")]))
        return int(head[9:12])
