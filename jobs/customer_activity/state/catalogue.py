"""Which sorted runs hold a stream's state, at which places in its tables' histories.

`<lake>/_state/<stream>/` has the runs and, for each place that they were brought to, a catalogue: a small file that
names the runs of each bucket. A catalogue is written after the commit that it tells of and never changed, so a crash
leaves the one before, and a driver that has lost its lease adds none: its commit is refused. As all state, runs are
disposable: where no catalogue is of a place on the way to where a batch begins, or a run is gone, they are made again
from the tables.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import unquote

from pyarrow import fs

from customer_activity.catalog import Table
from customer_activity.contracts.columns import HOT
from customer_activity.errors import ChangeFeedLost
from customer_activity.lake import deltalog, feeds
from customer_activity.lake.deltalog import Position
from customer_activity.lake.feeds import Added, Feed
from customer_activity.lake.microbatch import number_of
from customer_activity.state.restore import is_on_the_way
from customer_activity.state.sorted_runs import Run
from customer_activity.storage.filesystem import filesystem, read_whole, write_whole

SUFFIX = ".json"
KEPT = 2  # of the catalogues that are of use: the newest
KEPT_SECONDS = 3_600.0  # so long a file stays that no kept catalogue names: a task may be about to report it
# What no run has is read again with each batch. A small batch adds to the runs when that has become so much, since each
# time it is some files a bucket; with more than is NEAR it is no work for one process any more.
DUE_ROWS, DUE_FILES, DUE_BYTES = 25_000, 32, 16 << 20
NEAR_ROWS, NEAR_FILES, NEAR_BYTES = 2 * DUE_ROWS, 2 * DUE_FILES, 2 * DUE_BYTES
DUE_VERSIONS = HOT.commits // 2  # commits without a file count, too: behind a log that was shortened no run is of use

log = logging.getLogger("customer_activity")

Runs = Mapping[int, Sequence[Run]]  # by bucket, oldest first


Positions = Mapping[Table, Position]


class Past(NamedTuple):
    """What is known of some tables.

    Attributes:
        runs: by bucket.
        files: of the tables, with rows that no run has.
        versions: of a table since the runs were noted, at most; 0 where there are none.
        is_replaced: whether some of the files were compacted since: an hour or two later VACUUM removes them.
    """

    runs: Runs
    files: Mapping[Table, Sequence[Added]]
    versions: int = 0
    is_replaced: bool = False

    @property
    def since(self) -> list[Added]:
        """The files with rows that no run has."""
        return [file for of_table in self.files.values() for file in of_table]

    @property
    def is_near(self) -> bool:
        """Whether little enough is in no run to be read with each small batch."""
        return _is_within(self.since, NEAR_ROWS, NEAR_FILES, NEAR_BYTES)

    @property
    def is_due(self) -> bool:
        """Whether a small batch, too, brings the runs on: much is in none, or will not be there to be read for long."""
        is_passing = self.versions >= DUE_VERSIONS or self.is_replaced
        return is_passing or not _is_within(self.since, DUE_ROWS, DUE_FILES, DUE_BYTES)

    def split(self, rows: int) -> tuple[Past, Past]:
        """Return it with the first of the files in no run, of so many rows or one file, and with the others."""
        now: dict[Table, list[Added]] = {}
        later: dict[Table, list[Added]] = {}
        taken = 0
        for table, files in self.files.items():
            now[table], later[table] = [], []
            for file in files:
                (later if taken and taken + file.rows > rows else now)[table].append(file)
                taken += file.rows
        return self._replace(files=now), self._replace(files=later)


def _is_within(files: Sequence[Added], rows: int, count: int, size: int) -> bool:
    is_short = sum(file.rows for file in files) <= rows and sum(file.size for file in files) <= size
    return is_short and len(files) <= count


def has_runs(lake: str, stream: str, made_by: str) -> bool:
    """Whether a stream has a catalogue of runs that what makes them now can use."""
    names = (name for name in _listed(lake, stream) if name.endswith(SUFFIX))
    return any(_read(lake, stream, name).get("made_by") == made_by for name in names)


def folder(lake: str, stream: str) -> str:
    """Return where a stream's runs are."""
    return f"{lake}/_state/{stream}"


def past(
    lake: str, stream: str, made_by: str, to: Positions, *, without_runs: bool = False, may_repeat: bool = False
) -> Past:
    """Return what is known of tables as they are at some places.

    Args:
        lake: where they are.
        stream: whose state.
        made_by: what makes runs now: those of another contract, or of other code, are of no use.
        to: the places.
        without_runs: read the tables alone, whatever runs there are.
        may_repeat: whether rows that the runs have may be in the files, too: they are where files were compacted, and
            removed, before their rows came into a run.

    Raises:
        ChangeFeedLost: what was in a table at that version cannot be told any more.
        ForeignCommit: a commit since the newest catalogue is none of the pipeline's.
    """
    for _, at, runs in () if without_runs else _catalogues(lake, stream, made_by, to, _listed(lake, stream)):
        try:
            since = {table: _since(lake, table, at[table], to[table]) for table in to}
            files: dict[Table, Sequence[Added]] = {table: feed.files for table, feed in since.items()}
            if may_repeat and not _are_there(lake, files):
                files = {table: _with_replacements(lake, table, at[table], to[table]) for table in to}
        except ChangeFeedLost:  # by a correction, for one: what is in the runs is no longer so
            break
        if _are_there(lake, files):
            versions = max(to[table].version - at[table].version for table in to)
            return Past(runs, files, versions, any(feed.is_replaced for feed in since.values()))
        break  # compacted meanwhile, and removed
    files = {
        table: feeds.snapshot(lake, table, place.version) if place.version > 0 else [] for table, place in to.items()
    }
    return Past({}, files)


