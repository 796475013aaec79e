"""Addresses of this machine that nothing listens on."""

from __future__ import annotations

import random
import socket

# Below those that a system gives to whoever connects somewhere, so that none is taken before it is used; the next one
# is free, too, for a broker's controller.
PORTS = range(15_000, 32_000, 2)


def free_port() -> int:
    """Return a port of loopback."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        if _is_free(port) and _is_free(port + 1):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free() -> str:
    """Return host:port on loopback."""
    return f"127.0.0.1:{free_port()}"
