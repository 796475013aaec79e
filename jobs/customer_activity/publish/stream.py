"""Publish: each change of a gold row becomes one record on the view topic.

Reads      gold.customer_activity, change data feed
Writes     Kafka: the view topic, with the progress marker, in one transaction a batch
Grain      one record per customer_id that changed in the batch: its newest row, or null when the row is gone
On restart changes up to the marker's gold version are out already and are left out
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from customer_activity import delta
from customer_activity.catalog import Table
from customer_activity.microbatch import MicroBatch, held
from customer_activity.publish.transaction import Marker, Publisher
from customer_activity.settings import Settings


def read(spark: SparkSession, settings: Settings, publisher: Publisher) -> DataFrame:
    """Stream gold's changes, from the marker's version when there is one, else from the table's beginning."""
    marker = publisher.marker
    known = marker is not None and marker.table_id == delta.table_id(spark, settings.lake, Table.ACTIVITY)
    start = marker.version if marker is not None and known else 0
    return states(delta.read_changes(spark, settings.lake, Table.ACTIVITY, starting_version=start))


def states(changes: DataFrame) -> DataFrame:
    """Keep what rows became; what they were before is of no use to a reader of the topic."""
    return changes.where(F.col("_change_type") != "update_preimage")


def net_changes(changes: DataFrame, published_version: int) -> DataFrame:
    """Reduce the change feed to one row per customer: its newest state.

    A row that came and went since `published_version` has never been on the topic and needs no record.

    Produces gold's columns and `is_gone`.
    """
    of_customer = Window.partitionBy("customer_id")
    # Within one commit a key changes once; a delete and an insert of it are two commits.
    newest_first = of_customer.orderBy(F.desc("_commit_version"))
    return (
        changes.where(F.col("_commit_version") > published_version)
        .withColumn("first_change", F.min_by("_change_type", "_commit_version").over(of_customer))
        .withColumn("rank", F.row_number().over(newest_first))
        .where(F.col("rank") == 1)
        .withColumn("is_gone", F.col("_change_type") == "delete")
        .where(~(F.col("is_gone") & (F.col("first_change") == "insert")))
        .drop("rank", "first_change", *delta.CHANGE_COLUMNS)
    )


def view_fields(current: DataFrame) -> DataFrame:
    """Gold's columns as the contract's fields (customer_activity.schema.json): camelCase, times in milliseconds."""

    def millis(column: str) -> Column:
        return F.unix_millis(column)

    return current.select(
        F.col("customer_id").alias("customerId"),
        "name",
        "email",
        "address",
        F.col("loyalty_status").alias("loyaltyStatus"),
        millis("profile_updated_at").alias("profileUpdatedAtEpochMillis"),
        F.col("purchase_count").alias("purchaseCount"),
        F.col("total_amount").alias("totalAmount"),
        "currency",
        millis("first_purchase_at").alias("firstPurchaseAtEpochMillis"),
        millis("last_purchase_at").alias("lastPurchaseAtEpochMillis"),
        F.col("view_version").alias("viewVersion"),
        millis("as_of").alias("asOfEpochMillis"),
        "is_gone",
    )


def records(rows: pa.Table) -> Iterator[tuple[bytes, bytes | None]]:
    """Key and value of each customer's record; the value is null when the row is gone."""
    encode = msgspec.json.Encoder(decimal_format="number").encode  # the cents as they are: 12.30, never 12.3000001
    for chunk in rows.to_batches(max_chunksize=10_000):
        for row in chunk.to_pylist():
            is_gone = row.pop("is_gone")
            yield row["customerId"].encode(), None if is_gone else encode(row)


def publish_batch(changes: DataFrame, batch: MicroBatch, *, publisher: Publisher, table_id: str) -> None:
    """Publish one batch with its marker; a batch that changes nothing sends nothing."""
    with held(changes) as feed:
        versions = [version for (version,) in feed.counts("_commit_version")]
        if not versions:
            return
        is_out = publisher.marker.version if publisher.marker and publisher.marker.table_id == table_id else -1
        rows = feed.frame.transform(net_changes, is_out).transform(view_fields).toArrow()
        if rows.num_rows:
            batch.rows += publisher.publish(records(rows), Marker(table_id, max(versions)))
