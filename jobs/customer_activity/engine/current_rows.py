"""The contract of a stream behind the hot path: one current row a key, merged from one change feed.

A module that declares such a stream is imported by Spark's executors, too, which do its large parts
(`merge_tasks.py`), and which need little for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import closing
from customer_activity.engine.merge_rules import MergeRules
from customer_activity.lake import folding
from customer_activity.lake.microbatch import SMALL_BATCH_ROWS, MicroBatch, Place, Placement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from customer_activity.catalog import Table
    from customer_activity.engine.stream import Context, Opened, Steps
    from customer_activity.lake.feeds import Feed
    from customer_activity.settings import Settings

# Rows that changes may join and mostly do not: keys and sums, some 100 MB. To rewrite the table for a few that do costs
# more than to read these.
MOST_NEAR = 1_000_000
# delta-rs holds rows of a file until it has met one that is merged, so a few changes may have it hold the whole table:
# 5.5 GB of ten million rows. Executors hold a lane, and take as long where changes are in all files.
LARGE_TABLE = 4_000_000


@dataclass(frozen=True)
class CurrentRows(MergeRules):
    """A stream behind the hot path: its rules, and the driver that follows them."""

    def open(self, context: Context) -> Opened:
        """Open it for a driver.

        Raises:
            SettingsError: its table was computed by another definition.
            TerminalError: it lacks late purchases that were taken in.
        """
        from customer_activity.engine.changes import ChangeStream  # noqa: PLC0415 - executors open none

        bound = self.bound(context.settings)
        step = partial(bound.step, spark=context.spark, settings=context.settings)
        return ChangeStream(self.spec, {self.source: self.columns}, lambda _: step).open(context)

    def step(self, part: Feed, batch: MicroBatch, *, spark: SparkSession, settings: Settings) -> Steps:
        """Merge a part's changes, in the driver or on executors."""
        from customer_activity.engine import merge_spread, placement  # noqa: PLC0415 - executors merge nothing
        from customer_activity.engine.stream import Merge  # noqa: PLC0415 - likewise

        before = self.closed(settings.lake)
        after = before.after(part)
        batch.extra |= after.noted(None if after.closing is None else after.closing.upto)
        if batch.placement is None or batch.placement.place is Place.DRIVER:
            is_bounded = batch.placement is not None and placement.has_choice(settings, spark)
            # Files of windows differ in time, too, and by that part of the key delta-rs leaves old ones out.
            if batch.placement is not None and self.closing is None and placement.can_spread(settings, spark):
                with batch.phase("read"):
                    rows = _rows_of(settings.lake, self.target)
                if rows > LARGE_TABLE:
                    batch.placement = Placement(Place.EXECUTORS, f"the table has {rows:,} rows")
                    yield from merge_spread.steps(after, part, batch, spark=spark, settings=settings)
                    return
            with batch.phase("compute"):
                changes = after.marked(after.reduce(part.batches(self.source, self.columns)))
                held = _held(settings.lake, before, after, changes, is_bounded=is_bounded)
            if held is not None:
                update = None if self.aggregates is None else folding.as_sql(arrow_schema(self.target), self.aggregates)
                deletes = None if self.deletes is None else f"s.{self.deletes}"
                yield Merge(self.target, after.with_held(changes, held), update, deletes)
                return
            batch.placement = Placement(Place.EXECUTORS, "many rows of the table close or may be joined")
        yield from merge_spread.steps(after, part, batch, spark=spark, settings=settings)


def _rows_of(lake: str, table: Table) -> int:
    """Return how many rows a table has by its log; 0 where that does not tell."""
    from customer_activity.lake import deltalog, feeds  # noqa: PLC0415 - executors ask for none

    return feeds.rows_told(feeds.snapshot(lake, table, deltalog.newest_version(lake, table))) or 0


def _held(lake: str, before: MergeRules, after: MergeRules, changes: pa.Table, *, is_bounded: bool) -> pa.Table | None:
    """Return the rows of a table whose windows have closed since, and those that changes may join.

    A part of one row may close the windows of all customers, as the first one after midnight does: where it is bounded
    there is none of so many, and no more are read than tell it.
    """
    from deltalake import DeltaTable  # noqa: PLC0415 - executors read none

    from customer_activity.catalog import table_path  # noqa: PLC0415 - likewise

    schema = arrow_schema(after.target)
    if before.closing is None or after.closing is None:
        return schema.empty_table()
    if after.regrouping is not None:
        is_wanted = after.regrouping.wanted(changes, before.closing, after.closing)
    elif after.closing.upto in (None, before.closing.upto):
        return schema.empty_table()
    else:
        kind = schema.field(closing.END).type
        is_wanted = pc.field(closing.END) <= pa.scalar(after.closing.upto, kind)
        if before.closing.upto is not None:
            is_wanted &= pc.field(closing.END) > pa.scalar(before.closing.upto, kind)
    rows = ends = 0
    found = []
    for batch in DeltaTable(table_path(lake, after.target)).to_pyarrow_dataset().to_batches(filter=is_wanted):
        found.append(batch.select(schema.names))
        rows += batch.num_rows
        ends += after.closing.ends(batch)
        if is_bounded and (ends > SMALL_BATCH_ROWS or rows > MOST_NEAR):
            return None
    return pa.Table.from_batches(found).cast(schema) if found else schema.empty_table()
