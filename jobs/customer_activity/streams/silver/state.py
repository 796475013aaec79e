"""What silver must know of the past: which purchase ids are counted, and the current profiles.

Both are in silver's own tables; the index finds them by key. See `restore.py` for how it comes to be at a version.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa

from customer_activity.catalog import Table
from customer_activity.lake import deltalog
from customer_activity.lake.deltalog import Position
from customer_activity.settings import Settings
from customer_activity.state import profile_records, restore
from customer_activity.state.index import Index
from customer_activity.state.profile_records import Profile
from customer_activity.state.restore import Holding
from customer_activity.streams.silver import purchases
from customer_activity.streams.silver.purchases import First

NAME = "silver"
TABLES = """
CREATE TABLE IF NOT EXISTS purchase (
    purchase_id TEXT PRIMARY KEY, "partition" INTEGER, "offset" INTEGER, content BLOB
) WITHOUT ROWID;
"""
ADD_PURCHASE = "INSERT OR IGNORE INTO purchase VALUES (?, ?, ?, ?)"
COUNTED = 'SELECT purchase_id, "partition", "offset", content FROM wanted JOIN purchase ON purchase_id = key'
CURRENT = "SELECT profile.* FROM wanted JOIN profile ON customer_id = key"


def _take_purchases(connection: sqlite3.Connection, rows: pa.Table) -> None:
    in_order = rows.sort_by("purchase_id")
    connection.executemany(ADD_PURCHASE, ((key, *first) for key, first in purchases.firsts(in_order)))


PURCHASES = Holding(
    Table.PURCHASES,
    purchases.COLUMNS,
    "DELETE FROM purchase",
    _take_purchases,
    f'SELECT purchase_id, "partition", "offset", {purchases.CONTENT_SQL} FROM snapshot {{where}}',  # noqa: S608
    ADD_PURCHASE,
    Table.PURCHASE_EVENTS,
)
HOLDINGS = {holding.table: holding for holding in (PURCHASES, profile_records.HOLDING)}
SEEDS = [holding.seed for holding in HOLDINGS.values()]


class SilverIndex:
    """Purchase ids and current profiles, by key; each table as it is before the batch that is worked on."""

    def __init__(self, settings: Settings, table_ids: Mapping[Table, str]) -> None:
        """Open the index; it is brought to where its tables are before it is used.

        Args:
            settings: which lake.
            table_ids: of the tables that silver reads and writes.
        """
        self.lake = settings.lake
        self.ids = table_ids
        self.index = Index(settings.index_dir / "silver.db", TABLES + profile_records.TABLE, SEEDS)
        self.is_current = dict.fromkeys(HOLDINGS, False)

    @contextmanager
    def change(self) -> Iterator[None]:
        """Change the index with a commit inside; after a failure it is compared with the tables again."""
        try:
            with self.index.change():
                yield
        except BaseException:
            self.is_current = dict.fromkeys(self.is_current, False)
            raise

    def counted(self, purchase_ids: Iterable[str]) -> dict[str, First]:
        """Return the counted record of each of these purchase ids that has one."""
        return {row[0]: First._make(row[1:]) for row in self.index.rows(COUNTED, purchase_ids)}

    def current(self, customer_ids: Iterable[str]) -> dict[str, Profile]:
        """Return the current profile of each of these customers that has one."""
        return {row[0]: Profile._make(row) for row in self.index.rows(CURRENT, customer_ids)}

    def add_purchases(self, accepted: Iterable[tuple[str, First]]) -> None:
        """Note purchases as counted."""
        self.index.connection.executemany(ADD_PURCHASE, ((key, *first) for key, first in accepted))

    def change_profiles(self, changes: Iterable[Profile]) -> None:
        """Replace and end current profiles."""
        self.index.connection.executemany(profile_records.CHANGE, changes)

    def advance(self, table: Table, version: int | None, commit: str) -> None:
        """Say that the index holds what a commit wrote; None: the rows were in the table before."""
        if version is None:
            self.is_current[table] = False
        else:
            self.index.advance(table, Position(self.ids[table], version, commit))

    def catch_up(self, table: Table, progress: Callable[[str], None] = lambda _: None) -> None:
        """Bring a table's part to the newest version: silver alone writes it, so that is where a batch begins."""
        if self.is_current[table]:
            return
        newest = deltalog.newest_version(self.lake, table)
        place = deltalog.position(self.lake, table, self.ids[table], newest)
        restore.bring(self.index, self.lake, HOLDINGS[table], place, progress)
        self.is_current[table] = True

    def close(self) -> None:
        """Close the file."""
        self.index.close()
