"""Rows of local state are counted beside the looks: a large one holds nobody up."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from customer_activity.metrics.states import States
from customer_activity.state import files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the state of one stream, of three rows."""
    with closing(sqlite3.connect(tmp_path / "silver.db")) as connection:
        connection.executescript("CREATE TABLE seen (id INTEGER); INSERT INTO seen VALUES (1), (2), (3);")
    return tmp_path


def test_a_small_one_is_counted_at_once(folder: Path) -> None:
    state = States(folder, wait=60.0).read()["silver"]
    assert state.rows == 3
    assert state.size_bytes > 0


def test_nobody_waits_for_a_large_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, times = threading.Event(), []

    def rows(_: Path, name: str) -> int:
        times.append(name)
        assert counts.wait(60.0)
        return 1_000_000

    monkeypatch.setattr(files, "rows", rows)
    states = States(folder, wait=0.01)
    assert [states.read()["silver"].rows for _ in range(3)] == [None] * 3
    assert times == ["silver"], "once, however often somebody looks"
    assert states.counting is not None
    counts.set()
    states.counting.join()
    assert states.read()["silver"].rows == 1_000_000


def test_one_that_is_being_made_is_counted_by_a_later_look(folder: Path) -> None:
    (folder / "gold.db").write_bytes(b"no database")
    states = States(folder, wait=60.0)
    assert {name: state.rows for name, state in states.read().items()} == {"gold": None, "silver": 3}
