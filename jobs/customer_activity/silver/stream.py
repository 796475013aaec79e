"""Silver: count each purchase once, and note every change of a profile.

Reads      bronze.purchase_events and bronze.customer_profiles, change data feeds, one batch cut over both
Writes     bronze.quarantine (append: repeats with other content), silver.purchases (append),
           silver.profile_changes (append), in this order
Grain      one row per purchase_id; one row per change of a customer's profile
On restart each topic's part of a batch is in its table or is judged as before, by a past without it; quarantine comes
           first, so what is in a table is done; each write carries (txnAppId, batch_id)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from customer_activity import commits, delta, feeds
from customer_activity.catalog import Reason, Table, table_path
from customer_activity.datafiles import FileWriter, arrow_schema, in_parts, write_at_once
from customer_activity.microbatch import ACCEPTED, QUARANTINED, MicroBatch
from customer_activity.schemas import POSITION, PROFILE_FIELDS, PURCHASE_FIELDS
from customer_activity.settings import Settings
from customer_activity.silver import profiles, purchases
from customer_activity.silver.index import SilverIndex

EVENT_COLUMNS = list(
    dict.fromkeys(
        [
            *PURCHASE_FIELDS.fieldNames(),
            *PROFILE_FIELDS.fieldNames(),
            "is_tombstone",
            *POSITION.fieldNames(),
        ]
    )
)
SIDES = {
    Table.PURCHASE_EVENTS: [*PURCHASE_FIELDS.fieldNames(), *POSITION.fieldNames()],
    Table.PROFILE_EVENTS: [*PROFILE_FIELDS.fieldNames(), "is_tombstone", *POSITION.fieldNames()],
}
IN_ORDER = [("partition", "ascending"), ("offset", "ascending")]
PROFILES_AT_A_TIME = 50_000
COMPARED_ROWS = 2_000_000  # of the table with a large batch's ids: each time the ids are hashed anew


def read(spark: SparkSession, settings: Settings) -> DataFrame:
    """Stream what landed on either topic."""
    return landed(*(delta.read_changes(spark, settings.lake, table) for table in SIDES))


def landed(purchase_events: DataFrame, profile_events: DataFrame) -> DataFrame:
    """Both change feeds as one, without the raw bytes; `side` tells them apart."""
    # A constant, not a column that is read: Spark leaves a side out of the plan when only the other is asked for.
    purchases, profiles = (
        feed.where(F.col("_change_type") == "insert").withColumn("side", F.lit(table.label))
        for feed, table in ((purchase_events, Table.PURCHASE_EVENTS), (profile_events, Table.PROFILE_EVENTS))
    )
    return purchases.unionByName(profiles, allowMissingColumns=True).select("side", *EVENT_COLUMNS)


def append_batch(events: DataFrame, batch: MicroBatch, *, settings: Settings, index: SilverIndex) -> None:
    """Write one batch: a small one is judged by the index, a large one against the whole table."""
    with batch.phase("read"):
        feed = feeds.read(events, settings.lake, SIDES, batch.versions)
        bought, updates = (
            [*feed.batches(table, columns)] if table is Table.PROFILE_EVENTS or feed.is_small else None
            for table, columns in SIDES.items()
        )
    spark = events.sparkSession
    if not commits.is_in(spark, settings.lake, Table.PURCHASES, batch):
        if bought is None:
            append_many_purchases(feed, spark, batch, settings=settings, index=index)
        elif bought:
            append_purchases(pa.Table.from_batches(bought), spark, batch, settings=settings, index=index)
    if updates and not commits.is_in(spark, settings.lake, Table.PROFILE_CHANGES, batch):
        append_profiles(pa.Table.from_batches(updates), spark, batch, settings=settings, index=index)


def append_purchases(
    bought: pa.Table, spark: SparkSession, batch: MicroBatch, *, settings: Settings, index: SilverIndex
) -> None:
    """Judge a small batch's purchases by the index; append those that count, quarantine conflicting repeats."""
    with batch.phase("compute"):
        index.catch_up(Table.PURCHASES)
        bought = bought.sort_by(IN_ORDER)
        records = list(purchases.firsts(bought))
        verdicts = purchases.judge(records, index.counted(purchase_id for purchase_id, _ in records))
        _count(verdicts, settings.purchase_topic, batch)
        accepted = bought.filter(pa.array([verdict == ACCEPTED for verdict in verdicts]))
    _quarantine(bought, verdicts, spark, batch, settings)
    with index.change(), batch.phase("commit"):
        version = commits.append(spark, settings.lake, Table.PURCHASES, accepted, batch)
        index.add_purchases(record for record, verdict in zip(records, verdicts, strict=True) if verdict == ACCEPTED)
        index.advance(Table.PURCHASES, version)


