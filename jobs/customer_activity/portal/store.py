"""The portal's store: the newest row of each customer in a SQLite file, with the offsets up to which it has the topic.

Rows and offsets are one transaction, so a portal that is killed goes on where it was. The file may be lost at any time:
it is made again from the topic. It is of one topic as Kafka knows it; for another one there is another file.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from customer_activity.portal import records
from customer_activity.portal.reading import Change
from customer_activity.portal.records import Row

LAYOUT = "2"  # of the file; one of another release is made again: "1" may have foreign rows, and removals not purged
KEPT_CHANGES = 1_000  # the newest, for the page and for readers that come back
RESTORE_CACHE_KB, CACHE_KB = 128_000, 16_000
PURGE_PAGES = 500  # that a step merges: some hundredths of a second
PURGE_WAIT_MILLIS, WAIT_MILLIS = 100, 5_000  # for who reads: the thread that purges takes records in, too
TO_PURGE = "to_purge_since"

TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE positions (partition INTEGER PRIMARY KEY, next_offset INTEGER NOT NULL);
CREATE TABLE customers (
    number INTEGER PRIMARY KEY, customer_id TEXT NOT NULL UNIQUE, value BLOB NOT NULL, view_version INTEGER NOT NULL
);
CREATE VIRTUAL TABLE words USING fts5(
    name, email, content='', detail=none, columnsize=0, tokenize="unicode61 remove_diacritics 2"
);
CREATE TABLE changes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, customer_id TEXT NOT NULL, at INTEGER NOT NULL, kind TEXT NOT NULL,
    fields TEXT NOT NULL, value BLOB
);
"""
PUT = """
INSERT INTO customers (customer_id, value, view_version) VALUES (?, ?, ?)
ON CONFLICT (customer_id) DO UPDATE SET value = excluded.value, view_version = excluded.view_version
WHERE excluded.view_version >= view_version
"""


