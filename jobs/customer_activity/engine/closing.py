"""Windows that close: a row of a window is final once the watermark has passed its end and the grace.

A batch brings new figures to windows, and it moves the watermark. Windows that it closes need not have a purchase in
it, so their rows are looked up by the end of the window: those between the watermark before and after, and no others.

Spark's executors import this module and need little for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.lake.folding import Aggregate, Aggregates

NOTE = "closed_to"  # in the note of a commit: windows that ended by then are final, in microseconds since 1970
END, IS_FINAL = "window_end", "is_final"  # columns of each table of windows
WATERMARK = "next_watermark"  # the column of a source that has the watermark after its row


class Closing(NamedTuple):
    """When rows are final.

    Attributes:
        grace: how long a window stays open after its end, in microseconds of event time.
        upto: windows that ended by then are closed, in microseconds since 1970; None: none is.
    """

    grace: int
    upto: int | None = None

    def moved(self, watermarks: Iterable[pa.Array]) -> Closing:
        """Return it after rows with these watermarks."""
        newest = (pc.max(values.cast(pa.int64())).as_py() for values in watermarks)
        closed = [self.upto, *(None if last is None else last - self.grace for last in newest)]
        return self._replace(upto=max((upto for upto in closed if upto is not None), default=None))

    def marked(self, rows: pa.Table) -> pa.Table:
        """Say of each row whether it is final."""
        if self.upto is None:
            is_final = pa.repeat(pa.scalar(value=False), rows.num_rows)
        else:
            is_final = pc.less_equal(rows.column(END).cast(pa.int64()), self.upto)
        return rows.set_column(rows.column_names.index(IS_FINAL), IS_FINAL, is_final)

    def ends(self, rows: pa.Table | pa.RecordBatch) -> int:
        """Return how many rows are of windows that are closed."""
        if self.upto is None:
            return 0
        return int(pc.sum(pc.less_equal(rows.column(END).cast(pa.int64()), self.upto)).as_py() or 0)

    def closing(self, held: pa.Table, aggregates: Aggregates) -> pa.Table:
        """Return what makes rows final that are not: nothing is added to them."""
        if self.upto is None:
            return held.slice(0, 0)
        ends = pc.less_equal(held.column(END).cast(pa.int64()), self.upto)
        rows = held.filter(pc.and_not(ends, held.column(IS_FINAL)))
        for name, how in aggregates.items():
            if how is Aggregate.SUM:
                kind = rows.schema.field(name).type
                zeros = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows).cast(kind)
                rows = rows.set_column(rows.column_names.index(name), name, zeros)
        return rows.set_column(
            rows.column_names.index(IS_FINAL), IS_FINAL, pa.repeat(pa.scalar(value=True), rows.num_rows)
        )
