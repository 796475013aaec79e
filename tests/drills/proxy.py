"""A TCP proxy between the driver and the broker that can be told to delay, cut or hold back what passes through it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self
from unittest.mock import patch

from customer_activity.demo.broker import node
from customer_activity.settings import Settings

HOST = "127.0.0.1"
CHUNK_BYTES = 65_536
LATENCY_SECONDS = 2.0
LOOK_SECONDS = 0.05
RESET_SECONDS = 1.0


class Fault(StrEnum):
    """What the proxy can do to connections."""

    LATENCY = "latency"  # everything that passes is two seconds late
    RESET = "reset"  # every connection is cut, every second
    BLACK_HOLE = "black hole"  # nothing passes, and no connection is closed


class Proxy:
    """Passes bytes on to one port of this machine, in a thread of its own."""

    def __init__(self, upstream: int) -> None:
        """Listen on a free port."""
        self.upstream = upstream
        self.fault: Fault | None = None
        self.hits = 0  # how often a fault met a connection
        self.writers: set[asyncio.StreamWriter] = set()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="proxy", daemon=True)
        self.thread.start()
        listening = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, HOST, 0), self.loop)
        self.server = listening.result()
        self.port = int(self.server.sockets[0].getsockname()[1])

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{HOST}:{self.port}"

    @contextmanager
    def at_fault(self, fault: Fault) -> Iterator[None]:
        """Do something to every connection for as long as the block takes."""
        self.fault = fault
        resetting = asyncio.run_coroutine_threadsafe(self._reset(), self.loop) if fault is Fault.RESET else None
        try:
            yield
        finally:
            self.fault = None
            if resetting is not None:
                resetting.result()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_broker, to_broker = await asyncio.open_connection(HOST, self.upstream)
        except OSError:  # the broker is down: so is this connection
            writer.transport.abort()
            return
        self.writers |= {writer, to_broker}
        await asyncio.gather(self._pump(reader, to_broker), self._pump(from_broker, writer))
        self.writers -= {writer, to_broker}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(CHUNK_BYTES):
                if self.fault is Fault.LATENCY:
                    self.hits += 1
                    await asyncio.sleep(LATENCY_SECONDS)
                while self.fault is Fault.BLACK_HOLE:
                    self.hits += 1
                    await asyncio.sleep(LOOK_SECONDS)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _reset(self) -> None:
        while self.fault is Fault.RESET:
            for writer in self.writers:
                self.hits += 1
                writer.transport.abort()
            await asyncio.sleep(RESET_SECONDS)

    def __enter__(self) -> Self:
        """Return itself: it listens already."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Stop listening; what is connected is cut."""
        self.loop.call_soon_threadsafe(self.server.close)
        for writer in list(self.writers):
            self.loop.call_soon_threadsafe(writer.transport.abort)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


@contextmanager
def in_front_of_the_broker() -> Iterator[Proxy]:
    """Have brokers that start inside the block listen on a second port, which they name to clients as the proxy's."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        upstream = int(probe.getsockname()[1])
    configure = node.configure
    with Proxy(upstream) as proxy:

        def configure_both(settings: Settings) -> Path:
            path = configure(settings)
            lines = []
            for line in path.read_text(encoding="utf-8").splitlines():
                name, _, value = line.partition("=")
                port = {"listeners": upstream, "advertised.listeners": proxy.port}.get(name)
                lines.append(f"{name}={value},PROXIED://{HOST}:{port}" if port else line)
            lines.append("listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT\n")
            path.write_text("\n".join(lines), encoding="utf-8")
            return path

        with patch.object(node, "configure", configure_both):
            yield proxy