class Store:
    """The file, written by one thread; `reading.Reader` is for all others."""

    def __init__(self, path: Path) -> None:
        """Open a file that `create` or `newest` found."""
        self.path = path
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        cache = f"cache_size=-{RESTORE_CACHE_KB}"
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", cache, "temp_store=MEMORY"):
            self.connection.execute(f"PRAGMA {pragma}")
        # What was removed of a customer is not to be found in the file afterwards.
        self.connection.execute("PRAGMA secure_delete=ON")
        self.facts = dict(self.connection.execute("SELECT name, value FROM facts"))
        self.positions = dict(self.connection.execute("SELECT partition, next_offset FROM positions"))
        self.customers = self._count()
        self._need_less()

    @property
    def id(self) -> str:
        """Tell this file from one that was made later or before."""
        return str(self.facts["id"])

    @property
    def identity(self) -> str:
        """Of the topic that it is made from."""
        return str(self.facts["identity"])

    @property
    def is_restored(self) -> bool:
        """Whether it has had everything that was on the topic, and is indexed."""
        return "restored_at" in self.facts

    @property
    def complete_until(self) -> float:
        """Up to when it has everything that was committed, in seconds since 1970; 0 when that is not known."""
        return float(self.facts.get("complete_until", 0))

    @property
    def to_purge_since(self) -> float | None:
        """Since when the files may have something of who is gone, in seconds since 1970; None: they have nothing."""
        return float(self.facts[TO_PURGE]) if TO_PURGE in self.facts else None

    def is_to_be_purged(self, seconds: float) -> bool:
        """Whether the files may have had it for so long; they are, too, where the clock was set back meanwhile."""
        since = self.to_purge_since
        return since is not None and self.is_restored and not 0 <= time.time() - since <= seconds

    @property
    def known_at(self) -> float:
        """When its rows were last known to be those of the topic, in seconds since 1970."""
        return max(self.complete_until, float(self.facts.get("begun_at", 0)))

    def restore(self, rows: Iterable[Row], positions: Mapping[int, int]) -> list[Change]:
        """Take records in while nobody reads: the last state of each customer alone, and no words; tell no change."""
        last: dict[str, Row] = {}
        gone: set[str] = set()
        for row in rows:
            before = last.get(row.customer_id)
            if row.value is None:
                gone.add(row.customer_id)
            elif before is not None and before.value is not None and before.view_version > row.view_version:
                continue
            last[row.customer_id] = row
        with self.connection:
            self.connection.execute("BEGIN")
            self.connection.executemany("DELETE FROM customers WHERE customer_id = ?", ((key,) for key in gone))
            self._forget(gone)
            puts = ((row.customer_id, row.value, row.view_version) for row in last.values() if row.value is not None)
            self.connection.executemany(PUT, puts)
            newest = sorted(last.values(), key=lambda row: row.at)[-KEPT_CHANGES:]
            self._note([(row, "removed" if row.value is None else "restored", []) for row in newest])
            self._advance(positions)
        self._have_told()
        self.positions |= positions
        return []

    def finish(self) -> None:
        """Say that everything is there that was on the topic when it was begun, and index the words."""
        with self.connection:
            self.connection.execute("BEGIN")
            rows = self.connection.execute("SELECT number, value FROM customers")
            words = ((number, *records.words(value)) for number, value in rows)
            self.connection.executemany("INSERT INTO words (rowid, name, email) VALUES (?, ?, ?)", words)
            self._tell("restored_at", repr(time.time()))
        self._have_told()
        self.customers = self._count()
        self._need_less()

    def take(self, rows: Iterable[Row], positions: Mapping[int, int]) -> list[Change]:
        """Take records in, and return what they changed."""
        found: list[tuple[Row, str, list[str]]] = []
        with self.connection:
            self.connection.execute("BEGIN")
            found = [change for row in rows if (change := self._put(row)) is not None]
            self._forget({row.customer_id for row, kind, _ in found if kind == "removed"})
            changes = self._note(_without_the_gone(found))
            self._advance(positions)
        self._have_told()
        self.positions |= positions
        self.customers += sum((kind == "added") - (kind == "removed") for _, kind, _ in found)
        return changes

    def complete(self, until: float) -> None:
        """Note up to when it has everything that was committed."""
        with self.connection:
            self._tell("complete_until", repr(until))
        self._have_told()

    def _need_less(self) -> None:
        """Give memory back that only restoring needs."""
        if self.is_restored:
            self.connection.execute(f"PRAGMA cache_size=-{CACHE_KB}")
            self.connection.execute("PRAGMA shrink_memory")

    def _count(self) -> int:
        return int(self.connection.execute("SELECT count(*) FROM customers").fetchone()[0])

    def _put(self, row: Row) -> tuple[Row, str, list[str]] | None:
        """Put one row in its place; None when nothing changed by it."""
        held = self.connection.execute(
            "SELECT number, value, view_version FROM customers WHERE customer_id = ?", (row.customer_id,)
        ).fetchone()
        number, before, version = held or (None, None, 0)
        if before == row.value or (row.value is not None and row.view_version < version):
            return None
        words = records.words(before) if before is not None else None
        if row.value is None:
            self.connection.execute("DELETE FROM customers WHERE number = ?", (number,))
        elif number is None:
            number = self.connection.execute(PUT, (row.customer_id, row.value, row.view_version)).lastrowid
        else:
            self.connection.execute(
                "UPDATE customers SET value = ?, view_version = ? WHERE number = ?",
                (row.value, row.view_version, number),
            )
        if words != row.words:
            if words is not None:
                self.connection.execute(
                    "INSERT INTO words (words, rowid, name, email) VALUES ('delete', ?, ?, ?)", (number, *words)
                )
            if row.value is not None:
                self.connection.execute("INSERT INTO words (rowid, name, email) VALUES (?, ?, ?)", (number, *row.words))
        kind = "removed" if row.value is None else "added" if before is None else "changed"
        return row, kind, records.changed(before, row.value)

    def _note(self, found: Sequence[tuple[Row, str, list[str]]]) -> list[Change]:
        """Keep the newest changes."""
        changes = []
        for row, kind, fields in found[-KEPT_CHANGES:]:
            number = self.connection.execute(
                "INSERT INTO changes (customer_id, at, kind, fields, value) VALUES (?, ?, ?, ?, ?)",
                (row.customer_id, row.at, kind, json.dumps(fields), row.value),
            ).lastrowid
            changes.append(Change(number or 0, row.customer_id, row.at, kind, fields, row.value))
        if changes:
            self.connection.execute("DELETE FROM changes WHERE number <= ?", (changes[-1].number - KEPT_CHANGES,))
        return changes

    def _forget(self, customers: set[str]) -> None:
        """Remove what earlier changes say of customers whose rows are gone; the files are to be rid of it, too."""
        self.connection.executemany("DELETE FROM changes WHERE customer_id = ?", ((key,) for key in customers))
        if customers and self.to_purge_since is None:
            self._tell(TO_PURGE, repr(time.time()))

    def _advance(self, positions: Mapping[int, int]) -> None:
        self.connection.executemany("REPLACE INTO positions VALUES (?, ?)", positions.items())

    def _tell(self, name: str, value: str) -> None:
        """Write a fact in the transaction at work; it is one after that."""
        self.connection.execute("REPLACE INTO facts VALUES (?, ?)", (name, value))

    def _have_told(self) -> None:
        """Know the facts as the last transaction left them; one that failed has told nothing."""
        self.facts = dict(self.connection.execute("SELECT name, value FROM facts"))

    def purge(self) -> bool:
        """Take a step towards files that have nothing of who is gone; return whether that is done.

        SQLite's index of words only notes what is removed, until it is merged; and its log has pages of before, which
        stay while somebody reads them: then the step is to be tried again.
        """
        before = self.connection.total_changes
        self.connection.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (-PURGE_PAGES,))
        if self.connection.total_changes - before > 1:  # SQLite's own way to tell that there was something to merge
            return False
        self.connection.execute(f"PRAGMA busy_timeout={PURGE_WAIT_MILLIS}")
        (is_busy, *_) = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self.connection.execute(f"PRAGMA busy_timeout={WAIT_MILLIS}")
        if is_busy:
            return False
        with self.connection:
            self.connection.execute("DELETE FROM facts WHERE name = ?", (TO_PURGE,))
        self._have_told()
        return True

    def close(self) -> None:
        """Close the file."""
        self.connection.close()


