"""Addresses of this machine that nothing listens on."""

from __future__ import annotations

import socket


def free() -> str:
    """Return host:port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
