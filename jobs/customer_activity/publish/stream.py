"""Publish: each change of a gold row becomes one record on the view topic.

Reads      gold.activity_changes, change data feed
Writes     bronze.quarantine (append: rows larger than the view topic takes), then Kafka: the view topic, with the
           progress marker, in one transaction a batch
Grain      one record per customer_id that changed in the batch: its newest row, or null when the row is gone
On restart changes up to the marker's gold version are out already and are left out; what was put into quarantine for a
           batch is left out by (txnAppId, batch_id)

Where a rebuilt gold has taken the place of the one that the marker names, its first batch is all of it: what the topic
has already is left out.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from customer_activity import commits, delta, feeds
from customer_activity.catalog import Reason, Table
from customer_activity.datafiles import arrow_schema
from customer_activity.failpoints import FailPoint
from customer_activity.microbatch import MicroBatch
from customer_activity.observability import log
from customer_activity.publish.transaction import Marker, Publisher
from customer_activity.settings import Settings

# Gold's columns as the contract's fields (customer_activity.schema.json): camelCase, times in milliseconds.
FIELDS = {
    "customerId": "customer_id",
    "name": "name",
    "email": "email",
    "address": "address",
    "loyaltyStatus": "loyalty_status",
    "profileUpdatedAtEpochMillis": "profile_updated_at",
    "purchaseCount": "purchase_count",
    "totalAmount": "total_amount",
    "currency": "currency",
    "firstPurchaseAtEpochMillis": "first_purchase_at",
    "lastPurchaseAtEpochMillis": "last_purchase_at",
    "viewVersion": "view_version",
    "asOfEpochMillis": "as_of",
}
COLUMNS = (*FIELDS.values(), "existed", "is_gone", "_commit_version")
RECORDS_AT_A_TIME = 10_000

TEXTS = ("customer_id", "customer_id", "name", "email", "address", "loyalty_status")  # the id is the key, too
ESCAPED_BYTES = 6  # of JSON for one byte of text, at most
OTHER_BYTES = 1_000  # of the other fields and all names, at most

Record = tuple[bytes, bytes | None]


def read(spark: SparkSession, settings: Settings, publisher: Publisher) -> DataFrame:
    """Stream gold's changes, from the marker's version when there is one, else from the table's beginning."""
    start = begins(settings, publisher)[Table.ACTIVITY_CHANGES]
    return delta.read_changes(
        spark, settings.lake, Table.ACTIVITY_CHANGES, starting_version=start, whole_commits=True
    ).select(*COLUMNS)


def begins(settings: Settings, publisher: Publisher) -> dict[Table, int]:
    """Return the first version that a first batch reads."""
    marker = publisher.marker
    known = marker is not None and marker.table_id == delta.table_id(settings.lake, Table.ACTIVITY_CHANGES)
    return {Table.ACTIVITY_CHANGES: marker.version if marker is not None and known else 0}


def net_changes(changes: pa.Table, published_version: int) -> pa.Table:
    """Reduce the changes after `published_version` to one row per customer: its newest state.

    A row that came and went since has never been on the topic and needs no record.
    """
    new = changes.filter(pc.greater(changes.column("_commit_version"), published_version))
    # One a batch of gold, and growing. Of the columns only these are brought into order: the rest is most of the bytes.
    order = pc.sort_indices(new, [("view_version", "ascending")])
    keys = new.select(["customer_id", "existed", "is_gone"]).take(order)
    keys = keys.append_column("number", pa.array(range(keys.num_rows), pa.int64()))
    of_customer = keys.group_by("customer_id").aggregate([("number", "min"), ("number", "max")])
    newest = of_customer.column("number_max")
    existed = keys.column("existed").take(of_customer.column("number_min"))
    needed = newest.filter(pc.or_(existed, pc.invert(keys.column("is_gone").take(newest))))
    return new.take(order.take(needed))


def unlike(rows: pa.Table, on_topic: Mapping[bytes, bytes | None]) -> pa.Table:
    """Keep the rows that the topic has not, or has otherwise."""
    return rows.filter(pa.array([on_topic.get(key) != value for key, value in records(rows)], pa.bool_()))


def as_on_topic(rows: pa.Table, on_topic: Mapping[bytes, bytes | None]) -> pa.Table:
    """Give rows that the topic has already, but for the version, the version that they have there."""
    own = rows.column("view_version").to_pylist()
    keys = (customer.encode() for customer in rows.column("customer_id").to_pylist())
    there = [version_of(on_topic.get(key)) or version for key, version in zip(keys, own, strict=True)]
    at = rows.column_names.index("view_version")
    alike = rows.set_column(at, "view_version", pa.array(there, pa.int64()))
    unlike_ones = [on_topic.get(key) != value for key, value in records(alike)]
    versions = [mine if differs else known for mine, known, differs in zip(own, there, unlike_ones, strict=True)]
    return rows.set_column(at, "view_version", pa.array(versions, pa.int64()))


