"""Rows that changes may join to one: which rows of a table go, and which come.

A sum is added to the row of its key. Which sessions a customer has is not known by their keys beforehand: a change may
widen one, begin one, or join two. So changes are reduced to rows of the table's own form, and `merge` brings rows and
changes to those that stand apart. It is associative and takes rows in any order, so what was reduced apart can be
merged again, and all rows at once come to the same as batch after batch.

Spark's executors import this module and need little for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.engine.closing import END, IS_FINAL, Closing

GONE = "is_gone"  # the column of changes that says that a row of the table has been joined to another


class Regrouping(NamedTuple):
    """How rows are joined.

    Attributes:
        by: the column of the key whose values keep rows apart: those of two values are never joined.
        merge: makes rows that stand apart of rows that may touch, all with the columns of the table; none is final.
        near: tells, of changes, which rows of the table these may touch: it may be true of more.
    """

    by: str
    merge: Callable[[pa.Table], pa.Table]
    near: Callable[[pa.Table], pc.Expression]

    def wanted(self, changes: pa.Table, before: Closing, after: Closing) -> pc.Expression:
        """Return which rows of the table changes may change: those that they may touch, and those that close.

        What is final stays as it is, so it is not read.
        """
        is_open = pc.invert(pc.field(IS_FINAL))
        closes = pc.scalar(value=False)
        if after.upto is not None and after.upto != before.upto:
            closes = pc.field(END) <= pa.scalar(after.upto, pa.timestamp("us", "UTC"))
        if not changes.num_rows:
            return is_open & closes
        touched = pc.field(self.by).isin(pc.unique(changes.column(self.by))) & self.near(changes)
        return is_open & (closes | touched)

    def changed(self, held: pa.Table, changes: pa.Table, key: Sequence[str], closing: Closing) -> pa.Table:
        """Return the rows of the table that differ, one a key, with GONE for those that go.

        Args:
            held: rows of the table, among them all that are wanted.
            changes: reduced to rows of the table's form.
            key: the columns that tell rows apart.
            closing: after the changes.
        """
        is_open = held.filter(pc.invert(held.column(IS_FINAL)))
        merged = closing.marked(self.merge(pa.concat_tables([is_open, changes.cast(held.schema)])))
        coming = _without(merged, is_open, held.column_names)
        going = _without(is_open, merged, key)
        return pa.concat_tables(
            rows.append_column(GONE, pa.repeat(pa.scalar(value=is_gone), rows.num_rows))
            for rows, is_gone in ((coming, False), (going, True))
        )


def _without(rows: pa.Table, others: pa.Table, by: Sequence[str]) -> pa.Table:
    """Return rows that have no equal among others, by some columns without nulls."""
    found = rows.join(others.select(by), list(by), join_type="left anti")
    return found.select(rows.column_names).cast(rows.schema)
