"""Addresses of this machine that nothing listens on."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a port of loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def free() -> str:
    """Return host:port on loopback."""
    return f"127.0.0.1:{free_port()}"