def version_of(value: bytes | None) -> int:
    """Return a record's version; 0 for one that is none of ours: whatever gold has is newer."""
    try:
        return int(msgspec.json.decode(value or b"null")["viewVersion"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return 0


def records(rows: pa.Table) -> Iterator[Record]:
    """Key and value of each customer's record; the value is null when the row is gone."""
    encode = msgspec.json.Encoder(decimal_format="number").encode  # the cents as they are: 12.30, never 12.3000001
    fields = rows.select(list(FIELDS.values())).rename_columns(list(FIELDS))
    fields = pa.table({name: _plain(fields.column(name)) for name in FIELDS})
    is_gone = rows.column("is_gone").to_pylist()
    start = 0
    for part in fields.to_batches(max_chunksize=RECORDS_AT_A_TIME):
        for gone, row in zip(is_gone[start : start + part.num_rows], part.to_pylist(), strict=True):
            yield row["customerId"].encode(), None if gone else encode(row)
        start += part.num_rows


def oversized(rows: pa.Table, max_bytes: int) -> dict[int, tuple[bytes, bytes]]:
    """Find the rows whose records the topic would refuse: row number to key and value."""
    texts = [pc.fill_null(pc.binary_length(rows.column(column)), 0).cast(pa.int64()) for column in TEXTS]
    at_most = pc.add(pc.multiply(functools.reduce(pc.add, texts), ESCAPED_BYTES), OTHER_BYTES)
    suspects = pc.indices_nonzero(pc.greater(at_most, max_bytes))  # the others need not be encoded to know it
    return {
        number: (key, value)
        for number, (key, value) in zip(suspects.to_pylist(), records(rows.take(suspects)), strict=True)
        if value is not None and len(key) + len(value) > max_bytes
    }


def refused(found: Iterable[tuple[bytes, bytes]], topic: str, max_bytes: int) -> pa.Table:
    """Return quarantine's rows of records that never went out, so they have no coordinates."""
    now = datetime.now(UTC)
    rows = [
        {
            "reason": Reason.TOO_LARGE_TO_PUBLISH.value,
            "detail": f"key and value: {len(key) + len(value)} bytes, and the topic takes {max_bytes}",
            "key": key,
            "value": value,
            "topic": topic,
            "quarantined_at": now,
        }
        for key, value in found
    ]
    return pa.Table.from_pylist(rows, arrow_schema(Table.QUARANTINE))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return times as milliseconds since 1970."""
    if not pa.types.is_timestamp(column.type):
        return column
    return pc.divide(column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), 1000)


def publish_batch(
    changes: DataFrame,
    batch: MicroBatch,
    *,
    settings: Settings,
    publisher: Publisher,
    table_id: str,
    instead_of: Collection[str] = (),
) -> None:
    """Publish one batch with its marker; a batch that changes nothing sends nothing.

    Args:
        changes: the batch's change feed of gold.
        batch: whose it is.
        settings: which lake, which topic.
        publisher: sends, and knows the marker.
        table_id: gold's.
        instead_of: ids of the gold tables whose place it has taken.
    """
    with batch.phase("read"):
        feed = feeds.read(changes, settings.lake, {Table.ACTIVITY_CHANGES: COLUMNS[:-1]}, batch.versions).rows()
    if not feed.num_rows:
        return
    with batch.phase("compute"):
        is_out = publisher.marker.version if publisher.marker and publisher.marker.table_id == table_id else -1
        is_first = publisher.marker is not None and publisher.marker.table_id in instead_of
        newest = pc.max(feed.column("_commit_version")).as_py()
        rows = net_changes(feed, is_out)
        if is_first:
            rows = unlike(rows, publisher.on_topic())
        too_large = oversized(rows, publisher.max_bytes)
        del feed  # as large as the rows, and they are in memory until the last is out
    if too_large:
        # Before the transaction: once its marker is out, nobody looks at these rows again.
        with batch.phase("commit"):
            kept = refused(too_large.values(), settings.view_topic, publisher.max_bytes)
            commits.append(changes.sparkSession, settings.lake, Table.QUARANTINE, kept, batch)
        log.warning("query=publish %d rows are larger than the topic takes: they are in quarantine", len(too_large))
        rows = rows.filter(pa.array([number not in too_large for number in range(rows.num_rows)], pa.bool_()))
    with batch.phase("publish"):
        if rows.num_rows or too_large or is_first:  # the marker says that these are done with, too
            batch.rows += publisher.publish(halfway(records(rows), rows.num_rows, batch), Marker(table_id, newest))
            batch.reach(FailPoint.PUBLISHED)


def halfway(items: Iterable[Record], count: int, batch: MicroBatch) -> Iterator[Record]:
    """Yield records, and come to a place where a drill may end the batch when half of them are through."""
    for number, item in enumerate(items):
        if number == count // 2:
            batch.reach(FailPoint.SENDING)
        yield item
