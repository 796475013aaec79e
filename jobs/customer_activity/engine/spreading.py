"""Work on a part of a batch with what sorted runs know of the past: on executors, or in this process.

A small part needs neither a plan nor a shuffle: where little is in no run, the same tasks run in this process. That
is how a small batch is worked on where local state is not kept, or is far behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.engine import reach
from customer_activity.engine.executors import InputGone, Reports
from customer_activity.engine.workers import Here, Workers
from customer_activity.errors import ChangeFeedLost, TransientError
from customer_activity.lake import feeds, missing, pieces
from customer_activity.lake.datafiles import DataFile, discard
from customer_activity.lake.feeds import Added, Feed, rows_told
from customer_activity.lake.microbatch import MicroBatch, Place, Placement
from customer_activity.settings import Settings
from customer_activity.state.catalogue import DUE_VERSIONS, Past, Runs
from customer_activity.state.sorted_runs import BUCKETS, StateGone, taken_in

Done = TypeVar("Done")
ROUND_ROWS = BUCKETS * 1_000_000  # some 300 bytes each while a task sorts them
TAKEN_IN_ROWS = 1_000_000  # of runs that a task writes again


class Written(NamedTuple):
    """What tasks have written for a table that is appended to.

    Attributes:
        files: which no commit names yet.
        read: how many rows of the part they have read for it.
    """

    files: list[DataFile]
    read: int


def with_past(
    part: Feed,
    batch: MicroBatch,
    executors: Workers,
    known: Callable[..., Past],
    bring: Callable[[Past, Workers], Runs],
    work: Callable[[Past, Workers], Done],
    *,
    settings: Settings,
) -> tuple[Past, Done]:
    """Do work with what is known, or, where some of that is gone by then, with the tables alone; return both.

    Where very much is in no sorted run, they are brought on first, in rounds: a task holds all of a bucket that is in
    none, and is not heard of before it ends.

    Args:
        part: what is worked on.
        batch: whose part it is; one that was for the driver is for executors where the past is too much for it.
        executors: Spark's.
        known: looks up what is known; with `without_runs=True` it leaves the runs aside.
        bring: adds the rows of the files to the runs; returns those of the buckets that have got some.
        work: is done with it, by executors or in this process.
        settings: whether executors are elsewhere.

    Raises:
        ChangeFeedLost: files of the part or of what was before it are gone, or it cannot be told what that was.
        SettingsError: an executor does not see what the driver sees.
        TransientError: it takes executors, and there are none; or files were not there for a while.
    """
    for without_runs in (False, False, True):  # what was replaced and removed meanwhile may be known in another way
        past = known(without_runs=without_runs)
        try:
            workers = _workers(batch, past, executors)
            while sum(file.rows for file in past.since) > ROUND_ROWS:
                now, later = past.split(ROUND_ROWS)
                past = later._replace(runs={**past.runs, **bring(now, workers)}, versions=DUE_VERSIONS)
            return past, work(past, workers)
        except (InputGone, StateGone):
            for table in part.added:
                if part.is_gone(table):
                    raise part.lost(table) from None
    for table, files in past.files.items():  # gone for everybody, and not only hidden from executors
        if feeds.are_gone(part.lake, table, files):
            raise ChangeFeedLost(f"{table.label}: files of rows that were read before are gone", remedy=feeds.LOST)
    raise reach.blind(settings)


def with_files(part: Feed, work: Callable[[], Done], settings: Settings) -> Done:
    """Do work on executors with files of other tables beside a part's; once more where some are gone by then.

    Args:
        part: what is worked on.
        work: lists the files as the tables have them now, and is done with them: a compaction may replace some
            meanwhile, and VACUUM remove these.
        settings: whether executors are elsewhere.

    Raises:
        ChangeFeedLost: files of the part are gone.
        RowsLost: files of another table are.
        SettingsError: an executor does not see what the driver sees.
        TransientError: files were not there for a while.
    """
    for _ in range(2):
        try:
            return work()
        except InputGone:
            for table in part.added:
                if part.is_gone(table):
                    raise part.lost(table) from None
    raise missing.first_of(part.lake, topology.tables()) or reach.blind(settings)


def written(
    part: Feed, source: Table, target: Table, settings: Settings, rounds: Iterable[Callable[[], Reports]]
) -> Written:
    """Have tasks write what follows from a part, in one or several rounds; remove it where it is not to be committed.

    Args:
        part: what is worked on.
        source: the table whose rows they read.
        target: the one that they write files for.
        settings: which lake.
        rounds: done one after the other, each as by `with_files`; a report of theirs has a `file`, or none, and how
            many rows were `read` for it.

    Raises:
        AssertionError: tasks have not come by as many rows as the part has.
        ChangeFeedLost: files of the part are gone.
        SettingsError: an executor does not see what the driver sees, or the driver not what it has written.
    """
    files: list[DataFile] = []
    read = 0
    try:
        for work in rounds:
            reports = with_files(part, work, settings)
            files += [DataFile(*report["file"]) for report in reports if report["file"] is not None]
            read += sum(report["read"] for report in reports)
        reach.require_here(settings, {target: files})
        _require_all(part, source, read)
    except BaseException:
        discard(settings.lake, target, files)
        raise
    return Written(files, read)


def _require_all(part: Feed, source: Table, read: int) -> None:
    logged = rows_told(part.added[source])
    if logged not in {None, read}:
        raise AssertionError(f"executors have read {read:,} rows of {source.label}, and {logged:,} were added")


def adds(part: Feed, past: Past) -> bool:
    """Whether work on a part adds what it learns to the sorted runs, or leaves that for one that comes later."""
    return not part.is_small or past.is_due


def lanes(files: Sequence[Added], past: Past, workers: Workers, *, is_added: bool = True) -> int:
    """Return how many tasks get the rows of files by bucket.

    They are more where rows that are added to the sorted runs have these take in large ones: a task is not heard of
    before it ends, and holds all of a bucket meanwhile.

    Args:
        files: whose rows they get.
        past: with the runs.
        workers: who does the tasks.
        is_added: whether they add to the runs.
    """
    found = pieces.lanes(files, workers.at_once(), BUCKETS)
    if not is_added:
        return found
    of_bucket = -(-sum(file.rows for file in files) // BUCKETS)
    again = sum(run.rows for runs in past.runs.values() for run in runs[len(runs) - taken_in(runs, of_bucket) :])
    return min(BUCKETS, max(found, again // TAKEN_IN_ROWS))


def _workers(batch: MicroBatch, past: Past, executors: Workers) -> Workers:
    if batch.placement is None or batch.placement.place is Place.EXECUTORS:
        return executors
    if past.is_near:
        return Here()
    rows = sum(file.rows for file in past.since)
    if not executors.are_there():
        raise TransientError(
            f"{batch.query} keeps no local state, {rows:,} rows of state are in no sorted run, and there is no "
            "executor to add them",
            remedy="see that the cluster has room for an executor, or raise ACTIVITY_LOCAL_STATE_GB",
        )
    batch.placement = Placement(Place.EXECUTORS, f"{rows:,} rows of state are in no sorted run")
    return executors
