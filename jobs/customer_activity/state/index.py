"""A local index of Delta tables: what a stream must know of the past, by key, without reading it again.

SQLite on local disk. The lake is the record and the index is disposable: it holds each table exactly at a place in its
history, or nothing of it, and `restore.py` brings it to the place where a batch begins, from any earlier state. Rows
and place change in one transaction, so a crash leaves it at a place.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

from customer_activity.catalog import Table
from customer_activity.errors import IndexDamaged
from customer_activity.lake.deltalog import Position

FORMAT = 2  # another number is for a change of what a file holds that its SQL does not tell
# Readable after a crash of the process at any point and after one of the machine: only the last moments may be gone,
# and those are in the tables.
PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=NORMAL",
    "cache_size=-65536",
    "temp_store=MEMORY",
    "wal_autocheckpoint=4000",
    f"journal_size_limit={64 << 20}",  # a transaction with keys in no order may have made it much larger
)
POSITIONS = """
CREATE TABLE IF NOT EXISTS position (
    name TEXT PRIMARY KEY, table_id TEXT NOT NULL, version INTEGER NOT NULL, commit_id TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seeding (
    name TEXT PRIMARY KEY, table_id TEXT NOT NULL, version INTEGER NOT NULL, commit_id TEXT NOT NULL, last_key TEXT
) WITHOUT ROWID;
CREATE TEMP TABLE wanted (key TEXT PRIMARY KEY) WITHOUT ROWID;
"""
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class OtherFormat(sqlite3.DatabaseError):
    """Raised for a file that other SQL has made."""


class Index:
    """One SQLite file that holds some tables, each at a place of its own."""

    def __init__(self, path: Path, tables: str, seeds: Iterable[str] = ()) -> None:
        """Open the index; a file that is of no use is made again, as is one whose SQL was another.

        Args:
            path: the file.
            tables: SQL that creates the index's tables.
            seeds: the queries that they are filled with.
        """
        self.path = path
        self.tables = tables
        self.format = crc32("\n".join((str(FORMAT), POSITIONS, tables, *seeds)).encode()) >> 1  # SQLite has 31 bits
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.connection = self._open()
        except sqlite3.DatabaseError as error:
            if not isinstance(error, OtherFormat) and not _is_damage(error):
                raise  # the disk is full, for one: a large index is not given up for that
            self._remove()
            self.connection = self._open()

    def _open(self) -> sqlite3.Connection:
        # Batches come in threads of py4j, one at a time.
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            for pragma in PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            ((found,),) = connection.execute("PRAGMA user_version")
            ((objects,),) = connection.execute("SELECT count(*) FROM sqlite_schema")
            if objects and found != self.format:
                raise OtherFormat(f"format {found}, and {self.format} is wanted")  # noqa: TRY301 - as damage is
            connection.execute(f"PRAGMA user_version={self.format}")
            connection.executescript(POSITIONS + self.tables)
        except BaseException:
            connection.close()
            raise
        return connection

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def position(self, table: Table) -> Position | None:
        """Return the place of a table that the index holds; None when it holds nothing of it."""
        select = "SELECT table_id, version, commit_id FROM position WHERE name = ?"
        row = self.connection.execute(select, (table.label,)).fetchone()
        return None if row is None else Position(*row)

    def advance(self, table: Table, place: Position) -> None:
        """Say that the index holds a table at a place."""
        self.connection.execute("INSERT OR REPLACE INTO position VALUES (?, ?, ?, ?)", (table.label, *place))

    def forget(self, table: Table) -> None:
        """Say that the index holds nothing of a table; its rows go in the same transaction."""
        for name in ("position", "seeding"):
            self.connection.execute(f"DELETE FROM {name} WHERE name = ?", (table.label,))  # noqa: S608 - our own names

    def seeding(self, table: Table) -> tuple[Position, str | None] | None:
        """Return the place that a table is being read from, and the last key that is in; None when it is not."""
        select = "SELECT table_id, version, commit_id, last_key FROM seeding WHERE name = ?"
        row = self.connection.execute(select, (table.label,)).fetchone()
        return None if row is None else (Position(*row[:3]), row[3])

    def seed(self, table: Table, place: Position, last_key: str | None) -> None:
        """Note how far a table is read from a place, in the order of keys."""
        self.connection.execute(
            "INSERT OR REPLACE INTO seeding VALUES (?, ?, ?, ?, ?)", (table.label, *place, last_key)
        )

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """Change rows in one transaction; `advance` belongs inside it.

        Raises:
            IndexDamaged: the file cannot be read; it is gone now.
        """
        with self.checked():
            self.connection.execute("BEGIN")
            try:
                yield self.connection
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise
            self.connection.execute("COMMIT")

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Remove the file when it turns out to be damaged.

        Raises:
            IndexDamaged: it was.
        """
        try:
            yield
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            self.connection.close()
            self._remove()
            raise IndexDamaged(
                f"the local state {self.path} was damaged, and is removed",
                remedy="start again: it is rebuilt from the tables",
            ) from error

    def rows(self, select: str, keys: Iterable[str]) -> Sequence[tuple[Any, ...]]:
        """Run a query over the keys, which are the temporary table `wanted`."""
        with self._asked(select, keys) as found:
            return found.fetchall()

    def each(self, select: str, keys: Iterable[str]) -> Generator[tuple[Any, ...]]:
        """Yield the same rows as they are read; who stops before the last one closes this."""
        with self._asked(select, keys) as found:
            yield from found

    @contextmanager
    def _asked(self, select: str, keys: Iterable[str]) -> Iterator[sqlite3.Cursor]:
        """Keys are bound as they are: JSON's functions would cut a text at U+0000."""
        with self.checked() if self.connection.in_transaction else self.change():
            self.connection.execute("DELETE FROM wanted")
            self.connection.executemany("INSERT OR IGNORE INTO wanted VALUES (?)", ((key,) for key in keys))
            yield self.connection.execute(select)

    def close(self) -> None:
        """Close the file."""
        self.connection.close()


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether an error is about the file itself; SQLite's extended codes have the kind in their last byte."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGED
