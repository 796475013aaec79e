"""`activity maintain` for one table: VACUUM, compaction, a log checkpoint; a step that fails does not stop the next.

On a full disk most steps fail, so what frees space comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from customer_activity import unforeseen
from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import TABLES
from customer_activity.errors import DiskFull
from customer_activity.lake.failpoints import FailPoint, nowhere
from customer_activity.maintenance import maintenance
from customer_activity.maintenance.maintenance import COMPACTED_BYTES, FAULTS, Vacuumed
from customer_activity.storage.filesystem import LEAST_BYTES, has_less


class Tended(NamedTuple):
    """What `activity maintain` did to a table.

    Attributes:
        table: its label.
        files_before, bytes_before: data files that the table had.
        files_after, bytes_after: those that it has now.
        removed_files, removed_bytes: expired files that are gone from the disk.
        behind: why none are: readers that may still need them.
        error: what failed; what did not is done all the same.
    """

    table: str
    files_before: int = 0
    bytes_before: int = 0
    files_after: int = 0
    bytes_after: int = 0
    removed_files: int = 0
    removed_bytes: int = 0
    behind: tuple[str, ...] = ()
    error: str = ""


def tend(
    lake: str,
    table: Table,
    *,
    target_bytes: int = COMPACTED_BYTES,
    failpoint: Callable[[FailPoint], None] = nowhere,
    promised: timedelta = timedelta(0),
) -> Tended:
    """Remove what is expired of a table, compact it however few small files it has, and shorten its log.

    Nobody may write to it meanwhile. What fails is in the result, and what comes after it has its turn all the same.
    """
    removed: list[Vacuumed] = []
    faults: list[str] = []
    sizes: list[tuple[int, int]] = []
    steps: list[Callable[[], object]] = [
        lambda: sizes.append(size(lake, table)),
        # First: on a full disk this is what makes room for the others.
        lambda: removed.append(maintenance.vacuum(lake, table, failpoint=failpoint, promised=promised)),
        lambda: _compact_where_there_is_room(lake, table, failpoint, target_bytes),
        lambda: maintenance.checkpoint_log(lake, table, every=1, promised=promised),
        lambda: sizes.append(size(lake, table)),
    ]
    if TABLES[table].is_current:  # a shorter log lets more of their files go
        steps.append(lambda: removed.append(maintenance.vacuum(lake, table, failpoint=failpoint, promised=promised)))
    for step in steps:
        try:
            step()
        except FAULTS as error:
            faults.append(unforeseen.brief(error))
    before, after = (sizes[0], sizes[-1]) if sizes else ((0, 0), (0, 0))
    freed = sum(each.files for each in removed), sum(each.bytes for each in removed)
    behind = tuple(removed[-1].behind) if removed else ()
    return Tended(table.label, *before, *after, *freed, behind, "; ".join(dict.fromkeys(faults)))


def _compact_where_there_is_room(
    lake: str, table: Table, failpoint: Callable[[FailPoint], None], target_bytes: int
) -> None:
    """Compact a table, unless that might fill the disk: what is replaced stays there until it is expired.

    Raises:
        DiskFull: it might.
    """
    sizes = pa.table(DeltaTable(table_path(lake, table)).get_add_actions()).column("size_bytes")
    small = sizes.filter(pc.less(sizes, target_bytes))
    if len(small) > 1 and has_less(lake, LEAST_BYTES + pc.sum(small).as_py()):
        raise DiskFull(
            f"not compacted: the disk of {lake} has no room for {pc.sum(small).as_py() >> 20:,} MB more",
            remedy="free some, then run this again",
        )
    maintenance.compact(lake, table, failpoint, target_bytes)


def size(lake: str, table: Table) -> tuple[int, int]:
    """Return how many data files a table has, and their bytes."""
    sizes = pa.table(DeltaTable(table_path(lake, table)).get_add_actions()).column("size_bytes")
    return len(sizes), pc.sum(sizes).as_py() or 0
