"""Maintenance of tables while the streams run: checkpoints of their logs, compaction of small files, VACUUM.

delta-rs does them beside the streams, without a Spark job. A compaction changes no row and no reader of the change
feed sees it. It commits to a table that the driver's JVM also commits to, and on a local disk two processes' commits
are not safe from each other (ADR 4): the caller holds the table's writers while it runs.

Whoever looks for news lists a table's whole log, several times a batch: at a commit a second it would be slower every
minute. So a log keeps little more than the table's declaration says; what its older commits said goes to the table's
history.

What a compaction has replaced is still what a reader reads that has not come so far. So nothing is removed, no file and
no log entry, that one of the table's readers may still need, and one that has not begun needs all of it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, WriterProperties
from deltalake.exceptions import DeltaError
from pyarrow import fs

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.checkpoints import checkpoint, offsets
from customer_activity.contracts.tables import TABLES
from customer_activity.errors import ActivityError
from customer_activity.lake import change_feeds, deltalog, footers, history, holds
from customer_activity.lake.checksums import write_checksum
from customer_activity.lake.datafiles import ROW_GROUP_ROWS
from customer_activity.lake.failpoints import FailPoint, nowhere
from customer_activity.maintenance import listing
from customer_activity.storage.filesystem import REQUESTS_AT_A_TIME, filesystem, infos

COMMITS_A_CHECKPOINT = 100  # a reader that opens the table reads so many small log files at most
SLICE_COMMITS = 500  # a log is shortened by at a time: a fraction of a second, some seconds on a disk that is busy
SLICE_SECONDS = 1.0  # of removing checksums at a time
SMALL_FILES = 100  # compacted when there are so many: a few minutes of batches
# Small enough that a writer waits for some tenths of a second only: with 32 MB every compaction rewrote most of the one
# before, and bronze waited five seconds.
SMALL_BYTES = 512 << 10
COMPACTED_BYTES = 2 * SMALL_BYTES
# Off the streams nobody waits. Tables of current rows keep small files: a merge rewrites every file that it touches.
RESTING_BYTES = {table: COMPACTED_BYTES if TABLES[table].is_current else 128 << 20 for table in Table}
# A task on an executor reads whole row groups, of which delta-rs's own have a million rows. Everything else is as
# delta-rs has it where it is told nothing; told anything, it would write the bounds of texts whole.
WRITTEN = WriterProperties(
    compression="ZSTD", compression_level=4, statistics_truncate_length=64, max_row_group_size=ROW_GROUP_ROWS
)

FAULTS = (DeltaError, OSError, ActivityError)  # after them a table is as it was

VERSION = re.compile(r"\d{20}(?=\.)")  # how the names of a log's files begin


class Vacuumed(NamedTuple):
    """What a VACUUM removed; nothing when readers are behind, who are named."""

    files: int
    bytes: int
    behind: list[str]


def opened(lake: str, table: Table) -> DeltaTable:
    """Open a table, which replays its log: once for all that is asked of a version.

    Raises:
        TableNotFoundError: there is none.
    """
    return DeltaTable(table_path(lake, table))


def checkpoint_log(
    lake: str,
    table: Table,
    log: DeltaTable | None = None,
    *,
    every: int | None = None,
    promised: timedelta = timedelta(0),
) -> bool:
    """Write a checkpoint of a table's log that has grown by so many commits, and shorten the log; say whether it had.

    delta-rs does it in some hundredths of a second, where Spark does it inside a commit. `log` is the table where it
    has been opened.
    """
    log = log or opened(lake, table)
    is_due = log.version() - _last_checkpoint(lake, table) >= (COMMITS_A_CHECKPOINT if every is None else every)
    if is_due:
        log.create_checkpoint()
        shorten(lake, table, TABLES[table].kept.commits, str(log.metadata().id), promised)
    return is_due


def shorten(lake: str, table: Table, kept: int, table_id: str | None = None, promised: timedelta = timedelta(0)) -> int:
    """Remove what a log has before a checkpoint that leaves at least so many commits; return how many commits went.

    Nothing goes that a reader may need. What the commits said is in the table's history before they go, and the oldest
    go first: after a crash the log is whole from some version on, and the next time does the rest. No more than
    SLICE_COMMITS go at a time: a log that was kept for a day has some hundred thousand, and other work waits while they
    are removed. Checksums of versions that only readers of the change feed need are removed at once: each
    listing of the log for new versions has them, too.

    Args:
        lake: where the table is.
        table: which one.
        kept: commits that stay at least.
        table_id: the table's id, where that is known: to open a table with a long log takes seconds.
        promised: for how long others may read what a commit changed (`lake/change_feeds.py`).
    """
    files, folder = filesystem(table_path(lake, table))
    log = f"{folder}/_delta_log"
    versions = {name: int(found.group()) for name in listing.names(files, log) if (found := VERSION.match(name))}
    newest = max(versions.values(), default=0)
    needed = needed_from(lake, table, table_id).values()
    upto = min([newest - kept, *(-1 if version is None else version for version in needed)])
    if promised and upto > 0:
        entries = sorted(version for name, version in versions.items() if name.endswith(".json"))
        upto = min(upto, change_feeds.read_upto(lake, table, entries, promised))
    begins = [version for name, version in versions.items() if name.endswith(".checkpoint.parquet")]
    begin = max((version for version in begins if version <= upto), default=0)
    gone = sorted(version for name, version in versions.items() if version < begin and name.endswith(".json"))
    until = gone[SLICE_COMMITS] if len(gone) > SLICE_COMMITS else begin
    commits = [(version, f"{log}/{version:020}.json") for version in gone[:SLICE_COMMITS]]
    history.keep(lake, table, commits)
    surplus = sorted((version, name) for name, version in versions.items() if version < until)
    listing.delete(files, [f"{log}/{name}" for _, name in surplus])
    thinned = listing.superfluous([at for at in begins if at >= max(begin, until)])
    listing.delete(files, [f"{log}/{version:020}.checkpoint.parquet" for version in thinned])
    unread = [name for name, version in versions.items() if name.endswith(".crc") and until <= version < newest - kept]
    deadline = time.monotonic() + SLICE_SECONDS
    for start in range(0, len(unread), REQUESTS_AT_A_TIME):
        if time.monotonic() > deadline:
            break
        listing.delete(files, [f"{log}/{name}" for name in unread[start : start + REQUESTS_AT_A_TIME]])
    return len(commits)


def vacuum(
    lake: str,
    table: Table,
    retention: timedelta | None = None,
    failpoint: Callable[[FailPoint], None] = nowhere,
    promised: timedelta = timedelta(0),
) -> Vacuumed:
    """Remove files that no version within the retention has, and those that were never committed.

    It makes no commit, so writers need not wait.

    Args:
        lake: where the table is.
        table: which one.
        retention: how old what is removed must be at least; as its declaration and its log say when not given.
        failpoint: called when half of it is removed.
        promised: for how long others may read what a commit changed; nothing younger is removed.
    """
    retention = max(change_feeds.files_kept(lake, table) if retention is None else retention, promised)
    if behind := readers_behind(lake, table, retention):
        return Vacuumed(0, 0, behind)
    files, folder = filesystem(table_path(lake, table))
    log = DeltaTable(table_path(lake, table))
    hours = ceil(retention / timedelta(hours=1))
    expired = log.vacuum(retention_hours=hours, dry_run=True, enforce_retention_duration=False, full=True)
    # The log names what was removed before, too, until its entries expire.
    there = [file for file in infos(files, [f"{folder}/{path}" for path in expired]) if file.is_file]
    paths, half = [file.path for file in there], len(there) // 2
    listing.delete(files, paths[:half])
    if there:
        failpoint(FailPoint.VACUUMING)
    listing.delete(files, paths[half:])
    return Vacuumed(len(there), sum(file.size or 0 for file in there), [])


def readers_behind(lake: str, table: Table, retention: timedelta) -> list[str]:
    """Name the queries that may still read what was committed to a table before the retention began, and from where."""
    newest = deltalog.newest_version(lake, table)
    return [
        f"{query} has not begun to read {table.label}"
        if version is None
        else f"{query} needs {table.label} from version {version} on, which has {newest}"
        for query, version in needed_from(lake, table).items()
        if version is None or (version < newest and _is_older(lake, table, version + 1, retention))
    ]


def needed_from(lake: str, table: Table, table_id: str | None = None) -> dict[str, int | None]:
    """Return the first version of a table that each of its readers may still ask for; None: all there are.

    Local state that is being made is one of them.

    That is the one that its last batch began behind: a query that starts again asks for that batch once more, also when
    it is through (Spark's MicroBatchExecution, populateStartOffsets), and for the table as it was before. One that has
    not begun begins with the first version.
    """
    table_id = table_id or str(DeltaTable(table_path(lake, table)).metadata().id)
    needed: dict[str, int | None] = {}
    for query in topology.readers(table):
        progress = checkpoint.progress(lake, query)
        last = None if progress is None else checkpoint.cut(lake, query, progress.batch_id)
        read = None if last is None or last.begin is None else offsets.table_versions(last.begin).get(table_id)
        needed[query] = read
    return needed | {f"the local state of {stream}": first for stream, first in holds.held(lake, table).items()}


def _is_older(lake: str, table: Table, version: int, retention: timedelta) -> bool:
    """Whether a commit was made before the retention began; one that the log has no longer was."""
    files, folder = filesystem(table_path(lake, table))
    commit = files.get_file_info(f"{folder}/_delta_log/{version:020}.json")
    return bool(commit.type == fs.FileType.NotFound or commit.mtime < datetime.now(UTC) - retention)


def _last_checkpoint(lake: str, table: Table) -> int:
    """Return the version of a table's newest checkpoint; 0 when it has none, or `_last_checkpoint` is truncated.

    Readers ignore such a file (Delta protocol, Last Checkpoint File), and the next checkpoint replaces it.
    """
    files, folder = filesystem(table_path(lake, table))
    try:
        with files.open_input_stream(f"{folder}/_delta_log/_last_checkpoint") as stream:
            return int(json.loads(stream.read())["version"])
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return 0


def needs_compaction(table: DeltaTable) -> bool:
    """Whether a table has SMALL_FILES small files."""
    sizes = pa.table(table.get_add_actions()).column("size_bytes")
    return bool((pc.sum(pc.less(sizes, SMALL_BYTES)).as_py() or 0) >= SMALL_FILES)


def compact(
    lake: str,
    table: Table,
    failpoint: Callable[[FailPoint], None] = nowhere,
    target_bytes: int = COMPACTED_BYTES,
) -> int | None:
    """Rewrite a table's small files as few; nobody may write to it meanwhile.

    Args:
        lake: where the table is.
        table: which one.
        failpoint: called when the new files are committed and their checksum is not written yet.
        target_bytes: how large a file becomes.

    Returns:
        The new version; None when there was nothing to do.
    """
    path = table_path(lake, table)
    log = DeltaTable(path)
    done = log.optimize.compact(
        target_size=target_bytes,
        max_concurrent_tasks=1,
        writer_properties=WRITTEN,
        commit_properties=CommitProperties(custom_metadata={"userMetadata": json.dumps({"query": "maintenance"})}),
    )
    if not done["numFilesRemoved"]:
        return None
    failpoint(FailPoint.COMPACTED)
    write_checksum(path, log.version())
    footers.repair_commit(lake, table, log.version())
    deltalog.settle(lake, table, log.version())
    return log.version()
