"""Read a batch's change feeds from the files that its commits added: no plan, no job, and no row through the JVM.

Spark plans which versions a batch has, and notes them in the checkpoint. The hot path's tables are only appended to,
so the change feed of some versions is what their commits added: the files that `_delta_log/<version>.json` names. A
compaction's files are none of them (`dataChange` is false). What is no append of ours is a named operation, which
`named_operations.py` tells how to read, or is refused. The rows that a correction adds are in a file of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import ChangeFeedLost, Corrected, ForeignCommit
from customer_activity.lake import deltalog, microbatch, named_operations
from customer_activity.lake.deltalog import Position
from customer_activity.lake.named_operations import Kind, Operation
from customer_activity.storage.filesystem import filesystem, infos

SMALL_BATCH_FILES = 64
# A part of a batch: what a stream works on at once. Some rows are a megabyte, and some commits have one row.
PART_ROWS = 2_500_000
PART_BYTES = 256 << 20  # of Parquet
PART_FILES = 1_024
READ_AHEAD = 4  # batches and files that are read before they are asked for
LOST = "find out what removed it, and restore it from a backup: nothing was skipped"

Versions = Mapping[Table, tuple[int, int]]


class Added(NamedTuple):
    """A file that a commit added to a table."""

    version: int
    path: str
    size: int
    rows: int


class Told(NamedTuple):
    """What a commit tells of itself."""

    commit: str  # its own id
    landing: int | None  # which one it is, of bronze's
    retracted: Added | None = None  # the file, which may be empty, with the rows that a correction retracts
    replaces: bool = False  # files of the table by others, as a compaction does


@dataclass(eq=False)
class Feed:
    """What was appended to some tables in some versions; no file is open yet."""

    lake: str
    columns: Mapping[Table, Sequence[str]]  # what is read of each table
    versions: dict[Table, tuple[int, int]]  # by table, the version before the first and the last one
    added: Mapping[Table, Sequence[Added]]  # by table, the files, in the order of versions
    # By table and version, the commit's own id and the landing that it notes, as far as they are known.
    commits: Mapping[Table, Mapping[int, Told]]

    @property
    def files(self) -> list[Added]:
        """All files, table by table."""
        return [file for table in self.added for file in self.added[table]]

    @property
    def is_small(self) -> bool:
        """Whether they are few and short."""
        files = self.files
        return len(files) <= SMALL_BATCH_FILES and sum(file.size for file in files) <= microbatch.SMALL_BATCH_BYTES

    @property
    def corrections(self) -> list[Added]:
        """The files with the rows that corrections among it retract, in the order of versions."""
        told = (told for of_table in self.commits.values() for told in of_table.values())
        return [each.retracted for each in told if each.retracted is not None]

    @property
    def is_replaced(self) -> bool:
        """Whether some of the files may have been replaced since, so that VACUUM will remove them."""
        return bool(self.files) and any(told.replaces for of in self.commits.values() for told in of.values())

    def end(self, table: Table, table_id: str) -> Position:
        """Return the place of the last version of a table."""
        _, upto = self.versions[table]
        told = self.commits.get(table, {}).get(upto)
        if told is None:
            return deltalog.position(self.lake, table, table_id, upto)
        return Position(table_id, upto, told.commit)

    def landing(self, table: Table) -> int | None:
        """Return the newest landing that is in it of a table of events; None where no commit tells."""
        after, upto = self.versions[table]
        of_table = self.commits.get(table, {})
        found = (of_table[version].landing for version in range(upto, after, -1) if version in of_table)
        return next((landing for landing in found if landing is not None), None)

    def parts(self, files: int | None = None, stop: int | None = None, of: Sequence[Table] = ()) -> Iterator[Feed]:
        """Divide it into feeds of whole versions, each of bounded rows, bytes and files, unless one version has more.

        The versions of the first table come first. All parts together have every version, also those without a file.
        A part has at most so many `files`; PART_FILES when not given. No part that begins before `stop` goes on behind
        it: the number, made from the versions of the tables in `of` (`microbatch.number_of`), of a transaction that was
        written for a part before a crash, so that this part is the same.
        """
        limits = (PART_ROWS, PART_BYTES, PART_FILES if files is None else files)
        here = {table: after for table, (after, _) in self.versions.items()}
        waiting: dict[Table, list[Added]] = {table: [] for table in self.added}
        counted = (0, 0, 0)
        for table in self.added:
            for _, files_added in groupby(self.added[table], attrgetter("version")):
                of_version = list(files_added)
                more = (sum(file.rows for file in of_version), sum(file.size for file in of_version), len(of_version))
                together = tuple(a + b for a, b in zip(counted, more, strict=True))
                is_full = any(a > b for a, b in zip(together, limits, strict=True))
                ends = {name: files[-1].version if files else here[name] for name, files in waiting.items()}
                goes_on = microbatch.number_of((ends | {table: of_version[0].version})[name] for name in of)
                if stop is not None and microbatch.number_of(ends[name] for name in of) <= stop < goes_on:
                    is_full = True
                if counted[2] and is_full:
                    yield self._part(here, waiting)
                    waiting, together = {name: [] for name in self.added}, more
                waiting[table] += of_version
                counted = (together[0], together[1], together[2])
        yield self._part(here, waiting, is_last=True)

    def _part(self, here: dict[Table, int], added: Mapping[Table, list[Added]], *, is_last: bool = False) -> Feed:
        """Return the feed of some files from `here` on, and move `here` behind them."""
        versions = {}
        for table, (_, upto) in self.versions.items():
            end = upto if is_last else max((file.version for file in added[table]), default=here[table])
            versions[table] = here[table], end
            here[table] = end
        return Feed(self.lake, self.columns, versions, added, self.commits)

    def batches(self, table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield one table's rows: few files one after the other, many on all cores, some row groups ahead.

        Raises:
            ChangeFeedLost: a file is gone.
        """
        files, folder = filesystem(table_path(self.lake, table))
        paths = [f"{folder}/{file.path}" for file in self.added[table]]
        schema = pa.schema([arrow_schema(table).field(name) for name in columns])
        try:
            if self.has_few(table) or not paths:
                for path in paths:
                    yield from pq.read_table(path, schema=schema, filesystem=files).to_batches()
                return
            from pyarrow import dataset  # noqa: PLC0415 - brings pandas, which few commands need

            found = dataset.dataset(paths, schema=schema, filesystem=files, format="parquet")
            yield from found.to_batches(batch_readahead=READ_AHEAD, fragment_readahead=READ_AHEAD)
        except FileNotFoundError as error:
            raise self.lost(table) from error

    def has_few(self, table: Table) -> bool:
        """Whether a table's files can be read whole: a short one may have gigabytes of rows with the same texts."""
        return self.is_small and sum(file.rows for file in self.added[table]) <= microbatch.SMALL_BATCH_ROWS

    def is_gone(self, table: Table) -> bool:
        """Whether some of a table's files are not there any more."""
        return are_gone(self.lake, table, self.added[table])

    def lost(self, table: Table) -> ChangeFeedLost:
        """Say that files of a table are gone."""
        after, upto = self.versions[table]
        return ChangeFeedLost(
            f"{table.label}: files that versions {after + 1} to {upto} added are gone, and they were not read yet",
            remedy=LOST,
        )


