"""Compute a large part of gold on Spark's executors: the driver plans, commits and holds reports alone (`tasks.py`).

What silver appended since the sorted runs were brought on (small parts are the driver's, and it notes them in its own
local state) comes into them by the same job: all of both tables where there is no run at all.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from customer_activity.catalog import Table
from customer_activity.engine import executors, reach
from customer_activity.engine.executors import ByLane, Reports
from customer_activity.engine.spreading import with_past
from customer_activity.errors import ChangeFeedLost
from customer_activity.lake import deltalog, pieces
from customer_activity.lake.datafiles import DataFile
from customer_activity.lake.feeds import Feed
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.settings import Settings
from customer_activity.state import catalogue
from customer_activity.state.catalogue import Past, Runs
from customer_activity.state.sorted_runs import BUCKETS, Run
from customer_activity.streams.gold import tasks
from customer_activity.streams.gold.tasks import SIDES, Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Changed(NamedTuple):
    """What a part comes to.

    Attributes:
        files: with the rows of gold that differ.
        beyond: customers whose total has left decimal(18,2) by it.
        runs: what holds both sides where the part ends, by bucket.
    """

    files: list[DataFile]
    beyond: list[str]
    runs: Runs


def change(
    part: Feed, batch: MicroBatch, *, spark: SparkSession, settings: Settings, view_version: int
) -> Changed | str:
    """Compute what differs by a part; or say why only the driver can."""
    begin = {
        table: deltalog.position(settings.lake, table, batch.ids[table], after)
        for table, (after, _) in part.versions.items()
    }
    known = partial(catalogue.past, settings.lake, batch.query, tasks.FORMAT, begin)
    work = partial(_run, part, batch=batch, spark=spark, settings=settings, view_version=view_version)
    try:
        past, reports = with_past(part, known, work)
    except ChangeFeedLost as error:  # local state may know another way to what was there
        return error.what
    if any("is_frozen" in report for report in reports):
        return "a row whose total is out of range may have to end, which gold's table tells"
    written = [DataFile(*report["file"]) for report in reports if report["file"] is not None]
    reach.require_here(settings, {Table.ACTIVITY_CHANGES: written})
    told = {int(bucket): [Run(*run) for run in of] for report in reports for bucket, of in report["runs"].items()}
    beyond = [customer for report in reports for customer in report["beyond"]]
    return Changed(written, beyond, {**past.runs, **told})


def _run(
    part: Feed, past: Past, *, batch: MicroBatch, spark: SparkSession, settings: Settings, view_version: int
) -> Reports:
    files = [*part.files, *(file for of in past.files.values() for file in of)]
    lanes = executors.lanes(spark, pieces.lanes(files, executors.parallelism(spark), BUCKETS))
    shares = [
        *(share for table in SIDES for share in pieces.divided(table, part.added[table])),
        *(share for table in SIDES for share in pieces.divided(table, past.files[table], is_past=True)),
    ]
    folder = catalogue.folder(settings.lake, batch.query)
    work = Work(settings.lake, folder, shares, lanes, past.runs, settings.currency, view_version)
    with batch.phase("compute"):
        changing = ByLane(partial(tasks.pack, work), lanes, partial(tasks.change, work))
        return executors.run_by_lane(spark, len(shares), changing, batch.progress)
