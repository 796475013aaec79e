"""What a Python worker of Spark's was sent is acknowledged at once."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from customer_activity.engine import executors

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the option is Linux's")


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    """Yield an end of a connection as a worker has it; both are closed."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.enter_context(socket.create_connection(server.getsockname()))
        accepted, _ = server.accept()
        yield stack.enter_context(accepted)


def test_a_connection_that_waits_with_its_acknowledgements_does_so_no_longer(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    executors.acknowledge()
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
    assert connection.fileno() > 0  # it is still open
    connection.sendall(b"x")
