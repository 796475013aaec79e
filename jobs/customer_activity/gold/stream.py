"""Gold: the current profile of a customer joined with everything the customer bought, one row a change.

Reads      silver.purchases and silver.profile_changes, change data feeds, one batch cut over both
Writes     gold.activity_changes (append)
Grain      one row per batch and customer whose row (profiles LEFT JOIN summaries) begins, changes or ends
On restart the state is brought to the pair of silver versions that gold's newest commit names; what a repeated batch
           has beyond it is new, the rest is known and changes nothing; the append carries (txnAppId, batch_id)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from customer_activity import commits, delta, feeds
from customer_activity.catalog import Table, table_path
from customer_activity.datafiles import FileWriter, arrow_schema, in_parts
from customer_activity.gold.state import (
    PROFILE_COLUMNS,
    PURCHASE_COLUMNS,
    GoldState,
    Row,
    latest,
    newest_positions,
    summarised,
    totalled,
)
from customer_activity.microbatch import MicroBatch
from customer_activity.settings import Settings

SIDES = {Table.PURCHASES: PURCHASE_COLUMNS, Table.PROFILE_CHANGES: PROFILE_COLUMNS}
PART_ROWS = 500_000  # summed up at a time


def read(spark: SparkSession, settings: Settings) -> DataFrame:
    """Stream what changed on either side, from where gold's newest commit was computed, else from the beginning."""
    return changed(
        *(
            delta.read_changes(spark, settings.lake, table, starting_version=version, whole_commits=True)
            for table, version in begins(settings).items()
        )
    )


def begins(settings: Settings) -> dict[Table, int]:
    """Return the first version that a first batch reads of each table."""
    positions = newest_positions(settings.lake)
    return {table: max(0, positions.get(table, 0)) for table in SIDES}


def changed(purchases: DataFrame, profile_changes: DataFrame) -> DataFrame:
    """Both change feeds as one; `side` tells them apart."""
    sides = (
        feed.select(F.lit(table.label).alias("side"), *columns, "_commit_version")
        for feed, (table, columns) in zip((purchases, profile_changes), SIDES.items(), strict=True)
    )
    return next(sides).unionByName(next(sides), allowMissingColumns=True)


def append_batch(
    changes: DataFrame, batch: MicroBatch, *, settings: Settings, state: GoldState, clock: ViewClock
) -> None:
    """Write one batch: take both sides' changes into the state, append the rows that differ by them."""
    spark = changes.sparkSession
    with batch.phase("read"):
        if not state.is_current:
            state.catch_up(newest_positions(settings.lake))
        feed = feeds.read(changes, settings.lake, SIDES, batch.versions)
        # Rows that the state holds already, because the batch is repeated, are left out.
        held = state.positions
        versions = {table: found for table in SIDES if (found := feed.bounds(table, after=held[table])) is not None}
        if not versions:
            return
        bought = feed.batches(Table.PURCHASES, PURCHASE_COLUMNS, after=held[Table.PURCHASES])
        sums = totalled(summarised(part) for part in in_parts(bought, PART_ROWS))
        profiles = latest(_table(feed, Table.PROFILE_CHANGES, PROFILE_COLUMNS, held[Table.PROFILE_CHANGES]))
        state.catch_up({table: low - 1 for table, (low, _) in versions.items()})
        state.is_current = True
    to = state.positions | {table: high for table, (_, high) in versions.items()}
    batch.extra = {table.label: version for table, version in to.items()}
    writer = FileWriter(settings.lake, Table.ACTIVITY_CHANGES)
    version = clock.next()
    with batch.phase("compute"), state.change(sums, profiles, to) as different:
        for rows in different:
            batch.rows += len(rows)
            writer.write(as_columns(rows, settings.currency, version))
        if file := writer.close():
            with batch.phase("commit"):
                commits.commit(spark, settings.lake, Table.ACTIVITY_CHANGES, [file], batch)


def _table(feed: feeds.Feed, table: Table, columns: Sequence[str], after: int) -> pa.Table:
    schema = pa.schema([arrow_schema(table).field(name) for name in columns])
    return pa.Table.from_batches([batch.cast(schema) for batch in feed.batches(table, columns, after=after)], schema)


def as_columns(rows: Sequence[Row], currency: str, view_version: int) -> pa.Table:
    """Gold rows as gold.activity_changes has them."""
    schema = arrow_schema(Table.ACTIVITY_CHANGES)
    values = dict(zip(Row._fields, zip(*rows, strict=True), strict=True))
    cents = pa.array(values["cents"], pa.int64()).cast(pa.decimal128(19, 0))
    values["total_amount"] = pc.cast(
        pc.multiply(cents, pa.scalar("0.01").cast(pa.decimal128(3, 2))), pa.decimal128(18, 2)
    )
    values["currency"] = pa.repeat(currency, len(rows))
    values["view_version"] = pa.repeat(pa.scalar(view_version, pa.int64()), len(rows))
    for name in ("existed", "is_gone"):
        values[name] = pa.array([bool(value) for value in values[name]])
    return pa.table(
        [
            pa.array(values[field.name], pa.int64()).cast(field.type)
            if pa.types.is_timestamp(field.type)
            else values[field.name]
            if isinstance(values[field.name], pa.Array | pa.ChunkedArray)
            else pa.array(values[field.name], field.type)
            for field in schema
        ],
        schema=schema,
    )


class ViewClock:
    """Gives each batch a view version greater than every one before.

    A hybrid logical clock: the time in milliseconds, or one more than the last version where time has not moved on.
    So versions grow over deletes, restarts and rebuilds of the table without being stored anywhere else.
    """

    def __init__(self, newest: int = 0, *, now: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        """Start above the newest version known; `now` counts milliseconds."""
        self.newest = newest
        self.now = now

    @classmethod
    def of(cls, lake: str) -> ViewClock:
        """Start above the newest version in gold, as its files' statistics tell it."""
        files = pa.table(DeltaTable(table_path(lake, Table.ACTIVITY_CHANGES)).get_add_actions(flatten=True))
        column = "max.view_version"
        newest = pc.max(files.column(column)).as_py() if column in files.column_names else None
        return cls(newest or 0)

    def next(self) -> int:
        """Return the next version."""
        self.newest = max(self.now(), self.newest + 1)
        return self.newest
