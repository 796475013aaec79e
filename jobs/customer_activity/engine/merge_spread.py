"""Merge a large part into a table of current rows on Spark's executors: the driver plans, commits and holds reports.

The commit takes the place of exactly the files that were read (`lake/commits.py`): whatever else is committed to the
table from then on makes it fail, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from customer_activity.catalog import Table
from customer_activity.engine import executors, merge_tasks, reach
from customer_activity.engine.executors import ByLane, InputGone, KeyMissing, Reports
from customer_activity.engine.merge_rules import MergeRules
from customer_activity.engine.merge_tasks import MOST_LANES, Work
from customer_activity.engine.stream import Append, Rewrite, Steps
from customer_activity.errors import ActivityError, TransientError
from customer_activity.lake import commits, deltalog, feeds, merging, missing, pieces
from customer_activity.lake.datafiles import DataFile, discard
from customer_activity.lake.feeds import Added, Feed
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_ROWS = 10_000  # of changes and the table that a task is worth: each writes a file


def steps(stream: MergeRules, part: Feed, batch: MicroBatch, *, spark: SparkSession, settings: Settings) -> Steps:
    """Merge a part."""
    yield from kept(rewrite(stream, part, batch, spark=spark, settings=settings), settings.lake)


def kept(write: Append | Rewrite, lake: str) -> Steps:
    """Make a write of files that are there; remove them where it is sure that the table will not have them.

    Delta's own exceptions say nothing of it: the entry may be in the log all the same.
    """
    is_needed = True
    try:
        is_needed = (yield write) is not None
    except TransientError:  # the lease is lost, or the table has another version: seen before anything is committed
        is_needed = False
        raise
    finally:
        if not is_needed:
            files = [*write.files, *(write.changed if isinstance(write, Rewrite) else ())]
            discard(lake, write.table, filter(None, files))


def rewrite(stream: MergeRules, part: Feed, batch: MicroBatch, *, spark: SparkSession, settings: Settings) -> Rewrite:
    """Fold a part's changes into all rows of the table; return what is to be committed.

    Of a part that is in the table already nothing is read: its commit finds it there.

    Raises:
        AssertionError: executors have not come by as many rows of the table as its log says it has.
        ChangeFeedLost: a file of the part is gone.
        RowsLost: a file of the table's newest version is gone.
        SettingsError: an executor does not see the lake.
        TerminalError: a change has no value in a column of the key.
        TransientError: a file of the table was replaced meanwhile.
    """
    lake, source, target = settings.lake, stream.source, stream.target
    with batch.phase("read"):
        version = deltalog.newest_version(lake, target)
        if _is_there(stream, batch, lake):
            return Rewrite(target, version)
        held = feeds.snapshot(lake, target, version)
    lanes = pieces.lanes([*part.files, *held], executors.parallelism(spark), MOST_LANES, LEAST_ROWS)
    shares = [*pieces.divided(source, part.added[source]), *pieces.divided(target, held, is_past=True)]
    work = Work(lake, stream, shares, lanes, bool(held))
    with batch.phase("compute"):
        by_lane = ByLane(partial(merge_tasks.pack, work), lanes, partial(merge_tasks.fold, work))
        try:
            reports = executors.run_by_lane(spark, len(shares), by_lane, batch.progress)
        except KeyMissing:
            raise merging.lacks_key(target, stream.key) from None
        except InputGone:
            if part.is_gone(source):
                raise part.lost(source) from None
            if feeds.are_gone(lake, target, held):
                raise gone(lake, target, version) from None
            raise reach.blind(settings) from None
    write = replacing(settings, target, version, held, reports)
    batch.rows += write.changes
    return write


def written(reports: Reports) -> list[DataFile]:
    """Return all files of a table that tasks have reported."""
    return [*_files(reports, "file"), *_files(reports, "changed")]


def gone(lake: str, table: Table, version: int) -> ActivityError:
    """Say that files of a table that was to be rewritten are gone: for good, or because others have replaced them."""
    return missing.files_of(lake, table) or TransientError(
        f"{table.label}: files of version {version} were gone when executors read them",
        remedy="start again: it reads the newest version",
    )


def replacing(settings: Settings, table: Table, version: int, held: Sequence[Added], reports: Reports) -> Rewrite:
    """Return what is to be committed of a table whose rows tasks have folded, by what they report.

    Args:
        settings: which lake.
        table: whose rows.
        version: that was read.
        held: the files that it has at that version.
        reports: as `merge_tasks.written` has them, and how many rows were `held`.

    Raises:
        AssertionError: executors have not come by as many rows of the table as its log says it has.
        SettingsError: the driver does not see what they have written.
    """
    lake = settings.lake
    files, changed = _files(reports, "file"), _files(reports, "changed")
    reach.require_here(settings, {table: [*files, *changed]})
    found, logged = sum(report["held"] for report in reports), feeds.rows_told(held)
    if logged not in {None, found}:
        discard(lake, table, [*files, *changed])
        raise AssertionError(
            f"{table.label}: version {version} has {logged:,} rows by its log, and executors have folded {found:,}; "
            "nothing was committed"
        )
    changes = sum(report["changes"] for report in reports)
    if not any(report["differing"] for report in reports):
        discard(lake, table, [*files, *changed])  # what was written is what there is
        return Rewrite(table, version, changes=changes)
    return Rewrite(table, version, held, files, changed, changes)


def _is_there(stream: MergeRules, batch: MicroBatch, lake: str) -> bool:
    """Whether the table has the batch already."""
    sources = stream.spec.sources_of(stream.target)
    _, number = batch.transaction(stream.target, sources)
    newest = commits.newest(lake, stream.target, batch, sources)
    return newest is not None and newest >= number


def _files(reports: Reports, name: str) -> list[DataFile]:
    return [DataFile(*report[name]) for report in reports if report.get(name) is not None]
