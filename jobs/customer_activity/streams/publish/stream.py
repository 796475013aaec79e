"""Publish: each change of a gold row becomes one record on the view topic.

Reads      gold.activity_changes, change data feed
Writes     bronze.quarantine (append: rows larger than the view topic takes), then Kafka: the view topic, with the
           progress marker, in one transaction a part of the batch
Grain      one record per customer_id that changed in the part: its newest row, or null when the row is gone
On restart what the marker covers is out already and is left out; so is what was put into quarantine, by the position
           in gold that its commit carries as txnVersion

Where gold was corrected since the marker, rows that are retracted by now are left out, also from a batch that was
planned before, and rows that the topic has already: gold was wrong then, and not the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import PROGRESS_ROLE, VIEW_ROLE, Table
from customer_activity.checkpoints import checkpoint
from customer_activity.contracts.view import records
from customer_activity.engine.changes import changes_of
from customer_activity.engine.stream import Context, Opened, Resynced, Send, Steps, Traced, Writer
from customer_activity.errors import ChangeFeedLost, ForeignCommit, TerminalError
from customer_activity.kafka.marker import BEFORE_THE_FIRST, Marker
from customer_activity.lake import delta, deltalog, feeds
from customer_activity.lake.failpoints import FailPoint
from customer_activity.lake.feeds import Feed
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.settings import Settings
from customer_activity.streams.publish import parts, reading
from customer_activity.streams.publish.parts import ROW, VERSION
from customer_activity.streams.publish.reading import NONE, Corrections
from customer_activity.streams.publish.records import COLUMNS, oversized, traced, unlike
from customer_activity.streams.publish.resync import resync
from customer_activity.streams.publish.too_large import TooLarge, keep, position
from customer_activity.streams.publish.transaction import Publisher
from customer_activity.topology import Reads, Spec, Topic, Writes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


SPEC = Spec(
    "publish",
    reads=(Reads(Table.ACTIVITY_CHANGES, progress=Topic(PROGRESS_ROLE)),),
    writes=(Writes(Topic(VIEW_ROLE), key=("customer_id",)), Writes(Topic(PROGRESS_ROLE)), Writes(Table.QUARANTINE)),
    promises="exactly once for read_committed consumers: a batch and its progress marker in one transaction",
    is_gated=True,
)


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
    """Make sure that gold has the versions that the marker tells of, and that they are still the same commits.

    Raises:
        TerminalError: it has not: gold was restored to an earlier state, and perhaps has grown again.
    """
    table = Table.ACTIVITY_CHANGES
    newest = deltalog.newest_version(settings.lake, table)
    begun = [(marker.version + 1, marker.begun)] if marker.rows else []
    for version, commit in [(marker.version, marker.commit), *begun]:
        found = deltalog.entry(settings.lake, table, version) if commit else None
        if version <= newest and (found is None or found.commit == commit):
            continue
        what = "is another commit by now" if version <= newest else f"is not there (the newest is {newest})"
        raise TerminalError(
            f"{table.label} was restored to an earlier state: its version {version}, up to which it is on topic "
            f"{settings.view_topic}, {what}",
            remedy="put the newer one back; or go on with this one: `activity resync publish --reason …` makes the "
            "topic say what it says",
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


def step(
    feed: Feed,
    batch: MicroBatch,
    *,
    settings: Settings,
    publisher: Publisher,
    table_id: str,
    corrections: Corrections = NONE,
) -> Steps:
    """Publish one batch with its marker, part by part; a batch that changes nothing sends nothing.

    Args:
        feed: what it has of gold's changes.
        batch: whose it is.
        settings: which lake, which topic.
        publisher: knows the marker.
        table_id: gold's.
        corrections: of gold, since the marker.
    """
    known = publisher.marker
    begin = known if known is not None and known.table_id == table_id else Marker(table_id, BEFORE_THE_FIRST)
    begins_before = feed.versions[Table.ACTIVITY_CHANGES][0] < corrections.upto
    on_topic = publisher.on_topic() if begins_before else None
    rows_read = reading.standing(reading.rows(feed, COLUMNS), corrections)
    for part in parts.parts(rows_read, begin, records=parts.PART_RECORDS, size=parts.PART_BYTES):
        with batch.phase("compute"):
            rows = net_changes(part.rows)
            if on_topic is not None:
                rows = unlike(rows, on_topic)
            too_large = oversized(rows, publisher.max_bytes)
        if too_large:
            # Before the transaction: once its marker is out, these rows are not looked at again.
            found = held_back(rows.take(list(too_large)), settings.view_topic)
            yield from keep(settings.lake, batch, Table.ACTIVITY_CHANGES, table_id, found, publisher.max_bytes)
            rows = rows.filter(pa.array([number not in too_large for number in range(rows.num_rows)], pa.bool_()))
        # The marker says that those in quarantine are done with, too.
        if rows.num_rows or too_large:
            going = traced(rows, publisher.max_bytes)
            if on_topic is not None:
                going = iter(held := list(going))
                on_topic |= {key: value for key, value, *_ in held}
            yield Send(halfway(going, rows.num_rows, batch), reading.named(feed, part.marker), rows.column("as_of"))
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
    except ForeignCommit as error:
        raise ForeignCommit(error.what, remedy=f"{error.remedy}; then `activity resync publish --reason …`") from error


def held_back(rows: pa.Table, topic: str) -> Iterator[TooLarge]:
    """Return rows as records that the topic does not take."""
    places = zip(rows.column(VERSION).to_pylist(), rows.column(ROW).to_pylist(), records(rows), strict=True)
    for version, row, (key, value) in places:
        yield TooLarge(position(version, row + 1), topic, key, value or b"")


def halfway(items: Iterable[Traced], count: int, batch: MicroBatch) -> Iterator[Traced]:
    """Yield records, and come to a place where a drill may end the batch when half of them are through."""
    for number, item in enumerate(items):
        if number == count // 2:
            batch.failpoint(FailPoint.SENDING)
        yield item


def worker(context: Context, publisher: Publisher) -> Callable[[DataFrame, MicroBatch], None]:
    """Return what does a batch, by a publisher that has read the marker."""
    lake = context.settings.lake
    table_id = context.ids[Table.ACTIVITY_CHANGES]
    writer = Writer(SPEC, context.spark, lake, publisher)
    marker = publisher.marker
    known = marker.version if marker is not None and marker.table_id == table_id else BEFORE_THE_FIRST
    # Versions without a row that counts move no marker, and maintenance goes by what the checkpoint has behind it.
    progress = checkpoint.progress(lake, SPEC.name)
    since = known if progress is None else max(known, progress.table_versions.get(table_id, known))
    with resync_mends():  # nobody corrects gold while this stream runs
        corrections = reading.corrections(lake, since)

    def work(_changes: DataFrame, batch: MicroBatch) -> None:
        with batch.phase("read"), resync_mends():
            feed = feeds.read(lake, {Table.ACTIVITY_CHANGES: COLUMNS}, batch.versions, even_retracted=True)
            batch.tally.read[Table.ACTIVITY_CHANGES.label] += sum(file.rows for file in feed.files)
        steps = step(
            feed,
            batch,
            settings=context.settings,
            publisher=publisher,
            table_id=table_id,
            corrections=corrections,
        )
        writer.make_all(steps, batch)

    return work


class Publish:
    """The stream, as the registry lists it."""

    spec = SPEC

    def open(self, context: Context) -> Opened:
        """Open it for a driver: fence the publisher before this one, and read the marker."""
        table_id = context.ids[Table.ACTIVITY_CHANGES]
        publisher = context.resources.enter_context(Publisher(context.settings, [table_id]))
        first = begins(context.settings, publisher)
        source = partial(changes_of, context, first)
        return Opened(SPEC, source, worker(context, publisher), first)

    def resync(self, settings: Settings, reason: str) -> Resynced:
        """Make the view topic say what gold says; see `resync.py`."""
        return resync(settings, reason)


STREAM = Publish()
