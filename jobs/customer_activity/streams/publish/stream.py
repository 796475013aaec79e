"""Publish: each change of a gold row becomes one record on the view topic.

Reads      gold.activity_changes, change data feed
Writes     bronze.quarantine (append: rows larger than the view topic takes), then Kafka: the view topic, with the
           progress marker, in one transaction a part of the batch
Grain      one record per customer_id that changed in the part: its newest row, or null when the row is gone
On restart what the marker covers is out already and is left out; so is what was put into quarantine, by the position
           in gold that its commit carries as txnVersion

Where a rebuilt gold has taken the place of the one that the marker names, its first batch is all of it: what the topic
has already is left out, and the marker stays the former one's until all of it is out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from customer_activity.catalog import Reason, Table, table_path
from customer_activity.engine.observability import log
from customer_activity.errors import ChangeFeedLost, TerminalError
from customer_activity.failpoints import FailPoint
from customer_activity.lake import commits, delta, deltalog, feeds
from customer_activity.lake.datafiles import arrow_schema
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.settings import Settings
from customer_activity.streams.publish import parts, reading
from customer_activity.streams.publish.marker import BEFORE_THE_FIRST, Marker
from customer_activity.streams.publish.parts import ROW, VERSION, Part
from customer_activity.streams.publish.records import FIELDS, Record, oversized, records, unlike
from customer_activity.streams.publish.transaction import Publisher

COLUMNS = (*FIELDS.values(), "existed", "is_gone")


def read(spark: SparkSession, settings: Settings, publisher: Publisher) -> DataFrame:
    """Stream gold's changes, from the marker's version when there is one, else from the table's beginning."""
    start = begins(settings, publisher)[Table.ACTIVITY_CHANGES]
    return delta.read_changes(spark, settings.lake, Table.ACTIVITY_CHANGES, starting_version=start).select(*COLUMNS)


def begins(settings: Settings, publisher: Publisher) -> dict[Table, int]:
    """Return the first version that a first batch reads.

    Raises:
        TerminalError: gold has not, or not any more, what the marker names.
    """
    marker = publisher.marker
    if marker is None or marker.table_id != delta.table_id(settings.lake, Table.ACTIVITY_CHANGES):
        return {Table.ACTIVITY_CHANGES: 0}
    refuse_earlier(settings, marker)
    return {Table.ACTIVITY_CHANGES: max(0, marker.version)}


def refuse_earlier(settings: Settings, marker: Marker) -> None:
    """Make sure that gold has the version that the marker names, and that it is still the same commit.

    Raises:
        TerminalError: it has not: gold was put back to an earlier time, and perhaps has grown again.
    """
    table = Table.ACTIVITY_CHANGES
    newest = deltalog.newest_version(settings.lake, table)
    found = deltalog.entry(settings.lake, table, marker.version) if marker.commit else None
    if marker.version <= newest and (found is None or found.commit == marker.commit):
        return
    what = "is another commit by now" if marker.version <= newest else f"is not there (the newest is {newest})"
    raise TerminalError(
        f"{table.label} was put back to an earlier time: its version {marker.version}, up to which it is on topic "
        f"{settings.view_topic}, {what}",
        remedy="put the newer one back; or go on with this one: `activity resync publish --reason …` makes the topic "
        "say what it says",
    )


