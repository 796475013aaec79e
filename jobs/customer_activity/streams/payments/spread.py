"""Join a large part of payments on Spark's executors: the driver plans, commits and holds reports (`tasks.py`).

What is merged is committed as a large merge into current rows is (`engine/merge_spread.py`): all rows of a table in the
place of exactly the files that were read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from customer_activity.catalog import Table
from customer_activity.engine import executors, merge_spread, reach
from customer_activity.engine.executors import ByLane, InputGone, Reports
from customer_activity.engine.merge_tasks import MOST_LANES
from customer_activity.engine.stream import Append, Rewrite, Steps
from customer_activity.lake import deltalog, feeds, pieces
from customer_activity.lake.datafiles import DataFile, discard
from customer_activity.lake.feeds import Added, Feed
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.settings import Settings
from customer_activity.streams.payments import ending, tasks
from customer_activity.streams.payments.joining import Due
from customer_activity.streams.payments.tasks import COUNTED, LOOKED_UP, REWRITTEN, Work
from customer_activity.topology import Spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOKED_UP_ROWS = 5_000_000  # that a task looks into: some seconds, and a job tells how far it is when a task ends


class Held(NamedTuple):
    """What a table has before the part.

    Attributes:
        version: that is read.
        files: that it has at that version.
    """

    version: int
    files: Sequence[Added]


def steps(
    spec: Spec, part: Feed, batch: MicroBatch, *, due: Due, landed_to: int, spark: SparkSession, settings: Settings
) -> Steps:
    """Join a part, and commit what comes of it: first of all what is paid.

    Raises:
        AssertionError: executors have not come by as many rows of a table as its log says it has.
        ChangeFeedLost: a file of the part is gone.
        RowsLost: a file of the newest version of one of the tables is gone.
        SettingsError: an executor does not see the lake.
        TransientError: a file of one of the tables was replaced meanwhile.
    """
    lake = settings.lake
    with batch.phase("read"):
        held = {table: _held(lake, table) for table in (*LOOKED_UP, *REWRITTEN)}
        bought = held[Table.TIMED_PURCHASES]
        closing = ending.among(bought.files, lake, bought.version, due)
    files = [*part.files, *closing, *(file for table in REWRITTEN for file in held[table].files)]
    at_once = executors.parallelism(spark)
    lanes = pieces.lanes(files, at_once, MOST_LANES, merge_spread.LEAST_ROWS)
    keys = {table: spec.how(table).key for table in REWRITTEN}
    with_rows = frozenset(table for table in REWRITTEN if held[table].files)
    work = Work(lake, _shares(part, held, at_once), lanes, due, landed_to, keys, with_rows)
    with batch.phase("compute"):
        reports = _run(spark, work, part, batch, held, settings)
    waiting = {table: merge_spread.written(_of(reports, table)) for table in (Table.PAID, *REWRITTEN)}
    read = [sum(report["read"][number] for report in reports) for number in range(len(COUNTED))]
    try:
        _require_whole(dict(zip(COUNTED, read, strict=True)), part, held)
        for write in _writes(settings, reports, held, waiting[Table.PAID]):
            del waiting[write.table]
            yield from merge_spread.kept(write, lake)
    finally:  # no commit of these files has begun
        for table, files_written in waiting.items():
            discard(lake, table, files_written)
    batch.rows = sum(rows for (_, is_past), rows in zip(COUNTED, read, strict=True) if not is_past)


def _held(lake: str, table: Table) -> Held:
    version = deltalog.newest_version(lake, table)
    return Held(version, feeds.snapshot(lake, table, version))


def _shares(part: Feed, held: Mapping[Table, Held], at_once: int) -> list[list[pieces.Piece]]:
    """Return what each task reads; who looks up what is there reads the part's ids first, so these have many rows."""
    shares = [share for table, added in part.added.items() for share in pieces.divided(table, added)]
    for table, (_, files) in held.items():
        of_table = pieces.divided(table, files, is_past=True)
        if table in LOOKED_UP:
            count = max(at_once, -(-sum(file.rows for file in files) // LOOKED_UP_ROWS))
            of_table = [[piece for share in of_table[first::count] for piece in share] for first in range(count)]
        shares += filter(None, of_table)
    return shares


def _run(
    spark: SparkSession,
    work: Work,
    part: Feed,
    batch: MicroBatch,
    held: Mapping[Table, Held],
    settings: Settings,
) -> Reports:
    joining = ByLane(partial(tasks.pack, work), work.lanes, partial(tasks.join_lane, work))
    try:
        return executors.run_by_lane(spark, len(work.shares), joining, batch.progress)
    except InputGone:
        for table in part.added:
            if part.is_gone(table):
                raise part.lost(table) from None
        for table, (version, files) in held.items():
            if feeds.are_gone(work.lake, table, files):
                raise merge_spread.gone(work.lake, table, version) from None
        raise reach.blind(settings) from None


def _require_whole(read: Mapping[tuple[Table, bool], int], part: Feed, held: Mapping[Table, Held]) -> None:
    """Make sure that tasks have read all rows of the part, and of the tables that are looked up."""
    for (table, is_past), rows in read.items():
        logged = feeds.rows_told(held[table].files if is_past else part.added[table])
        if logged not in {None, rows}:
            raise AssertionError(
                f"{table.label}: executors have read {rows:,} rows {'that were there' if is_past else 'of the part'}, "
                f"and by its log they are {logged:,}; nothing was committed"
            )


def _writes(
    settings: Settings, reports: Reports, held: Mapping[Table, Held], paid: Sequence[DataFile]
) -> list[Append | Rewrite]:
    """Return what is to be committed, in order."""
    reach.require_here(settings, {Table.PAID: paid})
    rewrites = [merge_spread.replacing(settings, table, *held[table], _of(reports, table)) for table in REWRITTEN]
    return [Append(Table.PAID, files=paid), *rewrites]


def _of(reports: Reports, table: Table) -> Reports:
    return [report[table.label] for report in reports]
