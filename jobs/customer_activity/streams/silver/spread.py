"""Judge a large part of silver on Spark's executors: the driver plans, commits and holds reports alone.

Of purchases there are two jobs: one that reads keys and judges them, bucket by bucket, and one that writes the rows
that count (`tasks.py`); of profiles one (`profile_tasks.py`). Rows of silver's tables that no sorted run has yet (small
parts are the driver's, and it notes them in its own local state) come into the runs by the same jobs: all of a table
where there is no run at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from customer_activity.catalog import Table
from customer_activity.engine import executors, reach
from customer_activity.engine.executors import ByLane, Reports
from customer_activity.engine.spreading import with_past
from customer_activity.engine.stream import Append, Steps
from customer_activity.lake import deltalog, pieces
from customer_activity.lake.datafiles import DataFile
from customer_activity.lake.deltalog import Position
from customer_activity.lake.feeds import Added, Feed
from customer_activity.lake.microbatch import ACCEPTED, MicroBatch
from customer_activity.settings import Settings
from customer_activity.state import catalogue
from customer_activity.state.catalogue import Past, Runs
from customer_activity.state.sorted_runs import BUCKETS, Run
from customer_activity.storage.filesystem import filesystem
from customer_activity.streams.silver import profile_tasks, tasks
from customer_activity.streams.silver.tasks import Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPICS = {
    Table.PURCHASE_EVENTS: attrgetter("purchase_topic"),
    Table.PROFILE_EVENTS: attrgetter("profile_topic"),
}


def step(part: Feed, batch: MicroBatch, *, spark: SparkSession, settings: Settings, ids: Mapping[Table, str]) -> Steps:
    """Judge a part, append what counts and what changes, quarantine conflicting repeats.

    Raises:
        ChangeFeedLost: a file of the part is gone.
        SettingsError: an executor does not see the lake.
    """
    for side, made, judging, made_by in (
        (Table.PURCHASE_EVENTS, Table.PURCHASES, count, tasks.FORMAT),
        (Table.PROFILE_EVENTS, Table.PROFILE_CHANGES, change_profiles, profile_tasks.FORMAT),
    ):
        if not part.added[side]:
            continue
        with batch.phase("read"):
            newest = deltalog.position(settings.lake, made, ids[made], deltalog.newest_version(settings.lake, made))
        known = partial(catalogue.past, settings.lake, made.label, made_by, {made: newest})
        work = partial(judging, part.added[side], batch=batch, spark=spark, settings=settings)
        past, judged = with_past(part, known, work)
        batch.rows += judged.verdicts.total()
        for verdict, records in judged.verdicts.items():
            batch.count(TOPICS[side](settings), verdict, records)
        if judged.refused:
            yield Append(Table.QUARANTINE, files=judged.refused)
        version = yield Append(made, files=judged.files)
        if version is not None:
            at = Position(ids[made], version, batch.attempt)
            catalogue.note(settings.lake, made.label, made_by, {made: at}, {**past.runs, **judged.runs})


class Judged(NamedTuple):
    """What a side of a part comes to.

    Attributes:
        verdicts: how many records got which.
        files: with the rows that count, or change something.
        refused: files for quarantine.
        runs: that were added to, by bucket.
    """

    verdicts: Counter[str]
    files: list[DataFile]
    refused: list[DataFile]
    runs: Runs


def count(bought: Sequence[Added], past: Past, *, batch: MicroBatch, spark: SparkSession, settings: Settings) -> Judged:
    """Judge purchases; write those that count, and conflicting repeats."""
    work = _work(spark, settings, (Table.PURCHASE_EVENTS, bought), (Table.PURCHASES, past))
    with batch.phase("compute"):
        judging = ByLane(partial(tasks.pack, work), work.lanes, partial(tasks.judge, work))
        reports = executors.run_by_lane(spark, len(work.shares), judging, batch.progress)
    verdicts = _verdicts(reports)
    lists = [report["refused"] for report in reports if report["refused"] is not None]
    with batch.phase("write"):
        shares = sum(not share[0].is_past for share in work.shares)  # which come first
        written = executors.run(spark, shares, partial(tasks.write, work, lists), batch.progress)
    _remove(work.folder, lists)
    files = _files(settings, written, (Table.PURCHASES, Table.QUARANTINE))
    if (found := sum(file.rows for file in files[Table.PURCHASES])) != verdicts[ACCEPTED]:
        raise AssertionError(f"executors wrote {found} purchases, and {verdicts[ACCEPTED]} count")
    return Judged(verdicts, files[Table.PURCHASES], files[Table.QUARANTINE], _runs(reports))


def change_profiles(
    updates: Sequence[Added], past: Past, *, batch: MicroBatch, spark: SparkSession, settings: Settings
) -> Judged:
    """Judge profile records; write what changes."""
    work = _work(spark, settings, (Table.PROFILE_EVENTS, updates), (Table.PROFILE_CHANGES, past))
    with batch.phase("compute"):
        judging = ByLane(partial(profile_tasks.pack, work), work.lanes, partial(profile_tasks.judge, work))
        reports = executors.run_by_lane(spark, len(work.shares), judging, batch.progress)
    files = _files(settings, reports, (Table.PROFILE_CHANGES,))
    return Judged(_verdicts(reports), files[Table.PROFILE_CHANGES], [], _runs(reports))


def _work(
    spark: SparkSession, settings: Settings, new: tuple[Table, Sequence[Added]], known: tuple[Table, Past]
) -> Work:
    """Plan what executors read, and how many tasks judge it."""
    (side, added), (made, past) = new, known
    since = past.files[made]
    lanes = executors.lanes(spark, pieces.lanes([*added, *since], executors.parallelism(spark), BUCKETS))
    shares = [*pieces.divided(side, added), *pieces.divided(made, since, is_past=True)]
    return Work(settings.lake, catalogue.folder(settings.lake, made.label), shares, lanes, past.runs)


def _verdicts(reports: Reports) -> Counter[str]:
    return sum((Counter(report["verdicts"]) for report in reports), Counter[str]())


def _runs(reports: Reports) -> dict[int, Sequence[Run]]:
    return {int(bucket): [Run(*run) for run in of] for report in reports for bucket, of in report["runs"].items()}


def _files(settings: Settings, reports: Reports, tables: Sequence[Table]) -> dict[Table, list[DataFile]]:
    """Return the files that tasks have written, by table; the driver sees all of them."""
    files: dict[Table, list[DataFile]] = {table: [] for table in tables}
    for report in reports:
        if report["file"] is not None:
            files[Table(report.get("table", tables[0]))].append(DataFile(*report["file"]))
    reach.require_here(settings, files)
    return files


def _remove(folder: str, names: Sequence[str]) -> None:
    """Remove what the second job has read; what a crash leaves goes with the files that no catalogue names."""
    files, place = filesystem(folder)
    for name in names:
        with suppress(FileNotFoundError):
            files.delete_file(f"{place}/{name}")