def read(
    lake: str, columns: Mapping[Table, Sequence[str]], versions: Versions, *, even_retracted: bool = False
) -> Feed:
    """Return what was appended to some tables, given the version read last (-1: none) and the newest wanted of each.

    A column that a file lacks is null in its rows. With `even_retracted` rows are there, too, that a correction among
    these versions retracts: `Feed.corrections` has them.

    Raises:
        ChangeFeedLost: an entry of a log is gone.
        Corrected: a correction has retracted rows, or has put right what a foreign commit changed.
        ForeignCommit: a commit changed rows and is none of the pipeline's.
    """
    added: dict[Table, Sequence[Added]] = {}
    commits: dict[Table, Mapping[int, Told]] = {}
    for table in columns:
        added[table], commits[table] = _added(lake, table, *versions[table], even_retracted=even_retracted)
    return Feed(lake, columns, dict(versions), added, commits)


def _added(
    lake: str, table: Table, after: int, upto: int, *, even_retracted: bool
) -> tuple[list[Added], dict[int, Told]]:
    """List the files that commits added, and what the commits tell of themselves."""
    added: list[Added] = []
    commits: dict[int, Told] = {}
    refused: ForeignCommit | None = None
    wanted = range(after + 1, upto + 1)
    for version, found in zip(wanted, deltalog.entries(lake, table, wanted), strict=True):
        if found is None:
            if after < 0:  # the log begins later: all versions up to one are the table at that version
                return snapshot(lake, table, upto), {}
            raise ChangeFeedLost(
                f"{table.label}: version {version} is gone from the log, and it was not read yet", remedy=LOST
            )
        commit = named_operations.classify(found.actions)
        replaces = any(action.get("remove") for action in found.actions)
        commits[version] = Told(found.commit, commit.note.get("landing"), replaces=replaces)
        is_recomputed = commit.kind is Kind.FOREIGN and named_operations.is_recomputed(table, commit, found.actions)
        if commit.kind is Kind.FOREIGN and not is_recomputed:
            refused = refused or foreign(table, version, commit.described_by)
        elif commit.operation is Operation.CORRECTION or is_recomputed:
            coming, going = (_kept(version, commit.note.get(what)) for what in ("added", "retracted"))
            if refused is not None or coming is None or going is None or (going.rows and not even_retracted):
                raise Corrected(
                    f"{table.label}: version {version} is a correction of rows that had been read already",
                    remedy="`activity rebuild --apply` makes all that is computed from this table follow it",
                )
            commits[version] = commits[version]._replace(retracted=going)
            added += [coming] if coming.rows else []
        elif commit.kind is Kind.APPEND:
            added += [_file(version, action) for action in commit.adds]
    if refused is not None:
        raise refused
    return added, commits


def _kept(version: int, noted: Mapping[str, Any] | None) -> Added | None:
    """Return the file with rows of a correction that its commit notes; None where it notes none."""
    return None if noted is None else Added(version, str(noted["path"]), int(noted["size"]), int(noted["rows"]))


def are_gone(lake: str, table: Table, added: Sequence[Added]) -> bool:
    """Whether some of a table's files are not there any more."""
    files, folder = filesystem(table_path(lake, table))
    found = infos(files, [f"{folder}/{file.path}" for file in added])
    return any(info.type == fs.FileType.NotFound for info in found)


def foreign(table: Table, version: int, described_by: str) -> ForeignCommit:
    """Say that a hot-path table was changed by something else than the pipeline."""
    return ForeignCommit(
        f"{table.label}: version {version} was not written by the pipeline ({described_by}), and changes its rows; "
        "nothing of it was counted",
        remedy="restore the table from a backup made before it; or, if bronze is intact, correct silver and gold from "
        "it: `activity rebuild --apply`",
    )


def rows_told(files: Iterable[Added]) -> int | None:
    """Return how many rows files have by their log; None where one does not tell: a writer may leave statistics out."""
    rows = [file.rows for file in files]
    return sum(rows) if all(rows) else None


def snapshot(lake: str, table: Table, version: int) -> list[Added]:
    """List the files that a table has at a version, as if that version had added them all.

    Raises:
        ChangeFeedLost: the log does not reach back to that version.
    """
    lost = ChangeFeedLost(f"{table.label}: version {version} is gone from the log", remedy=LOST)
    if not deltalog.is_whole(lake, table, version):  # of what is left delta-rs would open a table all the same
        raise lost
    try:
        actions = pa.table(DeltaTable(table_path(lake, table), version=version).get_add_actions())
    except DeltaError as error:
        raise lost from error
    columns = (actions.column(name).to_pylist() for name in ("path", "size_bytes", "num_records"))
    return [Added(version, unquote(path), size, rows or 0) for path, size, rows in zip(*columns, strict=True)]


def _file(version: int, add: Mapping[str, Any]) -> Added:
    rows = json.loads(add.get("stats") or "{}").get("numRecords", 0)
    return Added(version, unquote(add["path"]), int(add["size"]), int(rows))
