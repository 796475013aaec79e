"""What silver must know of the past: which purchase ids are counted, and the current profiles.

Both are in silver's own tables; its state finds them by key.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import pyarrow as pa

from customer_activity.catalog import Table
from customer_activity.state import profile_records
from customer_activity.state.keyed import Holding, Needs, State
from customer_activity.state.profile_records import Profile
from customer_activity.streams.silver import purchases
from customer_activity.streams.silver.purchases import First

TABLES = """
CREATE TABLE IF NOT EXISTS purchase (
    purchase_id TEXT PRIMARY KEY, "partition" INTEGER, "offset" INTEGER, content BLOB
) WITHOUT ROWID;
"""
ADD_PURCHASE = "INSERT OR IGNORE INTO purchase VALUES (?, ?, ?, ?)"
COUNTED = 'SELECT purchase_id, "partition", "offset", content FROM wanted JOIN purchase ON purchase_id = key'
CURRENT = "SELECT profile.* FROM wanted JOIN profile ON customer_id = key"


def _take_purchases(connection: sqlite3.Connection, rows: pa.Table) -> None:
    add_purchases(connection, purchases.firsts(rows.sort_by("purchase_id")))


PURCHASES = Holding(
    Table.PURCHASES,
    purchases.COLUMNS,
    "DELETE FROM purchase",
    _take_purchases,
    f'SELECT purchase_id, "partition", "offset", {purchases.CONTENT_SQL} FROM snapshot {{where}}',  # noqa: S608
    ADD_PURCHASE,
    Table.PURCHASE_EVENTS,
    row_bytes=72,
)
# Of 25 million ids. Sorted runs serve a small batch as fast; what a large one adds, ids in no order, takes a minute and
# more for each million to come into local state that is larger, and the next small batch waits for it.
KEPT_GB = 2.0
NEEDS = Needs(TABLES + profile_records.TABLE, (PURCHASES, profile_records.HOLDING), KEPT_GB)


def counted(state: State, purchase_ids: Iterable[str]) -> dict[str, First]:
    """Return the counted record of each of these purchase ids that has one."""
    return {row[0]: First._make(row[1:]) for row in state.look_up(COUNTED, purchase_ids)}


def current(state: State, customer_ids: Iterable[str]) -> dict[str, Profile]:
    """Return the current profile of each of these customers that has one."""
    return {row[0]: Profile._make(row) for row in state.look_up(CURRENT, customer_ids)}


def add_purchases(connection: sqlite3.Connection, accepted: Iterable[tuple[str, First]]) -> None:
    """Note purchases as counted."""
    connection.executemany(ADD_PURCHASE, ((key, *first) for key, first in accepted))


def change_profiles(connection: sqlite3.Connection, changes: Iterable[Profile]) -> None:
    """Replace and end current profiles."""
    connection.executemany(profile_records.CHANGE, changes)
