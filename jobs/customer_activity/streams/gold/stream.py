"""Gold: the current profile of a customer joined with everything the customer bought, one row a change.

Reads      silver.purchases and silver.profile_changes, change data feeds, one batch cut over both
Writes     bronze.quarantine (append: customers whose total is out of range), gold.activity_changes (append)
Grain      one row per part of a batch and customer whose row (profiles LEFT JOIN summaries) begins, changes or ends
On restart gold's newest commit names the pair of silver versions that it was computed from: the parts of a repeated
           batch up to it are left out, and the state is brought to where the next one begins
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from customer_activity.catalog import Query, Reason, Table, table_path
from customer_activity.lake import commits, delta, deltalog, feeds, history
from customer_activity.lake.datafiles import FileWriter, arrow_schema, in_parts
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.settings import Settings
from customer_activity.streams.gold.state import (
    PROFILE_COLUMNS,
    PURCHASE_COLUMNS,
    GoldState,
    Row,
    latest,
    summarised,
    totalled,
    with_an_end,
)

SIDES = {Table.PURCHASES: PURCHASE_COLUMNS, Table.PROFILE_CHANGES: PROFILE_COLUMNS}
PART_ROWS = 500_000  # summed up at a time
FROZEN = "frozen"  # in a commit's note: how many customers its batch has put into quarantine


def read(spark: SparkSession, settings: Settings) -> DataFrame:
    """Stream what changed on either side, from where gold's newest commit was computed, else from the beginning."""
    return changed(
        *(
            delta.read_changes(spark, settings.lake, table, starting_version=version)
            for table, version in begins(settings).items()
        )
    )


def begins(settings: Settings) -> dict[Table, int]:
    """Return the first version that a first batch reads of each table."""
    note = history.newest_note(settings.lake, Table.ACTIVITY_CHANGES, Query.GOLD)
    return {table: max(0, int(note.get(table.label, 0))) for table in SIDES}


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
    """Write one batch, part by part; what a repeated one has written already is left out."""
    batch.ids = state.ids
    with batch.phase("read"):
        left = state.written.left(batch.versions, dict.fromkeys(SIDES, Table.ACTIVITY_CHANGES))
        feed = feeds.read(settings.lake, SIDES, left)
        # Of a part that a crash ended, customers may be in quarantine already: then it is the same part once more.
        stop = None if state.at else commits.newest(settings.lake, Table.QUARANTINE, batch)
    for part, of_part in batch.parts(feed.parts(stop=stop, of=list(SIDES))):
        if part.files:
            append_part(part, changes.sparkSession, of_part, settings=settings, state=state, clock=clock)
            state.written.note(Table.ACTIVITY_CHANGES, part.versions)


def append_part(
    feed: feeds.Feed,
    spark: SparkSession,
    batch: MicroBatch,
    *,
    settings: Settings,
    state: GoldState,
    clock: ViewClock,
) -> None:
    """Write a part: bring the state to where it begins, take both sides' changes in, append the rows that differ."""
    lake = settings.lake
    with batch.phase("read"):
        state.bring({table: after for table, (after, _) in feed.versions.items()}, batch.progress)
        bought = feed.batches(Table.PURCHASES, PURCHASE_COLUMNS)
        sums = totalled(summarised(part) for part in in_parts(bought, PART_ROWS))
        profile_changes = _table(feed, Table.PROFILE_CHANGES, PROFILE_COLUMNS)
        profiles, ended = latest(profile_changes), with_an_end(profile_changes)
    to = {table: feed.end(table, state.ids[table]) for table in SIDES}
    batch.extra |= {table.label: place.version for table, place in to.items()}
    batch.extra[deltalog.READ] = deltalog.as_note(to)
    writer = FileWriter(lake, Table.ACTIVITY_CHANGES)
    version = clock.next()
    in_gold = partial(with_a_row, lake)
    with batch.phase("compute"), state.change(sums, profiles, ended, to, in_gold) as changes:
        for rows in changes.rows:
            batch.rows += len(rows)
            writer.write(as_columns(rows, settings.currency, version))
        file = writer.close()
        with batch.phase("commit"):
            if changes.beyond:
                batch.extra[FROZEN] = len(changes.beyond)
                commits.append(spark, lake, Table.QUARANTINE, frozen(changes.beyond, settings), batch)
            # Also without a row: each part leaves a commit, by which table and checkpoint are compared.
            commits.commit(spark, lake, Table.ACTIVITY_CHANGES, [file], batch)


def with_a_row(lake: str, customers: Sequence[str]) -> list[str]:
    """Return those of some customers who have a row in gold, as the changes so far tell."""
    told = DeltaTable(table_path(lake, Table.ACTIVITY_CHANGES)).to_pyarrow_dataset()
    is_theirs = pc.field("customer_id").isin(pa.array(customers, pa.string()))
    changes = told.to_table(columns=["customer_id", "view_version", "is_gone"], filter=is_theirs).sort_by(
        "view_version"
    )
    is_gone = dict(zip(changes.column("customer_id").to_pylist(), changes.column("is_gone").to_pylist(), strict=True))
    return [customer for customer, gone in is_gone.items() if not gone]


def frozen(customers: Sequence[str], settings: Settings) -> pa.Table:
    """Return quarantine's rows of customers whose total has left decimal(18,2); no one record is at fault."""
    now = datetime.now(UTC)
    rows = [
        {
            "reason": Reason.TOTAL_OUT_OF_RANGE.value,
            "detail": "totalAmount: beyond 9999999999999999.99; the customer's row stays as it was",
            "key": customer.encode(),
            "topic": settings.purchase_topic,
            "quarantined_at": now,
        }
        for customer in customers
    ]
    return pa.Table.from_pylist(rows, arrow_schema(Table.QUARANTINE))


def _table(feed: feeds.Feed, table: Table, columns: Sequence[str]) -> pa.Table:
    schema = pa.schema([arrow_schema(table).field(name) for name in columns])
    return pa.Table.from_batches([batch.cast(schema) for batch in feed.batches(table, columns)], schema)


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