def net_changes(changes: pa.Table) -> pa.Table:
    """Reduce changes to one row per customer: its newest state.

    A row that came and went among them was not on the topic before and needs no record.
    """
    # One a batch of gold, and growing. Of the columns only these are brought into order: the rest is most of the bytes.
    order = pc.sort_indices(changes, [("view_version", "ascending")])
    keys = changes.select(["customer_id", "existed", "is_gone"]).take(order)
    keys = keys.append_column("number", pa.array(range(keys.num_rows), pa.int64()))
    of_customer = keys.group_by("customer_id").aggregate([("number", "min"), ("number", "max")])
    newest = of_customer.column("number_max")
    existed = keys.column("existed").take(of_customer.column("number_min"))
    needed = newest.filter(pc.or_(existed, pc.invert(keys.column("is_gone").take(newest))))
    return changes.take(order.take(needed))


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
    with batch.phase("read"), resync_mends():
        feed = feeds.read(settings.lake, {Table.ACTIVITY_CHANGES: COLUMNS}, batch.versions)
    known = publisher.marker
    begin = known if known is not None and known.table_id == table_id else Marker(table_id, BEFORE_THE_FIRST)
    former = known if known is not None and known.table_id in instead_of else None
    on_topic: Mapping[bytes, bytes | None] | None = None
    rows_read = reading.rows(feed, COLUMNS)
    for part, is_last in with_last(parts.parts(rows_read, begin, records=parts.PART_RECORDS, size=parts.PART_BYTES)):
        with batch.phase("compute"):
            rows = net_changes(part.rows)
            if former is not None:
                on_topic = publisher.on_topic() if on_topic is None else on_topic
                rows = unlike(rows, on_topic)
            too_large = oversized(rows, publisher.max_bytes)
        if too_large:
            # Before the transaction: once its marker is out, these rows are not looked at again.
            with batch.phase("commit"):
                keep(changes.sparkSession, settings, batch, part, rows.take(list(too_large)), publisher.max_bytes)
            rows = rows.filter(pa.array([number not in too_large for number in range(rows.num_rows)], pa.bool_()))
        marker = reading.named(feed, part.marker) if former is None or is_last else former
        with batch.phase("publish"):
            # The marker says that those in quarantine are done with, too, and that another gold is on the topic.
            if rows.num_rows or too_large or (former is not None and is_last):
                batch.rows += publisher.publish(halfway(records(rows), rows.num_rows, batch), marker)
                batch.reach(FailPoint.PUBLISHED)
        batch.progress(f"gold up to version {part.marker.version} of {batch.versions[Table.ACTIVITY_CHANGES][1]}")


@contextmanager
def resync_mends() -> Iterator[None]:
    """Say of a change feed that is lost how publish goes on without it.

    Raises:
        ChangeFeedLost: it is.
    """
    try:
        yield
    except ChangeFeedLost as error:
        raise ChangeFeedLost(error.what, remedy=reading.RESYNC) from error


def with_last(found: Iterable[Part]) -> Iterator[tuple[Part, bool]]:
    """Yield parts, and whether each is the last."""
    before: Part | None = None
    for part in found:
        if before is not None:
            yield before, False
        before = part
    if before is not None:
        yield before, True


def keep(
    spark: SparkSession, settings: Settings, batch: MicroBatch, part: Part, rows: pa.Table, max_bytes: int
) -> None:
    """Put rows into quarantine that the topic does not take, each once, however batches and parts are cut."""
    upto = position(part.marker.version + 1, part.marker.rows)
    own = replace(batch, generation=part.marker.table_id, batch_id=upto, versions={})
    quarantine = DeltaTable(table_path(settings.lake, Table.QUARANTINE))
    kept = quarantine.transaction_version(own.transaction(Table.QUARANTINE)[0])
    places = zip(rows.column(VERSION).to_pylist(), rows.column(ROW).to_pylist(), strict=True)
    new = [number for number, (version, row) in enumerate(places) if position(version, row + 1) > (kept or 0)]
    if not new:
        return
    found = ((key, value or b"") for key, value in records(rows.take(new)))
    commits.append(spark, settings.lake, Table.QUARANTINE, refused(found, settings.view_topic, max_bytes), own)
    batch.commits += 1
    log.warning("query=publish %d rows are larger than the topic takes: they are in quarantine", len(new))


def position(version: int, rows: int) -> int:
    """Return one number for so many rows of a version, greater than that of every place before."""
    return (version << 32) + rows


def halfway(items: Iterable[Record], count: int, batch: MicroBatch) -> Iterator[Record]:
    """Yield records, and come to a place where a drill may end the batch when half of them are through."""
    for number, item in enumerate(items):
        if number == count // 2:
            batch.reach(FailPoint.SENDING)
        yield item
