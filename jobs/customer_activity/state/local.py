"""Keyed state in a SQLite file on this machine; the lake is the record, so a lost file is made again from it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from customer_activity.catalog import Table
from customer_activity.lake import deltalog
from customer_activity.lake.deltalog import Position
from customer_activity.settings import Settings
from customer_activity.state import restore
from customer_activity.state.index import Index
from customer_activity.state.keyed import NEWEST, Needs


class LocalState:
    """A stream's state; see `keyed.State`."""

    def __init__(self, settings: Settings, name: str, table_ids: Mapping[Table, str], needs: Needs) -> None:
        """Open the file; it is brought to a version before it is used.

        Args:
            settings: which lake, and where local state is kept.
            name: of the stream.
            table_ids: of the tables that are held.
            needs: which those are.
        """
        self.lake = settings.lake
        self.ids = table_ids
        self.holdings = {holding.table: holding for holding in needs.holdings}
        seeds = (holding.seed for holding in needs.holdings)
        self.index = Index(settings.index_dir / f"{name}.db", needs.tables, seeds)
        self.at: dict[Table, Position] = {}  # where this very driver left it

    def bring(self, to: Mapping[Table, int | None], progress: Callable[[str], None] = lambda _: None) -> None:
        """Have it hold tables exactly at these versions, or at their `NEWEST`."""
        for table, version in to.items():
            at = self.at.get(table)
            if at is not None and version in {NEWEST, at.version}:
                continue
            wanted = deltalog.newest_version(self.lake, table) if version is NEWEST else version
            place = deltalog.position(self.lake, table, self.ids[table], wanted)
            restore.bring(self.index, self.lake, self.holdings[table], place, progress)
            self.at[table] = place

    def look_up(self, select: str, keys: Iterable[str]) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a query over the keys, which are the table `wanted`."""
        return self.index.rows(select, keys)

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """Change rows in one transaction; after a failure the state is compared with the tables again."""
        try:
            with self.index.change() as connection:
                yield connection
        except BaseException:
            self.at = {}
            raise

    def advance(self, table: Table, version: int | None, commit: str) -> None:
        """Say which commit it holds a table at now; None: the commit had been made before."""
        if version is None:
            self.fall_behind(table)
        else:
            self.at[table] = Position(self.ids[table], version, commit)
            self.index.advance(table, self.at[table])

    def fall_behind(self, table: Table) -> None:
        """Say that a table has rows that were not taken in."""
        self.at.pop(table, None)

    def close(self) -> None:
        """Close the file."""
        self.index.close()


def discard(settings: Settings, name: str) -> None:
    """Remove a stream's state: it is made again from the tables."""
    for file in settings.index_dir.glob(f"{name}.db*"):
        file.unlink()
