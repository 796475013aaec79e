"""The files of local state on this machine's disk: which streams have one, how large it is, and how it is removed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

from customer_activity.settings import Settings
from customer_activity.state import given_up, restore


def size(folder: Path, name: str) -> int:
    """Return the bytes of a stream's file, or, while these are more, of what is being sorted for it.

    What is sorted comes to be in the file, and SQLite's write-ahead log does with each checkpoint.
    """
    return max(_bytes(folder.glob(f"{name}.db")), _bytes(restore.sorting(folder, name).glob("*")))


def _bytes(files: Iterable[Path]) -> int:
    found = 0
    for file in files:
        with suppress(FileNotFoundError):  # a sort removes files of its own
            found += file.stat().st_size
    return found


def streams(folder: Path) -> list[str]:
    """Return the names of the streams that have a file."""
    return sorted(file.stem for file in folder.glob("*.db"))


def rows(folder: Path, name: str) -> int:
    """Return how many rows a stream's file has: they are counted one by one, while the stream may write.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    with closing(sqlite3.connect(f"file:{folder / name}.db?mode=ro", uri=True)) as connection:
        select = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN ('position', 'seeding')"
        names = [table for (table,) in connection.execute(select).fetchall()]
        counts = (connection.execute(f'SELECT count(*) FROM "{table}"').fetchone() for table in names)  # noqa: S608 - our own names
        return sum(count for (count,) in counts)


def discard(folder: Path, name: str) -> None:
    """Remove a stream's files, and what a killed driver was sorting for them."""
    for file in folder.glob(f"{name}.db*"):
        file.unlink()
    shutil.rmtree(restore.sorting(folder, name), ignore_errors=True)


def forget(settings: Settings, name: str) -> None:
    """Remove a stream's state, and that it was given up: it is made again from the tables."""
    discard(settings.index_dir, name)
    given_up.forget(settings.index_dir, name)