def _is_on_the_way(lake: str, table: Table, at: Position, to: Position) -> bool:
    return (bool(at.commit) or at.version < 0) and (at == to or is_on_the_way(lake, table, at, to))


def _since(lake: str, table: Table, at: Position, to: Position) -> Feed:
    """Return what came between two places."""
    return feeds.read(lake, {table: []}, {table: (at.version, to.version)})


def _with_replacements(lake: str, table: Table, at: Position, to: Position) -> list[Added]:
    """Return the files that have, at a place, the rows that came in since another one.

    Where such files were compacted these are the compaction's, with rows of others; what was compacted without one of
    them is left out.
    """
    named: set[str] = set()
    wanted = range(at.version + 1, to.version + 1)
    for version, entry in zip(wanted, deltalog.entries(lake, table, wanted), strict=True):
        if entry is None:
            raise ChangeFeedLost(f"{table.label}: version {version} is gone from the log", remedy=feeds.LOST)
        added = [action["add"] for action in entry.actions if action.get("add")]
        removed = {unquote(action["remove"]["path"]) for action in entry.actions if action.get("remove")}
        if removed & named or any(add.get("dataChange", True) for add in added):
            named |= {unquote(add["path"]) for add in added}
    return [file for file in feeds.snapshot(lake, table, to.version) if file.path in named]


def _are_there(lake: str, added: Mapping[Table, Sequence[Added]]) -> bool:
    return not any(feeds.are_gone(lake, table, of_table) for table, of_table in added.items())


def _catalogues(
    lake: str, stream: str, made_by: str, to: Positions, found: Mapping[str, fs.FileInfo]
) -> Iterator[tuple[str, Positions, Runs]]:
    """Yield what was noted of places on the way to others, newest first, by its name.

    What names a run that is not there as it was is left out.
    """
    for name in sorted((name for name in found if name.endswith(SUFFIX)), reverse=True):
        told = _read(lake, stream, name)
        if told.get("made_by") != made_by:
            continue
        runs = {int(bucket): [Run(*run) for run in of] for bucket, of in told["runs"].items()}
        if all(run.path in found and found[run.path].size == run.size for of in runs.values() for run in of):
            at = {Table.labelled(label): Position(*place) for label, place in told["positions"].items()}
            if at.keys() == to.keys() and all(_is_on_the_way(lake, table, at[table], to[table]) for table in to):
                yield name, at, runs


def _read(lake: str, stream: str, name: str) -> dict[str, Any]:
    """Read a catalogue; empty where it is gone or damaged."""
    try:
        told = json.loads(read_whole(f"{folder(lake, stream)}/{name}") or b"{}")
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def note(lake: str, stream: str, made_by: str, at: Positions, runs: Runs) -> None:
    """Say that these runs hold tables at some places, and remove files that have been of no use for long.

    What cannot be noted is made again: a batch that is committed does not fail for it.
    """
    try:
        _tidy(lake, stream, made_by, at, _note(lake, stream, made_by, at, runs))
    except OSError as error:
        log.warning("the sorted runs of %s are not noted, and the next large batch makes them again: %s", stream, error)


def _note(lake: str, stream: str, made_by: str, at: Positions, runs: Runs) -> str:
    told = {
        "made_by": made_by,
        "positions": {table.label: place for table, place in at.items()},
        "runs": {str(bucket): list(of) for bucket, of in runs.items()},
    }
    number = number_of(place.version for place in at.values())
    name = f"{number:020}-{'-'.join(place.commit[:8] for place in at.values())}{SUFFIX}"
    write_whole(f"{folder(lake, stream)}/{name}", json.dumps(told).encode())
    return name


def _tidy(lake: str, stream: str, made_by: str, at: Positions, noted: str) -> None:
    """Remove what no batch will look for, after a catalogue was noted.

    Kept is what is read: files' times tell which clock they are of, and not which catalogue is newer. Those are of the
    tables as they are now, since others may have gone on after the commit that was noted, and of the place that was
    noted, since a stream that was put back reads what is before its own place.
    """
    files, _ = filesystem(lake)
    found = _listed(lake, stream)
    if noted not in found:  # by a storage that lists late
        return
    to = {
        table: deltalog.position(lake, table, place.table_id, deltalog.newest_version(lake, table))
        for table, place in at.items()
    }
    kept: set[str] = set()
    for places in (to, at):
        for name, _, runs in islice(_catalogues(lake, stream, made_by, places, found), KEPT):
            kept |= {name, *(run.path for of in runs.values() for run in of)}
    now = found[noted].mtime  # by the clock that the others' times are of
    for name, info in found.items():
        # What is of a time that is still to come was written before that clock was set back.
        if name not in kept and abs((info.mtime - now).total_seconds()) > KEPT_SECONDS:
            files.delete_file(info.path)


def _listed(lake: str, stream: str) -> dict[str, fs.FileInfo]:
    files, place = filesystem(folder(lake, stream))
    selector = fs.FileSelector(place, allow_not_found=True)
    return {info.base_name: info for info in files.get_file_info(selector) if info.type == fs.FileType.File}
