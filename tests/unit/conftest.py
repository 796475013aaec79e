"""Unit tests are Python alone: what needs a process, a server or a table is a component test."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def python_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Refuse processes, servers and Delta tables. That nothing here imports Spark is seen by tests/component."""

    def refuse(*_args: object, **_options: object) -> None:
        pytest.fail("a unit test starts no process and no server: this one belongs in tests/component")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(socket.socket, "listen", refuse)
    yield
    assert not list(tmp_path.rglob("_delta_log")), "a unit test writes no Delta table: this one belongs elsewhere"
