"""Optional streams that are off and have run before: what they wrote stays as it was, and its readers cannot tell.

Which streams these are follows from the topology and from what is in the lake: a table that no stream writes which is
on, and of a stream that writes a topic alone, its checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from deltalake.exceptions import DeltaError
from pyarrow import fs

from customer_activity import topology
from customer_activity.catalog import PROGRESS_ROLE, Table, checkpoint_path, table_path
from customer_activity.checkpoints import checkpoint
from customer_activity.errors import CheckpointMismatch, QueryAlreadyRunning, StorageUnavailable
from customer_activity.inspection import tables
from customer_activity.lease import lease
from customer_activity.settings import PREFIX, Settings
from customer_activity.storage.filesystem import filesystem
from customer_activity.topology import Spec

OFF = "off"  # the state of such a stream


class Left(NamedTuple):
    """What a stream has left that is off.

    Attributes:
        spec: the stream.
        targets: labels of its tables, or names of its topics, which are stale from then on.
        at: when it wrote last; None where that cannot be read.
    """

    spec: Spec
    targets: tuple[str, ...]
    at: datetime | None

    @property
    def what(self) -> str:
        """Say what is no longer written, and when it was written last."""
        last = f" (last written at {self.at:%Y-%m-%d %H:%M:%S} UTC)" if self.at else ""
        return f"{self.spec.name} is off and no longer updates {', '.join(self.targets)}{last}"


def remedy(found: Sequence[Left]) -> str:
    """Say how streams that are off go on."""
    settings = {each.spec.name: each.spec.on_with for each in found}
    named = [name for name, setting in settings.items() if not setting]
    ways = [f"set {PREFIX}{setting.upper()}" for setting in settings.values() if setting]
    ways += [f"add {','.join(named)} to {PREFIX}STREAMS"] if named else []
    return f"to go on, {' and '.join(ways)}"


def idle(settings: Settings) -> list[Left]:
    """Return what streams have left that are off and that no driver of other settings has on.

    Raises:
        OSError, ActivityError: the lake's storage does not answer.
    """
    found = left(settings)
    at_work = lease.at_work(settings.lake, [each.spec.name for each in found]) if found else set()
    return [each for each in found if each.spec.name not in at_work]


def unattended(settings: Settings) -> list[Left]:
    """Return the same for a driver that starts: it asks the locks, so that what has just been given back is told.

    Raises:
        OSError, ActivityError: the lake's storage does not answer.
    """
    return [each for each in left(settings) if not _is_run(settings.lake, each.spec.name)]


def left(settings: Settings) -> list[Left]:
    """Return what streams have left that are off in this process.

    Raises:
        OSError: the lake's storage does not answer.
    """
    lake, written, off = settings.lake, topology.tables(), topology.off()
    # What a publisher keeps in a table is beside its topics, and is there before anything is on them.
    own = {each.name: [table for table in each.tables if table not in written] for each in off if not each.is_publisher}
    there = _there(lake, {table.value.partition("/")[0] for ours in own.values() for table in ours})
    ran = _names(checkpoint_path(lake, "any").rpartition("/")[0])
    found = []
    for each in off:
        existing = [table for table in own.get(each.name, ()) if table.value in there and _is_table(lake, table)]
        if existing:
            times = filter(None, (_written_at(lake, table) for table in existing))
            found.append(Left(each, tuple(table.label for table in existing), max(times, default=None)))
        elif each.is_publisher and each.name in ran:
            topics = (settings.topics[role] for role in each.roles if role != PROGRESS_ROLE)
            found.append(Left(each, tuple(f"topic {name}" for name in topics), _sent_at(lake, each.name)))
    return found


def _is_run(lake: str, query: str) -> bool:
    try:
        lease.refuse_running(lake, query)
    except QueryAlreadyRunning:
        return True
    return False


def _there(lake: str, layers: set[str]) -> set[str]:
    """Return what there is in some layers: a listing of each, where opening every table would be many requests."""
    return {f"{layer}/{name}" for layer in layers for name in _names(f"{lake}/{layer}")}


def _is_table(lake: str, table: Table) -> bool:
    """Whether there is a log: its first entry, or a checkpoint, before which entries may go. A listing may be long."""
    files, log = filesystem(f"{table_path(lake, table)}/_delta_log")
    found = files.get_file_info([f"{log}/_last_checkpoint", f"{log}/{0:020}.json"])
    return any(info.type is fs.FileType.File for info in found)


def _names(folder: str) -> set[str]:
    files, path = filesystem(folder)
    return {entry.base_name for entry in files.get_file_info(fs.FileSelector(path, allow_not_found=True))}


def _written_at(lake: str, table: Table) -> datetime | None:
    """Return when a table's newest commit was made by its own words: files that were copied have other times."""
    with suppress(DeltaError, OSError):  # it is damaged: it is here all the same
        if opened := tables.open_table(lake, table):
            (newest,) = opened.history(1)
            return datetime.fromtimestamp(newest["timestamp"] / 1000, UTC)
    return None


def _sent_at(lake: str, query: str) -> datetime | None:
    with suppress(CheckpointMismatch, StorageUnavailable, OSError):
        progress = checkpoint.progress(lake, query)
        return None if progress is None else progress.noted_at
    return None
