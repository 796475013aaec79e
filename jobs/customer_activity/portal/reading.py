"""What is read of the portal's store, by any thread, while one other writes it."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import unicodedata
from pathlib import Path
from typing import NamedTuple

WORD = re.compile(r"\w+")


class Change(NamedTuple):
    """What a record of the topic changed.

    Attributes:
        number: counts the changes of this store.
        customer_id: whose row.
        at: the record's Kafka timestamp, in milliseconds since 1970.
        kind: added, changed or removed; `restored` where the state before is not known.
        fields: the fields whose values are others now.
        value: the row as JSON; None when it was removed.
    """

    number: int
    customer_id: str
    at: int
    kind: str
    fields: list[str]
    value: bytes | None


class Reader:
    """A connection that only reads, for each thread that asks."""

    def __init__(self, path: Path, store_id: str) -> None:
        """Take which file; it is opened in the thread that reads."""
        self.path = path
        self.id = store_id
        self._threads = threading.local()

    @property
    def _connection(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._threads, "connection", None)
        if found is None:
            found = sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True, isolation_level=None)
            found.execute("PRAGMA query_only=1")
            self._threads.connection = found
        return found

    def row(self, customer_id: str) -> bytes | None:
        """Return a customer's row as JSON; None when there is none."""
        found = self._connection.execute("SELECT value FROM customers WHERE customer_id = ?", (customer_id,)).fetchone()
        return found[0] if found else None

    def by_id(self, prefix: str, limit: int) -> list[bytes]:
        """Return the rows of the customers whose ids begin so, in the ids' order."""
        above = f"{prefix}\U0010ffff"
        found = self._connection.execute(
            "SELECT value FROM customers WHERE customer_id >= ? AND customer_id <= ? ORDER BY customer_id LIMIT ?",
            (prefix, above, limit),
        )
        return [value for (value,) in found]

    def by_words(self, text: str, limit: int) -> list[bytes]:
        """Return rows whose name or e-mail address has words that begin like each word of a text."""
        composed = unicodedata.normalize("NFC", text).replace("_", " ")
        wanted = " AND ".join(f'"{word}"*' for word in WORD.findall(composed))
        if not wanted:
            return []
        try:
            found = self._connection.execute(
                "SELECT value FROM words JOIN customers ON number = words.rowid WHERE words MATCH ? LIMIT ?",
                (wanted, limit),
            ).fetchall()
        except sqlite3.OperationalError:  # SQLite sees several words in what is one for Python
            return []
        return [value for (value,) in found]

    def changes(self, limit: int, customer_id: str | None = None) -> list[Change]:
        """Return the newest changes, newest first."""
        only = "WHERE customer_id = ?" if customer_id is not None else ""
        found = self._connection.execute(
            f"SELECT * FROM changes {only} ORDER BY at DESC, number DESC LIMIT ?",  # noqa: S608 - a literal
            (*([customer_id] if customer_id is not None else []), limit),
        )
        return [
            Change(number, whose, at, kind, json.loads(fields), value)
            for number, whose, at, kind, fields, value in found
        ]