def _without_the_gone(found: Sequence[tuple[Row, str, list[str]]]) -> list[tuple[Row, str, list[str]]]:
    """Leave out what changed of customers before they were removed."""
    kept, gone = [], set[str]()
    for change in reversed(found):
        row, kind, _ = change
        if row.customer_id not in gone:
            kept.append(change)
        if kind == "removed":
            gone.add(row.customer_id)
    return kept[::-1]


def create(folder: Path, identity: str, begins: Mapping[int, int]) -> Store:
    """Make a store that has nothing yet, in the place of all others; the topic begins at these offsets."""
    discard(folder)
    folder.mkdir(parents=True, exist_ok=True)
    name = secrets.token_hex(4)
    draft = folder / f"view-{name}.sqlite"
    connection = sqlite3.connect(draft, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.executescript(f"BEGIN; {TABLES} COMMIT;")
    with connection:
        facts = {"layout": LAYOUT, "identity": identity, "id": name, "begun_at": repr(time.time())}
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
        connection.executemany("INSERT INTO positions VALUES (?, ?)", begins.items())
    connection.close()
    return Store(draft)


def newest(folder: Path) -> Store | None:
    """Open the store that is there; None when there is none that can be read, or it is of another release."""
    for path in sorted(folder.glob("view-*.sqlite"), key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            found = Store(path)
        except sqlite3.Error:
            continue
        if found.facts.get("layout") == LAYOUT and {"identity", "id"} <= found.facts.keys():
            return found
        found.close()
    return None


def discard(folder: Path) -> None:
    """Remove what is there; who still reads one of these files goes on to do so."""
    for path in folder.glob("view-*.sqlite*"):
        with suppress(FileNotFoundError):
            path.unlink()
