"""A local index of Delta tables: what a hop must know of the past, by key, without reading it again.

SQLite on local disk. The lake is the record and the index is disposable: it names the version of each table that it
holds, is changed only by what that table's commits say, and is made anew from the tables when it is lost, belongs to
another table, or cannot be read. Rows and version change in one transaction, so a crash leaves it at a version.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow.fs import FileSelector, FileType

from customer_activity.catalog import Table, table_path
from customer_activity.datafiles import arrow_schema
from customer_activity.storage import filesystem

NEVER = -1  # the version of a table of which nothing is in the index

# Readable after a crash of the process at any point and after one of the machine: only the last moments may be gone,
# and those are in the tables.
PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=NORMAL",
    "cache_size=-65536",
    "temp_store=MEMORY",
    "wal_autocheckpoint=4000",
)


class Index:
    """One SQLite file with a position by table id."""

    def __init__(self, path: Path, tables: str, identity: Iterable[str]) -> None:
        """Open the index, anew when it is of other tables.

        Args:
            path: the file.
            tables: SQL that creates the index's tables.
            identity: ids of the Delta tables that it holds.
        """
        self.path = path
        self.tables = tables
        self.identity = sorted(identity)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.connection = self._open()
        except sqlite3.DatabaseError:  # not a database any more
            self.connection = self._anew()
            return
        known = [name for (name,) in self.connection.execute("SELECT table_id FROM position ORDER BY table_id")]
        if known != self.identity:
            self.connection.close()
            self.connection = self._anew()

    def _open(self) -> sqlite3.Connection:
        # Batches come in threads of py4j, one at a time.
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        for pragma in PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        connection.executescript(
            "CREATE TABLE IF NOT EXISTS position (table_id TEXT PRIMARY KEY, version INTEGER NOT NULL);" + self.tables
        )
        return connection

    def _anew(self) -> sqlite3.Connection:
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        connection = self._open()
        connection.executemany("INSERT INTO position VALUES (?, ?)", [(name, NEVER) for name in self.identity])
        return connection

    def position(self, table_id: str) -> int:
        """Return the version of a table up to which the index holds it; NEVER when there is nothing of it."""
        row = self.connection.execute("SELECT version FROM position WHERE table_id = ?", (table_id,)).fetchone()
        return int(row[0])

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """Change rows in one transaction; `advance` belongs inside it."""
        self.connection.execute("BEGIN")
        try:
            yield self.connection
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    def advance(self, table_id: str, version: int) -> None:
        """Say that the index holds a table up to a version."""
        self.connection.execute("UPDATE position SET version = ? WHERE table_id = ?", (version, table_id))

    def rows(self, select: str, keys: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        """Run a query whose one parameter is a list of keys: `… IN (SELECT value FROM json_each(?))`."""
        return self.connection.execute(select, (json.dumps(list(keys)),))

    def close(self) -> None:
        """Close the file."""
        self.connection.close()


def loadable(lake: str, table: Table, version: int) -> int:
    """Return a version of a table, or the first one after it that the log still has."""
    files, folder = filesystem(table_path(lake, table))
    if files.get_file_info(f"{folder}/_delta_log/{version:020}.json").type != FileType.NotFound:
        return version
    names = (entry.base_name for entry in files.get_file_info(FileSelector(f"{folder}/_delta_log")))
    return max(version, min(int(name[:20]) for name in names if re.fullmatch(r"\d{20}\.json", name)))


def begins_anew(lake: str, table: Table, after: int) -> bool:
    """Whether all of a table has to be read: there is nothing of it yet, or its log no longer has what came next."""
    files, folder = filesystem(table_path(lake, table))
    following = files.get_file_info(f"{folder}/_delta_log/{after + 1:020}.json")
    return after == NEVER or bool(following.type == FileType.NotFound)


def appended(lake: str, table: Table, after: int, upto: int, columns: Sequence[str]) -> pa.RecordBatchReader:
    """Read what was appended to a table after one version and up to another; everything where it `begins_anew`."""
    path = table_path(lake, table)
    if begins_anew(lake, table, after):
        return DeltaTable(path, version=upto).to_pyarrow_dataset().scanner(columns=list(columns)).to_reader()
    changes = pa.RecordBatchReader.from_stream(DeltaTable(path).load_cdf(after + 1, upto))
    schema = pa.schema([arrow_schema(table).field(column) for column in columns])
    # delta-rs hands out views of texts, which few of Arrow's functions know.
    plain = (batch.select(list(columns)).cast(schema) for batch in changes)
    return pa.RecordBatchReader.from_batches(schema, plain)
