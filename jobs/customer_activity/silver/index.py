"""What silver must know of the past: which purchase ids are counted, and the current profiles.

Both are in silver's own tables; the index finds them by key. See `index.py` for what it is and is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from deltalake import DeltaTable

from customer_activity.catalog import Table, table_path
from customer_activity.datafiles import in_parts
from customer_activity.index import Index, appended
from customer_activity.settings import Settings
from customer_activity.silver import profiles, purchases
from customer_activity.silver.profiles import Profile
from customer_activity.silver.purchases import First

TABLES = """
CREATE TABLE IF NOT EXISTS purchase (
    purchase_id TEXT PRIMARY KEY, "partition" INTEGER, "offset" INTEGER, content BLOB
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS profile (
    customer_id TEXT PRIMARY KEY, name TEXT, email TEXT, address TEXT, loyalty_status TEXT, updated_at INTEGER,
    "partition" INTEGER, "offset" INTEGER, kafka_timestamp INTEGER
) WITHOUT ROWID;
"""
SORTED_ROWS = 100_000  # keys put in sorted by so many at a time: a tree that grows in order grows fast


class SilverIndex:
    """Purchase ids and current profiles, by key."""

    def __init__(self, settings: Settings, table_ids: Mapping[Table, str]) -> None:
        """Open the index of these tables; it is brought up to date before it is used."""
        self.lake = settings.lake
        self.ids = table_ids
        self.index = Index(settings.index_dir / "silver.db", TABLES, table_ids.values())
        self.is_current = dict.fromkeys(table_ids, False)

    @contextmanager
    def change(self) -> Iterator[None]:
        """Change the index with a commit inside; after a failure the tables are read for what they have."""
        try:
            with self.index.change():
                yield
        except BaseException:
            self.is_current = dict.fromkeys(self.is_current, False)
            raise

    def counted(self, purchase_ids: Iterable[str]) -> dict[str, First]:
        """Return the counted record of each of these purchase ids that has one."""
        found = self.index.rows(
            'SELECT purchase_id, "partition", "offset", content FROM purchase '
            "WHERE purchase_id IN (SELECT value FROM json_each(?))",
            purchase_ids,
        )
        return {row[0]: First._make(row[1:]) for row in found}

    def current(self, customer_ids: Iterable[str]) -> dict[str, Profile]:
        """Return the current profile of each of these customers that has one."""
        found = self.index.rows(
            'SELECT customer_id, name, email, address, loyalty_status, updated_at, "partition", "offset", '
            "kafka_timestamp FROM profile WHERE customer_id IN (SELECT value FROM json_each(?))",
            set(customer_ids),
        )
        return {row[0]: Profile._make((*row, False)) for row in found}

    def add_purchases(self, accepted: Iterable[tuple[str, First]]) -> None:
        """Note purchases as counted."""
        self.index.connection.executemany(
            "INSERT OR IGNORE INTO purchase VALUES (?, ?, ?, ?)", ((key, *first) for key, first in accepted)
        )

    def change_profiles(self, changes: Iterable[Profile]) -> None:
        """Replace and remove current profiles."""
        changes = list(changes)
        connection = self.index.connection
        connection.executemany(
            "DELETE FROM profile WHERE customer_id = ?", ((c.customer_id,) for c in changes if c.is_tombstone)
        )
        connection.executemany(
            "INSERT OR REPLACE INTO profile VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (change[:-1] for change in changes if not change.is_tombstone),
        )

    def advance(self, table: Table, version: int | None) -> None:
        """Say that the index holds what a commit wrote; None: the rows were in the table before, so read them."""
        if version is None:
            self.is_current[table] = False
        else:
            self.index.advance(self.ids[table], version)

    def catch_up(self, table: Table) -> None:
        """Take what the table has and the index has not: after a start, and after a batch too large for it."""
        if self.is_current[table]:
            return
        held = self.index.position(self.ids[table])
        newest = DeltaTable(table_path(self.lake, table)).version()
        if held < newest:
            with self.index.change():
                if table is Table.PURCHASES:
                    self._take_purchases(held, newest)
                else:
                    self._take_profiles(held, newest)
                self.index.advance(self.ids[table], newest)
        self.is_current[table] = True

    def _take_purchases(self, held: int, newest: int) -> None:
        rows = appended(self.lake, Table.PURCHASES, held, newest, purchases.COLUMNS)
        for batch in in_parts(rows, SORTED_ROWS):
            self.add_purchases(purchases.firsts(batch.sort_by("purchase_id")))

    def _take_profiles(self, held: int, newest: int) -> None:
        rows = appended(self.lake, Table.PROFILE_CHANGES, held, newest, Profile._fields).read_all()
        in_order = rows.sort_by([("partition", "ascending"), ("offset", "ascending")])
        newest_of = {change.customer_id: change for change in profiles.records(in_order)}
        self.change_profiles(newest_of.values())

    def close(self) -> None:
        """Close the file."""
        self.index.close()
