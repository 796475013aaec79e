"""Compute a part of gold by tasks: the driver plans, commits and holds reports alone (`tasks.py`).

What silver appended since the sorted runs were brought on (small parts are the driver's, and it notes them in its own
local state) comes into them by the same job: all of both tables where there is no run at all. A small part without
local state is computed by the same tasks in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from customer_activity.catalog import Table
from customer_activity.engine import reach, spreading
from customer_activity.engine.executors import ByLane, Reports
from customer_activity.engine.spreading import adds, with_past
from customer_activity.engine.workers import Workers
from customer_activity.lake import deltalog, pieces
from customer_activity.lake.datafiles import DataFile
from customer_activity.lake.feeds import Feed
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.settings import Settings
from customer_activity.state import catalogue
from customer_activity.state.catalogue import Past, Runs
from customer_activity.state.sorted_runs import Run
from customer_activity.streams.gold import tasks
from customer_activity.streams.gold.tasks import SIDES, Work


class Changed(NamedTuple):
    """What a part comes to.

    Attributes:
        files: with the rows of gold that differ.
        beyond: customers whose total has left decimal(18,2) by it.
        runs: what holds both sides where the part begins, by bucket.
        runs_since: of the buckets that were added to, what holds both where it ends; none where nothing was added.
    """

    files: list[DataFile]
    beyond: list[str]
    runs: Runs
    runs_since: Runs


WithARow = Callable[[str, Sequence[str]], Sequence[str]]


def change(
    part: Feed, batch: MicroBatch, *, executors: Workers, settings: Settings, view_version: int, with_a_row: WithARow
) -> Changed:
    """Compute what differs by a part.

    Args:
        part: changes of both sides.
        batch: whose part it is.
        executors: Spark's.
        settings: which lake.
        view_version: of the rows.
        with_a_row: tells which of some customers have a row in gold's table.

    Raises:
        ChangeFeedLost: files of the part are gone, or it cannot be told what was in the tables before it.
    """
    known = partial(past_of, part, batch.query, settings=settings, ids=batch.ids)
    had_a_row: dict[str, bool] = {}
    while True:
        work = partial(_run, part, batch=batch, settings=settings, view_version=view_version, had_a_row=dict(had_a_row))
        bring = partial(_bring_on, batch=batch, settings=settings)
        past, reports = with_past(part, batch, executors, known, bring, work, settings=settings)
        frozen = [customer for report in reports for customer in report.get("frozen", ())]
        if not frozen:
            break
        had_a_row |= dict.fromkeys(frozen, False) | dict.fromkeys(with_a_row(settings.lake, frozen), True)
    written = [DataFile(*report["file"]) for report in reports if report["file"] is not None]
    reach.require_here(settings, {Table.ACTIVITY_CHANGES: written})
    beyond = [customer for report in reports for customer in report["beyond"]]
    return Changed(written, beyond, past.runs, _runs(reports))


def past_of(
    part: Feed, stream: str, *, settings: Settings, ids: Mapping[Table, str], without_runs: bool = False
) -> Past:
    """Return what is known of both sides where a part begins."""
    begin = {
        table: deltalog.position(settings.lake, table, ids[table], after) for table, (after, _) in part.versions.items()
    }
    return catalogue.past(settings.lake, stream, tasks.FORMAT, begin, without_runs=without_runs)


def _bring_on(past: Past, workers: Workers, *, batch: MicroBatch, settings: Settings) -> Runs:
    """Add the rows of both sides' tables that no sorted run has to the runs."""
    lanes = spreading.lanes(past.since, past, workers)
    shares = [share for table in SIDES for share in pieces.divided(table, past.files[table], is_past=True)]
    work = Work(
        settings.lake, catalogue.folder(settings.lake, batch.query), shares, lanes, past.runs, settings.currency, 0
    )
    with batch.phase("read"):
        changing = ByLane(partial(tasks.pack, work), lanes, partial(tasks.change, work))
        return _runs(workers.run_by_lane(len(shares), changing, batch.progress))


def _runs(reports: Reports) -> Runs:
    return {int(bucket): [Run(*run) for run in of] for report in reports for bucket, of in report["runs"].items()}


def _run(
    part: Feed,
    past: Past,
    workers: Workers,
    *,
    batch: MicroBatch,
    settings: Settings,
    view_version: int,
    had_a_row: Mapping[str, bool],
) -> Reports:
    lanes = spreading.lanes([*part.files, *past.since], past, workers, is_added=adds(part, past))
    shares = [
        *(share for table in SIDES for share in pieces.divided(table, part.added[table])),
        *(share for table in SIDES for share in pieces.divided(table, past.files[table], is_past=True)),
    ]
    folder = catalogue.folder(settings.lake, batch.query)
    work = Work(
        settings.lake,
        folder,
        shares,
        lanes,
        past.runs,
        settings.currency,
        view_version,
        had_a_row,
        adds(part, past),
    )
    with batch.phase("compute"):
        changing = ByLane(partial(tasks.pack, work), lanes, partial(tasks.change, work))
        return workers.run_by_lane(len(shares), changing, batch.progress)
