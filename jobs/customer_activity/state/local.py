"""Keyed state in a SQLite file on this machine; the lake is the record, so a lost file is made again from it.

What has to be taken in may be much: after a large batch on executors, or where the file is lost. It is taken in behind
the stream (`catch_up`) where small batches can do without the file meanwhile. A file that has grown beyond
`ACTIVITY_LOCAL_STATE_GB`, or would, is given up: they do without it from then on, also in the next driver.
"""

from __future__ import annotations

import logging
import sqlite3
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from customer_activity import unforeseen
from customer_activity.catalog import Table
from customer_activity.errors import ActivityError, ForeignCommit, IndexDamaged
from customer_activity.lake import deltalog, feeds, holds
from customer_activity.lake.deltalog import Position
from customer_activity.settings import Settings
from customer_activity.state import files, given_up, restore
from customer_activity.state.catching_up import CatchUp
from customer_activity.state.index import Index
from customer_activity.state.keyed import NEWEST, USUAL_GB, Needs

GB = 10**9
AGAIN_SECONDS = 300.0  # after a failure behind the stream
NEAR_ROWS = 200_000  # that are taken in within a second or two: a small batch waits for so many

log = logging.getLogger("customer_activity")


class LocalState:
    """A stream's state; see `keyed.State`."""

    def __init__(self, settings: Settings, name: str, table_ids: Mapping[Table, str], needs: Needs) -> None:
        """Open the file; it is brought to a version before it is used.

        Args:
            settings: which lake, where local state is kept, and how much of it.
            name: of the stream.
            table_ids: of the tables that are held.
            needs: which those are.
        """
        self.name = name
        self.lake = settings.lake
        self.ids = table_ids
        self.needs = needs
        self.holdings = {holding.table: holding for holding in needs.holdings}
        self.folder = settings.index_dir
        # Who asks for the driver asks for its state.
        self.limit = None if settings.placement == "driver" else _kept_gb(settings, needs) * GB
        self.at: dict[Table, Position] = {}  # where this very driver left it
        self.catching_up: CatchUp | None = None
        self.not_before = 0.0  # it is tried to catch up
        self.has_estimated = False
        self.largest = 0.0  # bytes that it has had, or would have: a sort's files go with the sort
        self._index: Index | None = None
        self.holder = uuid.uuid4().hex
        holds.take_back(self.lake, name)
        given_up_at = given_up.at(self.folder, name, self._tables)
        if self.limit is None or self.limit > max(0.0, given_up_at):
            self._index = Index(self.folder / f"{name}.db", needs.tables, (holding.seed for holding in needs.holdings))
            if given_up_at >= 0:  # with a lower limit again its size tells, before it is removed
                given_up.forget(self.folder, name)
        else:
            files.discard(self.folder, name)
            if given_up_at >= 0:  # a note of the release before becomes one of these tables
                given_up.note(self.folder, name, self._tables, given_up_at)

    @property
    def _tables(self) -> dict[str, str]:
        """The ids of the tables that are held: a run folder may come to be that of another lake."""
        return {table.label: self.ids[table] for table in self.holdings}

    @property
    def is_kept(self) -> bool:
        """Whether there is local state."""
        return self._index is not None

    @property
    def index(self) -> Index:
        """The file."""
        if self._index is None:
            raise AssertionError(f"the local state of {self.name} is not kept, and was asked for")
        return self._index

    def is_outgrown(self) -> bool:
        """Whether it has more than is kept, or would; not known while it is caught up behind the stream."""
        if not self.is_kept or self.limit is None or self.is_catching_up():
            return False
        if self.largest <= self.limit:  # nothing makes it smaller
            self.largest = max(self.largest, files.size(self.folder, self.name), self._estimate())
        return self.largest > self.limit

    def can_follow(self, to: Mapping[Table, int | None]) -> bool:
        """Whether it has nothing to take in but what came in since, to hold tables at these versions."""
        return self.is_kept and all(
            self._rows_since(table, self._version(table, version)) is not None for table, version in to.items()
        )

    def fits(self) -> bool:
        """Whether there is local state; what has grown too large is given up now."""
        if self.is_outgrown():
            self._give_up(self.largest)
        return self.is_kept

    def _estimate(self) -> float:
        """Return the bytes that it will have at least with what it lacks, as the tables' rows tell; 0 if that is known.

        It is asked for at the start, and after each part that has left the state behind.
        """
        if self.has_estimated:
            return 0
        self.has_estimated = True
        found = 0
        for each in self.needs.holdings:
            if each.row_bytes:
                newest = deltalog.newest_version(self.lake, each.table)
                since = self._rows_since(each.table, newest)
                found += files.size(self.folder, self.name) if since is not None else 0
                found += each.row_bytes * (self._rows(each.table) if since is None else since)
        return found

    def _rows(self, table: Table) -> int:
        newest = deltalog.newest_version(self.lake, table)
        return sum(file.rows for file in feeds.snapshot(self.lake, table, newest)) if newest > 0 else 0

    def is_near(self, to: Mapping[Table, int | None]) -> bool:
        """Whether it is so near to these versions that a small batch may wait for it to be brought there."""
        if not self.is_kept or self.is_catching_up():
            return False
        rows = 0
        for table, version in to.items():
            at = self.at.get(table)
            if at is None or version not in {NEWEST, at.version}:
                rows += self._rows_until(table, version)
        return rows <= NEAR_ROWS

    def _rows_until(self, table: Table, version: int | None) -> int:
        """Return how many rows of a table have to be taken in."""
        since = self._rows_since(table, self._version(table, version))
        return self._rows(table) if since is None else since

    def _rows_since(self, table: Table, wanted: int) -> int | None:
        """Return how many rows of a table came in since; None where all of them have to be read again."""
        with self.index.checked():
            held = self.index.position(table)
        if held is None or held.version > wanted:
            return None
        if held.version == wanted:
            return 0
        with suppress(ActivityError):  # a correction, for one
            return sum(file.rows for file in feeds.read(self.lake, {table: []}, {table: (held.version, wanted)}).files)
        return None

    def bring(self, to: Mapping[Table, int | None], progress: Callable[[str], None] = lambda _: None) -> None:
        """Have it hold tables exactly at these versions, or at their `NEWEST`."""
        if self.catching_up is not None:
            self.catching_up.wait(progress)
            self.is_catching_up()
        for table, version in to.items():
            at = self.at.get(table)
            if at is not None and version in {NEWEST, at.version}:
                continue
            place = self._place(table, version)
            self._bring(table, place, progress)
            self.at[table] = place

    def _at(self, table: Table) -> int | None:
        with self.index.checked():
            held, begun = self.index.position(table), self.index.seeding(table)
        place = held or (begun and begun[0])
        return place.version if place else None

    def _bring(self, table: Table, place: Position, progress: Callable[[str], None]) -> None:
        restore.bring(self.index, self.lake, self.holdings[table], place, progress)

    def _place(self, table: Table, version: int | None) -> Position:
        return deltalog.position(self.lake, table, self.ids[table], self._version(table, version))

    def _version(self, table: Table, version: int | None) -> int:
        return deltalog.newest_version(self.lake, table) if version is NEWEST else version

    def catch_up(self, to: Mapping[Table, int | None]) -> bool:
        """Begin to bring it to these versions behind the stream, which does without it meanwhile.

        Returns whether it is being brought there; not so for a while after that has failed, and not where it is too
        large already.
        """
        if not self.is_kept or time.monotonic() < self.not_before or self.is_outgrown():
            return False
        places = {table: self._place(table, version) for table, version in to.items()}
        if self.is_catching_up() and self.catching_up is not None:
            self.catching_up.to = {**self.catching_up.to, **places}  # it goes on to there
        else:
            self.at = {}
            self.catching_up = CatchUp(
                *(self.lake, self.name, self.holder, places),
                bring=self._bring,
                at=self._at,
                is_too_large=self.is_too_large,
            )
        return True

    def is_catching_up(self) -> bool:
        """Whether it is being brought on. Where that has failed, it is tried again later, unless it would do no good.

        Raises:
            ForeignCommit: a commit on the way there is none of the pipeline's.
            IndexDamaged: the state cannot be read; the next start makes it again.
        """
        running = self.catching_up
        if running is None:
            return False
        if running.is_alive():
            return True
        self.catching_up = None
        if isinstance(running.error, ForeignCommit | IndexDamaged):
            raise running.error
        if running.error is not None:
            self.not_before = time.monotonic() + AGAIN_SECONDS
            log.warning(
                "the local state of %s has not caught up, and is tried again later: %s",
                *(self.name, unforeseen.brief(running.error)),
            )
        return False

    def look_up(self, select: str, keys: Iterable[str]) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a query over the keys, which are the table `wanted`."""
        return self.index.rows(select, keys)

    def each(self, select: str, keys: Iterable[str]) -> Generator[tuple[Any, ...]]:
        """Yield the same rows as they are read; who stops before the last one closes this."""
        return self.index.each(select, keys)

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
        self.has_estimated = False

    def is_too_large(self) -> bool:
        """Whether the file, or what is being sorted for it, has more than is kept."""
        self.largest = max(self.largest, files.size(self.folder, self.name))
        return self.limit is not None and self.largest > self.limit

    def _give_up(self, found: float) -> None:
        """Keep none any more; the next driver is told at which size."""
        log.warning(
            "the local state of %s takes %.1f GB, or will, which is more than the %g GB that are kept "
            "(ACTIVITY_LOCAL_STATE_GB); it is given up, and small batches look state up in the lake's sorted runs",
            self.name,
            found / GB,
            (self.limit or 0) / GB,
        )
        self.index.close()
        self._index = None
        self.at = {}
        files.discard(self.folder, self.name)
        given_up.note(self.folder, self.name, self._tables, found)

    def close(self) -> None:
        """Close the file."""
        is_free = self.catching_up is None or self.catching_up.has_stopped()
        if self._index is not None and is_free:
            self._index.close()


def _kept_gb(settings: Settings, needs: Needs) -> float:
    """Return how much local state is kept where the settings do not say.

    Where the lake's sorted runs are memory-mapped, and built by threads of the driver, a look-up in them is as fast as
    in a large file. In a bucket runs are read whole, and a cluster may have no executor to build them.
    """
    if settings.local_state_gb is not None:
        return settings.local_state_gb
    return needs.kept_gb if settings.is_local_lake and not settings.is_on_cluster else USUAL_GB
