"""Which purchases are too late: for all windows by their own lateness, for one because it is closed.

Both rules go by what was stamped when the purchase landed (`streams/event_time/`). A window is closed once the
watermark has passed its end and the grace. The watermark is the time of the slowest partition that is not idle, so who
comes for a closed window is later than the grace, too, unless his partition was idle.

Spark's executors import this module and need little for it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

STAMPS = ("purchase_id", "occurred_at", "partition_time", "watermark")  # what the rules read of a purchase


class Late(StrEnum):
    """Why a window leaves a purchase out."""

    LATER_THAN_GRACE = "later_than_grace"
    WINDOW_CLOSED = "window_closed"


def lateness(purchases: pa.Table) -> pa.ChunkedArray:
    """Return by how much each purchase is older than the latest before it in its partition, in microseconds.

    Null for the first of a partition; negative where it is the latest itself.
    """
    return pc.subtract(_micros(purchases, "partition_time"), _micros(purchases, "occurred_at"))


class Rules(NamedTuple):
    """What decides.

    Attributes:
        grace: how late a purchase may be, in microseconds of event time.
        taken_in: ids of late purchases that count all the same: somebody has asked for it.
    """

    grace: int
    taken_in: frozenset[str] = frozenset()

    def is_late(self, purchases: pa.Table) -> pa.ChunkedArray:
        """Return which purchases are later than the grace."""
        return self._but(purchases, pc.greater(lateness(purchases), self.grace))

    def is_closed(self, purchases: pa.Table, ends: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return for which purchases the window that ends then was closed when they landed."""
        closed_from = pc.add(ends.cast(pa.int64()), self.grace)
        return self._but(purchases, pc.greater_equal(_micros(purchases, "watermark"), closed_from))

    def _but(self, purchases: pa.Table, is_so: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return whether it is so and the purchase is not taken in; a stamp that is null leaves nothing out."""
        is_so = pc.fill_null(is_so, fill_value=False)
        if not self.taken_in:
            return is_so
        return pc.and_not(is_so, pc.is_in(purchases.column("purchase_id"), pa.array(self.taken_in, pa.string())))


def _micros(purchases: pa.Table, name: str) -> pa.ChunkedArray:
    return purchases.column(name).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
