"""Fail points: named places in a batch at which a drill ends the driver as `kill -9` would.

Off unless `ACTIVITY_FAIL_POINTS` is set, which production refuses. Then the driver looks at each place for an order in
the file `fail_point` of its run folder: `silver:committed 2` is the second time that silver comes to `committed`. The
order is renamed to `fail_point.reached` first, so that a drill can tell that its fault happened.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # executors import this module, and need no settings
    from customer_activity.settings import Settings

ORDER = "fail_point"
REACHED = "fail_point.reached"


class FailPoint(StrEnum):
    """Where a batch can be ended."""

    PLANNED = "planned"  # Spark has noted the batch's offsets, nothing is read
    STAGED = "staged"  # a file is written, and in no table yet
    COMMITTED = "committed"  # one of the batch's writes is in its table
    WRITTEN = "written"  # all of them are, and Spark has not noted it
    SENDING = "sending"  # half of the records are with the Kafka client, the transaction is open
    PUBLISHED = "published"  # the transaction is committed, and Spark has not noted the batch
    COMPACTED = "compacted"  # maintenance: files are rewritten and committed, the version's checksum is not there
    VACUUMING = "vacuuming"  # maintenance: half of what is to be removed is removed


MAINTENANCE = "maintenance"  # where a query's name stands, for what no query does


def nowhere(_point: FailPoint) -> None:
    """Go on: no drill is on."""


def of(settings: Settings, whose: str) -> Callable[[FailPoint], None]:
    """Return what a query's batches, or the maintenance of tables, call when they come to a place."""
    return partial(reach, settings.run_dir, whose) if settings.fail_points else nowhere


def reach(run_dir: Path, whose: str, point: FailPoint) -> None:
    """End this process and its group at once, the JVM with it, when it is ordered for this place."""
    order = run_dir / ORDER
    try:
        place, _, times = order.read_text(encoding="utf-8").strip().partition(" ")
    except FileNotFoundError:
        return
    if place != f"{whose}:{point}":
        return
    if (left := int(times or 1) - 1) > 0:
        order.write_text(f"{place} {left}", encoding="utf-8")
        return
    order.rename(order.with_name(REACHED))
    os.killpg(os.getpgrp(), signal.SIGKILL)  # no handler could clean up
