"""What the portal's store promises of who is gone, over restarts, readers and a full disk."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from customer_activity.portal import store
from customer_activity.portal.store import Store
from support.view import gone, row

SECRET = "Quetzalcoatlina"  # noqa: S105 - a name that nothing else has


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Store]:
    """Return a store of two customers."""
    found = store.create(tmp_path, "topic", {0: 0})
    found.finish()
    found.take([row(), row("C-2", name=SECRET)], {0: 2})
    yield found
    found.close()


def is_in_files(held: Store) -> bool:
    files = b"".join(file.read_bytes() for file in held.path.parent.iterdir())
    return SECRET.lower().encode() in files.lower()


def test_nothing_is_to_be_purged_before_anybody_is_gone(held: Store) -> None:
    held.take([row(version=2, name="Ann"), gone("C-9")], {0: 4})
    assert held.to_purge_since is None


@pytest.mark.parametrize("is_restored", [True, False], ids=["live", "while restoring"])
def test_since_when_the_files_are_to_be_purged_is_known_after_a_restart(tmp_path: Path, *, is_restored: bool) -> None:
    held = store.create(tmp_path, "topic", {0: 0})
    if is_restored:
        held.finish()
    take = held.take if is_restored else held.restore
    take([row(), row("C-2", name=SECRET)], {0: 2})
    take([gone("C-2")], {0: 3})
    since = held.to_purge_since
    take([gone("C-1")], {0: 4})  # the first of them counts
    if not is_restored:
        held.finish()
    held.close()
    again = store.newest(tmp_path)
    assert again is not None
    assert since is not None
    assert again.to_purge_since == since
    assert not again.is_to_be_purged(60.0)
    assert again.is_to_be_purged(0.0)
    while not again.purge():
        pass
    assert again.to_purge_since is None
    assert not again.is_to_be_purged(0.0)
    again.close()
    assert not is_in_files(again)


def test_a_clock_that_was_set_back_delays_no_purge(held: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    held.take([gone("C-2")], {0: 3})
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert held.is_to_be_purged(3600.0)


def test_files_that_somebody_reads_are_not_called_purged(held: Store) -> None:
    reading = sqlite3.connect(f"{held.path.as_uri()}?mode=ro", uri=True, isolation_level=None)
    reading.execute("BEGIN")
    reading.execute("SELECT count(*) FROM customers").fetchall()
    held.take([gone("C-2")], {0: 3})
    assert not any(held.purge() for _ in range(5))
    assert held.to_purge_since is not None
    reading.close()
    while not held.purge():
        pass
    assert not is_in_files(held)


def test_a_removal_that_is_not_committed_is_none(held: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise sqlite3.OperationalError("disk full")

    monkeypatch.setattr(held, "_advance", fails)
    with pytest.raises(sqlite3.OperationalError):
        held.take([gone("C-2")], {0: 3})
    assert held.to_purge_since is None


def test_a_store_that_could_not_be_finished_is_not_restored(tmp_path: Path) -> None:
    held = store.create(tmp_path, "topic", {0: 0})
    held.restore([row(f"C-{number}", name=f"Name{number} Family{number}") for number in range(2000)], {0: 2000})
    (pages,) = held.connection.execute("PRAGMA page_count").fetchone()
    held.connection.execute(f"PRAGMA max_page_count={pages + 2}")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        held.finish()
    assert not held.is_restored
    held.connection.execute("PRAGMA max_page_count=1000000")
    held.finish()
    assert held.is_restored
    held.close()
