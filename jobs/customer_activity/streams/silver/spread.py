"""Judge a part of silver by tasks: the driver plans, commits and holds reports alone.

Of purchases there are two jobs: one that reads keys and judges them, bucket by bucket, and one that writes the rows
that count (`tasks.py`); of profiles one (`profile_tasks.py`). Rows of silver's tables that no sorted run has yet (small
parts are the driver's, and it notes them in its own local state) come into the runs by the same jobs: all of a table
where there is no run at all. A small part without local state is judged by the same tasks in this process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from customer_activity.catalog import Reason, Table
from customer_activity.engine import reach, spreading
from customer_activity.engine.executors import ByLane, Reports
from customer_activity.engine.spreading import adds, with_past
from customer_activity.engine.stream import Append, Steps
from customer_activity.engine.workers import Workers
from customer_activity.lake import deltalog, pieces
from customer_activity.lake.datafiles import DataFile
from customer_activity.lake.deltalog import Position
from customer_activity.lake.feeds import Feed
from customer_activity.lake.microbatch import ACCEPTED, MicroBatch
from customer_activity.settings import Settings
from customer_activity.state import catalogue
from customer_activity.state.catalogue import Past, Runs
from customer_activity.state.sorted_runs import Run
from customer_activity.storage.filesystem import filesystem
from customer_activity.streams.silver import profile_tasks, tasks
from customer_activity.streams.silver.tasks import Work

TOPICS = {
    Table.PURCHASE_EVENTS: attrgetter("purchase_topic"),
    Table.PROFILE_EVENTS: attrgetter("profile_topic"),
}


SIDES = (
    (Table.PURCHASE_EVENTS, Table.PURCHASES, tasks.FORMAT),
    (Table.PROFILE_EVENTS, Table.PROFILE_CHANGES, profile_tasks.FORMAT),
)


def step(part: Feed, batch: MicroBatch, *, executors: Workers, settings: Settings, ids: Mapping[Table, str]) -> Steps:
    """Judge a part, append what counts and what changes, quarantine conflicting repeats.

    Raises:
        ChangeFeedLost: a file of the part is gone.
        SettingsError: an executor does not see the lake.
    """
    for (side, made, made_by), judging in zip(SIDES, (count, change_profiles), strict=True):
        if not part.added[side]:
            continue
        with batch.phase("read"):
            known = partial(_past, settings, ids, made, made_by)
        bring = partial(bring_on, side, batch=batch, settings=settings)
        work = partial(judging, part, batch=batch, settings=settings)
        past, judged = with_past(part, batch, executors, known, bring, work, settings=settings)
        batch.rows += judged.verdicts.total()
        for verdict, records in judged.verdicts.items():
            batch.count(TOPICS[side](settings), verdict, records)
        if judged.refused:
            conflicts = sum(file.rows for file in judged.refused)
            yield Append(Table.QUARANTINE, files=judged.refused, reasons={Reason.CONFLICTING_DUPLICATE: conflicts})
        version = yield Append(made, files=judged.files)
        runs = {**past.runs, **judged.runs}
        if version is not None and runs and adds(part, past):
            at = Position(ids[made], version, batch.attempt)
            catalogue.note(settings.lake, made.label, made_by, {made: at}, runs)


def is_near(part: Feed, *, settings: Settings, ids: Mapping[Table, str]) -> bool:
    """Whether the sorted runs have nearly all of the past that a part is judged by."""
    return all(_past(settings, ids, made, made_by).is_near for side, made, made_by in SIDES if part.added[side])


def has_all(*, settings: Settings, ids: Mapping[Table, str]) -> bool:
    """Whether the sorted runs have nearly all that local state has, of both sides."""
    return all(_past(settings, ids, made, made_by).is_near for _, made, made_by in SIDES)


def _past(
    settings: Settings, ids: Mapping[Table, str], table: Table, made_by: str, *, without_runs: bool = False
) -> Past:
    """Return what is known of a table as it is now; rows that a run has change nothing where they come again."""
    newest = deltalog.newest_version(settings.lake, table)
    to = {table: deltalog.position(settings.lake, table, ids[table], newest)}
    return catalogue.past(settings.lake, table.label, made_by, to, without_runs=without_runs, may_repeat=True)


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


def count(part: Feed, past: Past, workers: Workers, *, batch: MicroBatch, settings: Settings) -> Judged:
    """Judge purchases; write those that count, and conflicting repeats."""
    work = _work(part, past, workers, settings, Table.PURCHASE_EVENTS, Table.PURCHASES)
    with batch.phase("compute"):
        reports = workers.run_by_lane(len(work.shares), _judging(work), batch.progress)
    verdicts = _verdicts(reports)
    lists = [report["refused"] for report in reports if report["refused"] is not None]
    with batch.phase("write"):
        shares = sum(not share[0].is_past for share in work.shares)  # which come first
        written = workers.run(shares, partial(tasks.write, work, lists), batch.progress)
    _remove(work.folder, lists)
    files = _files(settings, written, (Table.PURCHASES, Table.QUARANTINE))
    if (found := sum(file.rows for file in files[Table.PURCHASES])) != verdicts[ACCEPTED]:
        raise AssertionError(f"executors wrote {found} purchases, and {verdicts[ACCEPTED]} count")
    return Judged(verdicts, files[Table.PURCHASES], files[Table.QUARANTINE], _runs(reports))


def change_profiles(part: Feed, past: Past, workers: Workers, *, batch: MicroBatch, settings: Settings) -> Judged:
    """Judge profile records; write what changes."""
    work = _work(part, past, workers, settings, Table.PROFILE_EVENTS, Table.PROFILE_CHANGES)
    with batch.phase("compute"):
        reports = workers.run_by_lane(len(work.shares), _judging_profiles(work), batch.progress)
    files = _files(settings, reports, (Table.PROFILE_CHANGES,))
    return Judged(_verdicts(reports), files[Table.PROFILE_CHANGES], [], _runs(reports))


def bring_on(side: Table, past: Past, workers: Workers, *, batch: MicroBatch, settings: Settings) -> Runs:
    """Add the rows of a side's table that no sorted run has to the runs."""
    ((made, since),) = past.files.items()
    lanes = spreading.lanes(since, past, workers)
    shares = pieces.divided(made, since, is_past=True)
    work = Work(settings.lake, catalogue.folder(settings.lake, made.label), shares, lanes, past.runs)
    with batch.phase("read"):
        reports = workers.run_by_lane(len(shares), JUDGES[side](work), batch.progress)
    return _runs(reports)


def _work(part: Feed, past: Past, workers: Workers, settings: Settings, side: Table, made: Table) -> Work:
    """Plan what tasks read, and how many of them judge it."""
    added, since = part.added[side], past.files[made]
    lanes = spreading.lanes([*added, *since], past, workers, is_added=adds(part, past))
    shares = [*pieces.divided(side, added), *pieces.divided(made, since, is_past=True)]
    folder = catalogue.folder(settings.lake, made.label)
    return Work(settings.lake, folder, shares, lanes, past.runs, adds(part, past))


def _judging(work: Work) -> ByLane:
    return ByLane(partial(tasks.pack, work), work.lanes, partial(tasks.judge, work))


def _judging_profiles(work: Work) -> ByLane:
    return ByLane(partial(profile_tasks.pack, work), work.lanes, partial(profile_tasks.judge, work))


JUDGES = {Table.PURCHASE_EVENTS: _judging, Table.PROFILE_EVENTS: _judging_profiles}


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
