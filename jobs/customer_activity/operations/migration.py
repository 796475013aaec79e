"""Bring a lake of an older release up in place: columns that its tables lack, and the version that they say.

Each step is one commit of a table's metadata: no file is rewritten, rows of before have nulls in the new columns, and
the streams go on from their checkpoints. A table says its new version last, so a migration that was interrupted
is finished by the next one.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import ActivityError, SettingsError
from customer_activity.lake import audit, corrections, deltalog, feeds, layout
from customer_activity.lake.checksums import write_checksum
from customer_activity.lake.layout import Layout
from customer_activity.lake.replacing import settle
from customer_activity.lease import lease
from customer_activity.state import catalogue
from customer_activity.storage.filesystem import filesystem
from customer_activity.streams.registry import RUNS

MIGRATE = "migrate"


class Migrated(NamedTuple):
    """What was done, or is to be done.

    Attributes:
        lake: where.
        version: of the layout that every table has afterwards.
        steps: the tables that are brought up, as they were; none where there is nothing to do.
        is_done: whether it was done; a dry run does nothing.
        seconds: how long that took.
        unsorted: purchases that are in no sorted run: the first large batch on executors makes these, once.
    """

    lake: str
    version: int
    steps: list[Layout]
    is_done: bool
    seconds: float = 0.0
    unsorted: int = 0


def migrate(lake: str, *, dry_run: bool = False) -> Migrated:
    """Bring a lake up to this release's layout, and note in the lake what was done.

    Args:
        lake: where it is.
        dry_run: tell what would be done, and do nothing.

    Raises:
        SettingsError: there is no lake.
        CorrectionUnfinished: a correction was interrupted.
        LakeOfAnotherRelease: the lake is of a newer release.
        QueryAlreadyRunning: a driver is at work.
    """
    begun = time.monotonic()
    corrections.refuse_unfinished(lake)
    found = list(layout.layouts(lake))
    if not found:
        raise SettingsError(f"there are no tables at {lake}", remedy="set ACTIVITY_LAKE to the lake that you mean")
    layout.refuse_newer(lake, found)
    steps = [one for one in found if one.is_older]
    if steps and not dry_run:
        with lease.kept_out(lake, topology.names()):
            steps = [one for one in layout.layouts(lake) if one.is_older]  # now that no driver is at work
            now = datetime.now(UTC)
            done = [{"table": step.table.label, "columns": step.lacks, "from": step.version} for step in steps]
            audit.append(lake, now, MIGRATE, topology.landing().name, f"layout version {layout.CURRENT}", steps=done)
            finish_checksums(lake)
            for step in steps:
                take(lake, step)
    is_done = bool(steps) and not dry_run
    return Migrated(lake, layout.CURRENT, steps, is_done, round(time.monotonic() - begun, 1), _unsorted(lake))


def _unsorted(lake: str) -> int:
    """Return how many purchases are there of which silver or gold has no sorted run; 0 where that cannot be told.

    Runs that another release has made are of no use where it makes them otherwise.
    """
    if all(catalogue.has_runs(lake, state, made_by) for state, made_by in RUNS.items()):
        return 0
    with suppress(ActivityError, DeltaError, OSError):  # no table, or none that is whole: what was done is done
        if (newest := deltalog.newest_version(lake, Table.PURCHASES)) >= 0:
            return feeds.rows_told(feeds.snapshot(lake, Table.PURCHASES, newest)) or 0
    return 0


def take(lake: str, step: Layout) -> None:
    """Do what a table needs: its columns, then the version that it says."""
    log = DeltaTable(table_path(lake, step.table))
    note = CommitProperties(custom_metadata={"userMetadata": json.dumps({"query": MIGRATE})})
    if step.lacks:
        fields = [field for field in Schema.from_arrow(arrow_schema(step.table)).fields if field.name in step.lacks]
        log.alter.add_columns(fields, commit_properties=note)
        settle(lake, step.table)
    if step.version < layout.CURRENT:
        properties = {layout.PROPERTY: str(layout.CURRENT)}
        log.alter.set_table_properties(properties, raise_if_not_exists=False, commit_properties=note)
        settle(lake, step.table)


def finish_checksums(lake: str) -> None:
    """Write the newest versions' checksums where an interruption left them out: their tables may need no more."""
    for found in layout.layouts(lake):
        path = table_path(lake, found.table)
        newest = DeltaTable(path).version()
        files, folder = filesystem(path)
        if newest and not files.get_file_info(f"{folder}/_delta_log/{newest:020}.crc").is_file:
            write_checksum(path, newest)
