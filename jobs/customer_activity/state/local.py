"""Keyed state in a SQLite file on this machine; the lake is the record, so a lost file is made again from it.

What has to be taken in may be much: after a large batch on executors, or where the file is lost. It is taken in behind
the stream (`catch_up`) where small batches can do without the file meanwhile. A file that has grown beyond
`ACTIVITY_LOCAL_STATE_GB` is given up: they do without it from then on, also in the next driver.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from customer_activity.catalog import Table
from customer_activity.errors import ActivityError
from customer_activity.lake import deltalog, feeds
from customer_activity.lake.deltalog import Position
from customer_activity.settings import Settings
from customer_activity.state import restore
from customer_activity.state.index import Index
from customer_activity.state.keyed import NEWEST, Needs

GB = 10**9
STOP_SECONDS = 5.0
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
        self.limit = None if settings.placement == "driver" else settings.local_state_gb * GB
        self.at: dict[Table, Position] = {}  # where this very driver left it
        self.catching_up: _CatchUp | None = None
        self._index: Index | None = None
        if self.limit is None or self.limit > max(0.0, _given_up_at(self.folder, name)):
            self._index = Index(self.folder / f"{name}.db", needs.tables, (holding.seed for holding in needs.holdings))
        else:
            discard_files(self.folder, name)

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

    def fits(self) -> bool:
        """Whether there is local state; what has grown too large is given up now."""
        if self.is_kept and not self.is_catching_up() and self.is_too_large():
            self._give_up()
        return self.is_kept

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
        wanted = deltalog.newest_version(self.lake, table) if version is NEWEST else version
        with self.index.checked():
            held = self.index.position(table)
        if held is not None and held.version == wanted:
            return 0
        if held is not None and held.version < wanted:
            with suppress(ActivityError):  # a correction, for one: all of it is read again
                return sum(
                    file.rows for file in feeds.read(self.lake, {table: []}, {table: (held.version, wanted)}).files
                )
        return sum(file.rows for file in feeds.snapshot(self.lake, table, wanted)) if wanted > 0 else 0

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
            restore.bring(self.index, self.lake, self.holdings[table], place, progress)
            self.at[table] = place

    def _place(self, table: Table, version: int | None) -> Position:
        wanted = deltalog.newest_version(self.lake, table) if version is NEWEST else version
        return deltalog.position(self.lake, table, self.ids[table], wanted)

    def catch_up(self, to: Mapping[Table, int | None]) -> None:
        """Begin to bring it to these versions behind the stream, which does without it meanwhile."""
        if self.is_kept and not self.is_catching_up():
            places = {table: self._place(table, version) for table, version in to.items()}
            self.at = {}
            self.catching_up = _CatchUp(self, places)

    def is_catching_up(self) -> bool:
        """Whether it is being brought on; where that has ended, with what it has failed for."""
        running = self.catching_up
        if running is None:
            return False
        if running.is_alive():
            return True
        self.catching_up = None
        if running.error is not None:
            raise running.error
        return False

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

    def is_too_large(self) -> bool:
        """Whether the file has more than is kept."""
        return self.limit is not None and size(self.folder, self.name) > self.limit

    def _give_up(self) -> None:
        """Keep none any more; the next driver is told at which size."""
        found = size(self.folder, self.name)
        log.warning(
            "the local state of %s has %.1f GB, which is more than ACTIVITY_LOCAL_STATE_GB; it is given up, and small "
            "batches look the past up in the lake's sorted runs",
            self.name,
            found / GB,
        )
        self.index.close()
        self._index = None
        self.at = {}
        discard_files(self.folder, self.name)
        _note_of(self.folder, self.name).write_text(str(found), encoding="utf-8")

    def close(self) -> None:
        """Close the file."""
        is_free = self.catching_up is None or self.catching_up.has_stopped()
        if self._index is not None and is_free:
            self._index.close()


class _Stopped(Exception):
    """Raised where the state is closed, or too large, while it is being brought on."""


class _CatchUp(threading.Thread):
    """Brings a state to some places; nobody else uses its file until that has ended."""

    def __init__(self, state: LocalState, to: Mapping[Table, Position]) -> None:
        super().__init__(name=f"catch-up-{state.name}", daemon=True)
        self.state = state
        self.to = to
        self.told = ""
        self.error: BaseException | None = None
        self.is_stopping = threading.Event()
        self.start()

    def run(self) -> None:
        """Bring each table to its place, a transaction after the other."""
        try:
            for table, place in self.to.items():
                restore.bring(self.state.index, self.state.lake, self.state.holdings[table], place, self._tell)
        except _Stopped:
            pass
        except BaseException as error:  # noqa: BLE001 - raised where the state is used next
            self.error = error

    def _tell(self, how_far: str) -> None:
        self.told = how_far
        if self.state.is_too_large() or self.is_stopping.is_set():
            raise _Stopped

    def wait(self, progress: Callable[[str], None]) -> None:
        """Wait for its end, and pass on how far it is."""
        told = ""
        while self.is_alive():
            self.join(timeout=1.0)
            if self.told != told:
                told = self.told
                progress(told)

    def has_stopped(self) -> bool:
        """End it where it is, and say whether it has ended; what it cannot leave at once ends with the process.

        What is in the file already is of use to the next driver.
        """
        self.is_stopping.set()
        self.join(STOP_SECONDS)
        return not self.is_alive()


def size(folder: Path, name: str) -> int:
    """Return the bytes of a stream's files."""
    return sum(file.stat().st_size for file in folder.glob(f"{name}.db*"))


def _note_of(folder: Path, name: str) -> Path:
    """Return where it is noted at which size the files were given up."""
    return folder / f"{name}.given-up"


def _given_up_at(folder: Path, name: str) -> float:
    try:
        return float(_note_of(folder, name).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return -1.0


def discard_files(folder: Path, name: str) -> None:
    """Remove a stream's files."""
    for file in folder.glob(f"{name}.db*"):
        file.unlink()


def discard(settings: Settings, name: str) -> None:
    """Remove a stream's state: it is made again from the tables."""
    discard_files(settings.index_dir, name)
    _note_of(settings.index_dir, name).unlink(missing_ok=True)
