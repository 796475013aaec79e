"""Keyed state: what a stream must know of the past, by key, with each table at exactly one version.

A stream declares what it needs, and the engine opens it (`engine/stream.py`): where state is kept is the engine's
business. `local.py` keeps it in a SQLite file on this machine.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from customer_activity.catalog import Table

NEWEST = None  # of a table that the stream alone writes
USUAL_GB = 16.0  # of local state that a stream keeps at most


@dataclass(frozen=True)
class Holding:
    """What an index holds of one table.

    Attributes:
        table: which.
        columns: what is read of it; the first one is the key of the index's rows, alone.
        clear: SQL that removes all of it from the index.
        take: adds what was appended, rows in any order, to the index.
        seed: query over `snapshot`, the table at a version: the index's rows, the key first; `{where}` is in it where
            a condition on the key may stand, and it is not ordered.
        insert: SQL that puts one such row into the index.
        events: the table whose landings tell which of the rows were there when.
        row_bytes: of local state that each row of the table takes; 0 where it is the keys that take room.
        goes_on_with: the keys after the last one that is in, where seeding was ended; `>=` where a key has several
            rows: some of the last one's may be missing, and to `insert` those that are there changes nothing.
    """

    table: Table
    columns: Sequence[str]
    clear: str
    take: Callable[[sqlite3.Connection, pa.Table], None]
    seed: str
    insert: str
    events: Table
    row_bytes: int = 0
    goes_on_with: str = ">"

    @property
    def key(self) -> str:
        """The column that is the key of the index's rows."""
        return self.columns[0]


@dataclass(frozen=True)
class Needs:
    """What state a stream needs.

    Attributes:
        tables: SQL that creates the state's tables.
        holdings: what is kept of which Delta table.
        kept_gb: how much is kept at most, where sorted runs serve as well and `ACTIVITY_LOCAL_STATE_GB` is not set.
    """

    tables: str
    holdings: Sequence[Holding]
    kept_gb: float = USUAL_GB


class State(Protocol):
    """What a stream knows of some Delta tables, each as it was at one version."""

    @property
    def is_kept(self) -> bool:
        """Whether there is any; without it nothing else may be asked of it but `fall_behind` and `close`."""

    def is_outgrown(self) -> bool:
        """Whether it has grown too large, or would, before a batch."""

    def can_follow(self, to: Mapping[Table, int | None]) -> bool:
        """Whether it has nothing to take in but what came in since, to hold tables at these versions."""

    def fits(self) -> bool:
        """Whether there is any, before a batch: what has grown too large is given up now."""

    def is_near(self, to: Mapping[Table, int | None]) -> bool:
        """Whether it is so near to these versions that a small batch may wait for it to be brought there."""

    def catch_up(self, to: Mapping[Table, int | None]) -> bool:
        """Begin to bring it to these versions behind the stream, which does without it until `is_near`."""

    def bring(self, to: Mapping[Table, int | None], progress: Callable[[str], None] = ...) -> None:
        """Have it hold tables exactly at these versions, or at their `NEWEST`, from any earlier state.

        Raises:
            ChangeFeedLost: what was in a table at a version cannot be told any more.
            ForeignCommit: a commit on the way there is none of the pipeline's.
            IndexDamaged: the state cannot be read; the next start makes it again.
        """

    def look_up(self, select: str, keys: Iterable[str]) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a query over the keys, which are the table `wanted`."""

    def each(self, select: str, keys: Iterable[str]) -> Generator[tuple[Any, ...]]:
        """Yield the same rows as they are read; who stops before the last one closes this."""

    def change(self) -> AbstractContextManager[sqlite3.Connection]:
        """Change rows in one transaction, with the commit that they belong to inside; taken back where that fails."""

    def advance(self, table: Table, version: int | None, commit: str) -> None:
        """Say, within a change, which commit it holds a table at now; None: the commit had been made before."""

    def fall_behind(self, table: Table) -> None:
        """Say that a table has rows that were not taken in."""

    def close(self) -> None:
        """Close it."""