def append_many_purchases(
    feed: feeds.Feed, spark: SparkSession, batch: MicroBatch, *, settings: Settings, index: SilverIndex
) -> None:
    """Append a large batch's purchases: an id that is met once, here and in the table, counts without more ado.

    The few others are judged as a small batch is. The index takes the table's new rows before it is used again.
    """
    columns = SIDES[Table.PURCHASE_EVENTS]
    with batch.phase("compute"):
        ids = [part.column("purchase_id") for part in feed.batches(Table.PURCHASE_EVENTS, ["purchase_id"])]
        suspects = met_again(pa.chunked_array(ids, pa.string()), settings.lake)
        del ids
        suspected = _among(feed.batches(Table.PURCHASE_EVENTS, columns), suspects)
        counted = DeltaTable(table_path(settings.lake, Table.PURCHASES)).to_pyarrow_dataset()
        known = _among(counted.to_batches(columns=columns) if len(suspects) else iter(()), suspects)
        verdicts = purchases.judge(purchases.firsts(suspected), dict(purchases.firsts(known)))
        accepted = suspected.filter(pa.array([verdict == ACCEPTED for verdict in verdicts], pa.bool_()))
    with batch.phase("write"):
        rest = (
            part.filter(pc.invert(pc.is_in(part.column("purchase_id"), value_set=suspects)))
            for part in feed.batches(Table.PURCHASE_EVENTS, columns)
        )
        written = write_at_once(chain(accepted.to_batches(), rest), settings.lake, Table.PURCHASES)
    _count(verdicts, settings.purchase_topic, batch)
    rows = sum(file.rows for file in written) - accepted.num_rows
    batch.count(settings.purchase_topic, ACCEPTED, rows)
    batch.rows += rows
    _quarantine(suspected, verdicts, spark, batch, settings)
    with batch.phase("commit"):
        commits.commit(spark, settings.lake, Table.PURCHASES, written, batch)
    index.is_current[Table.PURCHASES] = False


def _among(batches: Iterator[pa.RecordBatch], ids: pa.Array) -> pa.Table:
    """Return the rows of these purchase ids, in the order of their records; without ids nobody asks for rows."""
    schema = arrow_schema(Table.PURCHASES)
    chosen = (part.filter(pc.is_in(part.column("purchase_id"), value_set=ids)) for part in batches) if len(ids) else ()
    parts = [part.select(schema.names).cast(schema) for part in chosen]
    return pa.Table.from_batches(parts, schema).sort_by(IN_ORDER)


def met_again(ids: pa.ChunkedArray, lake: str) -> pa.Array:
    """Return the purchase ids that are in a batch more than once, or in the table already."""
    counts = pc.value_counts(ids)
    found = [counts.field("values").filter(pc.greater(counts.field("counts"), 1))]
    counted = DeltaTable(table_path(lake, Table.PURCHASES)).to_pyarrow_dataset()
    for part in in_parts(counted.to_batches(columns=["purchase_id"]), COMPARED_ROWS):
        known = part.column("purchase_id")
        found += known.filter(pc.is_in(known, value_set=counts.field("values"))).chunks
    return pc.unique(pa.chunked_array(found, pa.string()))


def append_profiles(
    updates: pa.Table, spark: SparkSession, batch: MicroBatch, *, settings: Settings, index: SilverIndex
) -> None:
    """Judge profile records by the index and append what changes, one row a customer and part of the batch."""
    index.catch_up(Table.PROFILE_CHANGES)
    updates = updates.sort_by(IN_ORDER)
    writer = FileWriter(settings.lake, Table.PROFILE_CHANGES)
    with index.change():
        with batch.phase("compute"):
            for start in range(0, updates.num_rows, PROFILES_AT_A_TIME):
                part = updates.slice(start, PROFILES_AT_A_TIME)
                records = list(profiles.records(part))
                verdicts, changed = profiles.judge(records, index.current(record.customer_id for record in records))
                _count(verdicts, settings.profile_topic, batch)
                numbers = sorted(changed.values())
                writer.write(part.take(pa.array(numbers, pa.int64())))
                index.change_profiles(records[number] for number in numbers)
        with batch.phase("commit"):
            version = commits.commit(spark, settings.lake, Table.PROFILE_CHANGES, [writer.close()], batch)
            index.advance(Table.PROFILE_CHANGES, version)


def _quarantine(
    bought: pa.Table, verdicts: list[str], spark: SparkSession, batch: MicroBatch, settings: Settings
) -> None:
    """Append conflicting repeats to quarantine with the raw bytes that bronze kept of them."""
    conflicts = bought.filter(pa.array([verdict == QUARANTINED for verdict in verdicts], pa.bool_()))
    if not conflicts.num_rows:
        return
    rows = conflicting(settings.lake, conflicts.select(["partition", "offset"]))
    commits.append(spark, settings.lake, Table.QUARANTINE, rows, batch)


def conflicting(lake: str, places: pa.Table) -> pa.Table:
    """Return quarantine's rows of the conflicting repeats at some coordinates (partition, offset)."""
    events = DeltaTable(table_path(lake, Table.PURCHASE_EVENTS)).to_pyarrow_dataset()
    # Files tell their bounds of offsets, so few are opened; an offset may be there once a partition.
    raw = events.to_table(filter=pc.field("offset").isin(places.column("offset").unique()))
    raw = _at(raw, places)
    values = {
        "reason": pa.repeat(Reason.CONFLICTING_DUPLICATE.value, raw.num_rows),
        "detail": pa.repeat("$.purchaseId: counted before with other content", raw.num_rows),
        "quarantined_at": pa.repeat(pa.scalar(datetime.now(UTC), pa.timestamp("us", tz="UTC")), raw.num_rows),
    }
    for name, column in values.items():
        raw = raw.append_column(name, column)
    return raw


def _at(rows: pa.Table, places: pa.Table) -> pa.Table:
    """Keep the rows at these coordinates."""
    wanted = set(zip(*(column.to_pylist() for column in places.columns), strict=True))
    found = zip(*(rows.column(name).to_pylist() for name in places.column_names), strict=True)
    return rows.filter(pa.array([at in wanted for at in found], pa.bool_()))


def _count(verdicts: list[str], topic: str, batch: MicroBatch) -> None:
    """Add the verdicts on a topic's records to the batch's accounting."""
    for verdict, count in Counter(verdicts).items():
        batch.count(topic, verdict, count)
    batch.rows += len(verdicts)
