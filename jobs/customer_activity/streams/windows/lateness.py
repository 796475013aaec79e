"""Which purchases are too late: for all windows by their own lateness, for one because it is closed.

Both rules go by what was stamped when the purchase landed (`streams/event_time/`). A window is closed once the
watermark has passed its end and the grace. The watermark is the time of the slowest partition that is not idle, so who
comes for a closed window is later than the grace, too, unless his partition was idle.

Spark's executors import this module and need little for it.
"""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

STAMPS = ("occurred_at", "partition_time", "watermark")  # what the rules read of a purchase


class Late(StrEnum):
    """Why a window leaves a purchase out."""

    LATER_THAN_GRACE = "later_than_grace"
    WINDOW_CLOSED = "window_closed"


def lateness(purchases: pa.Table) -> pa.ChunkedArray:
    """Return by how much each purchase is older than the latest before it in its partition, in microseconds.

    Null for the first of a partition; negative where it is the latest itself.
    """
    return pc.subtract(_micros(purchases, "partition_time"), _micros(purchases, "occurred_at"))


def is_late(purchases: pa.Table, grace: int) -> pa.ChunkedArray:
    """Return which purchases are later than the grace, in microseconds."""
    return pc.fill_null(pc.greater(lateness(purchases), grace), fill_value=False)


def is_closed(purchases: pa.Table, ends: pa.Array, grace: int) -> pa.ChunkedArray:
    """Return for which purchases the window that ends then was closed when they landed."""
    closed_from = pc.add(ends.cast(pa.int64()), grace)
    return pc.fill_null(pc.greater_equal(_micros(purchases, "watermark"), closed_from), fill_value=False)


def _micros(purchases: pa.Table, name: str) -> pa.ChunkedArray:
    return purchases.column(name).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
