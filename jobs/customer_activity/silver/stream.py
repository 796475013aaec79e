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
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from customer_activity import commits, delta, feeds
from customer_activity.catalog import Reason, Table, table_path
from customer_activity.datafiles import DataFile, FileWriter, in_parts
from customer_activity.microbatch import ACCEPTED, QUARANTINED, MicroBatch, collected
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
    """Write one batch: a small one is judged here by the index, a large one in Spark against the whole table."""
    with batch.phase("read"):
        few = feeds.appended(settings.lake, SIDES, batch.versions)
        few = collected(events) if few is None else few.select(["side", *EVENT_COLUMNS])
        if few is None:
            bought = events.where(F.col("side") == Table.PURCHASE_EVENTS.label)
            updates = events.where(F.col("side") == Table.PROFILE_EVENTS.label).toArrow()
        else:
            updates = few.filter(pc.equal(few.column("side"), Table.PROFILE_EVENTS.label))
            few = few.filter(pc.equal(few.column("side"), Table.PURCHASE_EVENTS.label))
    spark = events.sparkSession
    if not commits.is_in(spark, settings.lake, Table.PURCHASES, batch):
        if few is None:
            append_many_purchases(bought, batch, settings=settings, index=index)
        elif few.num_rows:
            append_purchases(few, spark, batch, settings=settings, index=index)
    if updates.num_rows and not commits.is_in(spark, settings.lake, Table.PROFILE_CHANGES, batch):
        append_profiles(updates, spark, batch, settings=settings, index=index)


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


def append_many_purchases(bought: DataFrame, batch: MicroBatch, *, settings: Settings, index: SilverIndex) -> None:
    """Append a large batch's purchases: an id that is met once, here and in the table, counts without more ado.

    The few others are judged as a small batch is. The index takes the table's new rows before it is used again.
    """
    spark = bought.sparkSession
    with batch.phase("compute"):
        suspects = met_again(bought.select("purchase_id").toArrow().column("purchase_id"), settings.lake)
        clean = bought
        files: list[DataFile | None] = []
        verdicts: list[str] = []
        if len(suspects):
            ids = spark.createDataFrame(pa.table({"purchase_id": suspects}))
            counted = delta.read(spark, settings.lake, Table.PURCHASES).select(*purchases.COLUMNS)
            known = dict(purchases.firsts(_of(counted, ids).toArrow()))
            suspected = _of(bought, ids).toArrow().sort_by(IN_ORDER)
            verdicts = purchases.judge(purchases.firsts(suspected), known)
            clean = bought.join(F.broadcast(ids), "purchase_id", "left_anti")
            writer = FileWriter(settings.lake, Table.PURCHASES)
            writer.write(suspected.filter(pa.array([verdict == ACCEPTED for verdict in verdicts])))
            files.append(writer.close())
    with batch.phase("write"):
        written = commits.write_in_workers(clean, settings.lake, Table.PURCHASES)
    _count(verdicts, settings.purchase_topic, batch)
    rows = sum(file.rows for file in written)
    batch.count(settings.purchase_topic, ACCEPTED, rows)
    batch.rows += rows
    if len(suspects):
        _quarantine(suspected, verdicts, spark, batch, settings)
    with batch.phase("commit"):
        commits.commit(spark, settings.lake, Table.PURCHASES, [*files, *written], batch)
    index.is_current[Table.PURCHASES] = False


def met_again(ids: pa.ChunkedArray, lake: str) -> pa.Array:
    """Return the purchase ids that are in a batch more than once, or in the table already."""
    counts = pc.value_counts(ids)
    found = [counts.field("values").filter(pc.greater(counts.field("counts"), 1))]
    counted = DeltaTable(table_path(lake, Table.PURCHASES)).to_pyarrow_dataset()
    for part in in_parts(counted.to_batches(columns=["purchase_id"]), COMPARED_ROWS):
        known = part.column("purchase_id")
        found += known.filter(pc.is_in(known, value_set=counts.field("values"))).chunks
    return pc.unique(pa.chunked_array(found, pa.string()))


def _of(rows: DataFrame, ids: DataFrame) -> DataFrame:
    return rows.join(F.broadcast(ids), "purchase_id", "left_semi")


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
    places = conflicts.select(["partition", "offset"])
    events = DeltaTable(table_path(settings.lake, Table.PURCHASE_EVENTS)).to_pyarrow_dataset()
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
    commits.append(spark, settings.lake, Table.QUARANTINE, raw, batch)


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
