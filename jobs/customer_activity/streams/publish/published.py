"""The contract of a stream that publishes a table to topics of its own, exactly once.

Reads      a table's change feed, after a snapshot of it where nothing is out yet
Writes     bronze.quarantine (append: rows larger than a topic takes), of records that stand by themselves the outdated
           ones (append; `outdated.py`), then Kafka: records with the progress marker, in one transaction a version of
           the table, or a part of a large one
Grain      what `records` makes of the rows that a version changed
On restart what the marker covers is out already and is left out

It is the view's publisher once more (`transaction.py`), with an identity of its own: the stream's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from customer_activity.catalog import Table
from customer_activity.engine.changes import changes_of
from customer_activity.engine.stream import Context, Opened, Record, Resynced, Send, Steps, Writer
from customer_activity.errors import TerminalError
from customer_activity.kafka.marker import BEFORE_THE_FIRST, Marker
from customer_activity.lake import delta, deltalog
from customer_activity.lake.failpoints import FailPoint
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.settings import Settings
from customer_activity.streams.publish import changed, outdated, parts
from customer_activity.streams.publish.changed import Changed
from customer_activity.streams.publish.publication import Publication
from customer_activity.streams.publish.resyncing import resynced
from customer_activity.streams.publish.too_large import TooLarge, keep, position
from customer_activity.streams.publish.transaction import Publisher

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Published(Publication):
    """A stream that publishes a table."""

    def open(self, context: Context) -> Opened:
        """Open it for a driver: fence the publisher before this one, and read the marker.

        Raises:
            TerminalError: the table has not, or not any more, what the marker names.
        """
        settings, table = context.settings, self.table
        table_id = context.ids[table]
        publisher = context.resources.enter_context(Publisher(settings, [table_id], outlet=self.outlet(settings)))
        refuse_moved(self.spec.name, publisher.outlet.topics, publisher.marker)
        refuse_earlier(settings, self.spec.name, table, publisher.marker)
        first = delta.begins(settings.lake, [table])
        source = partial(changes_of, context, first)
        writer = Writer(self.spec, context.spark, settings.lake, publisher)

        def work(_changes: DataFrame, batch: MicroBatch) -> None:
            after, upto = batch.versions[table]
            writer.make_all(self.step(batch, publisher, settings, table_id, after, upto), batch)

        return Opened(self.spec, source, work, first)

    def step(
        self, batch: MicroBatch, publisher: Publisher, settings: Settings, table_id: str, after: int, upto: int
    ) -> Steps:
        """Publish what the table's versions changed, from behind the marker up to one, a transaction each.

        Args:
            batch: whose it is.
            publisher: knows the marker.
            settings: which lake, which topics.
            table_id: the table's.
            after: the version up to which batches before this one have published.
            upto: the newest version.
        """
        begin = publisher.marker or Marker(table_id, BEFORE_THE_FIRST)
        if begin.version == BEFORE_THE_FIRST:
            at = begin.snapshot or upto
            yield from self._publish(
                changed.snapshot(settings.lake, self.table, at), batch, publisher, settings, begin, at
            )
            if publisher.marker is None or publisher.marker.version == BEFORE_THE_FIRST:
                # None of its last rows made a record. Without a marker each batch would read it again.
                yield Send([], Marker(table_id, at, commit=self._commit(settings, table_id, at)))
            begin = Marker(table_id, at)
        elif begin.version < after:  # versions without a row move no marker, and their log may be gone
            begin = Marker(table_id, after)
        for version in range(begin.version + 1, upto + 1):
            rows = changed.in_version(settings.lake, self.table, self.key, version)
            if self.outdated is not None:  # before the marker says that the version is through
                own = outdated.of_version(batch, version, self._commit(settings, table_id, version))
                yield from outdated.noting(settings.lake, self.outdated, self.key[0], rows, own)
            yield from self._publish([rows], batch, publisher, settings, begin, version)
            begin = Marker(table_id, version)
            batch.progress(f"{self.table.label} up to version {version:,} of {upto:,}")

    def _publish(
        self,
        found: Iterable[Changed],
        batch: MicroBatch,
        publisher: Publisher,
        settings: Settings,
        begin: Marker,
        version: int,
    ) -> Steps:
        """Publish the rows of a version, or of the snapshot at it, that are not out; in parts where they are many."""
        snapshot = version if begin.version == BEFORE_THE_FIRST else 0
        is_begun = begin.rows > 0  # then its end has to be told, whether the last rows make records or not
        for rows, upto, is_last in in_parts(found, begin.rows):
            batch.tally.read[self.table.label] += len(rows.is_gone)
            commit = self._commit(settings, begin.table_id, version)
            if is_last:
                marker = Marker(begin.table_id, version, commit=commit)
            else:
                marker = begin._replace(rows=upto, snapshot=snapshot, commit=commit)
            with batch.phase("compute"):
                going: list[Record] = []
                refused: list[TooLarge] = []
                for number, record in self._going(rows, settings):
                    key, value, *named = record
                    if value is not None and len(key) + len(value) > publisher.max_bytes:
                        place = position(version, upto - len(rows.is_gone) + number + 1)
                        topic = next(iter(named), publisher.outlet.topics[0])
                        refused.append(TooLarge(place, topic, key, value))
                    else:
                        going.append(record)
            if refused:
                # Before the transaction: once its marker is out, these rows are not looked at again.
                yield from keep(settings.lake, batch, self.table, begin.table_id, refused, publisher.max_bytes)
            if going or refused or (is_begun and is_last):
                yield Send(halfway(going, batch), marker)
                is_begun = True

    def _going(self, rows: Changed, settings: Settings) -> Iterator[tuple[int, Record]]:
        """Yield the records of some rows, but for those that were sent before and have come again."""
        found = self.records(rows, settings)
        if self.outdated is None or not len(rows.is_gone):
            yield from found
            return
        is_sent = outdated.are_kept(settings.lake, self.outdated, self.key[0], rows.rows).to_pylist()
        yield from ((number, record) for number, record in found if not is_sent[number])

    def _commit(self, settings: Settings, table_id: str, version: int) -> str:
        return deltalog.position(settings.lake, self.table, table_id, version).commit

    def resync(self, settings: Settings, reason: str) -> Resynced:
        """Make the topics say what the table says; see `resyncing.py`."""
        return resynced(self, settings, reason)


def halfway(records: Sequence[Record], batch: MicroBatch) -> Iterator[Record]:
    """Yield records, and come to a place where a drill may end the batch when half of them are through."""
    for number, record in enumerate(records):
        if number == len(records) // 2:
            batch.failpoint(FailPoint.SENDING)
        yield record


def in_parts(found: Iterable[Changed], done: int) -> Iterator[tuple[Changed, int, bool]]:
    """Cut rows into what one transaction holds.

    Args:
        found: the rows.
        done: how many of the first are out: they are left out.

    Yields:
        The rows of a part, how many are out with it, and whether it is the last one.
    """
    number, held = 0, None
    for part in (part for rows in found for part in fitting(rows)):
        start, number = number, number + len(part.is_gone)
        if number <= done:
            continue
        if held is not None:
            yield *held, False
        held = part.slice(max(0, done - start)), number
    if held is not None:
        yield *held, True


def fitting(rows: Changed) -> Iterator[Changed]:
    """Halve rows until a part has no more of them, and of their bytes, than a transaction may have, or is one row."""
    count = len(rows.is_gone)
    if count > 1 and (count > parts.PART_RECORDS or rows.rows.nbytes > parts.PART_BYTES):
        yield from fitting(rows.slice(0, count // 2))
        yield from fitting(rows.slice(count // 2))
    elif count:
        yield rows


def refuse_moved(stream: str, topics: tuple[str, ...], marker: Marker | None) -> None:
    """Make sure that what a marker says is out is on the topics that are meant now.

    Raises:
        TerminalError: it is on others: on these only changes would be, without what was there before.
    """
    if marker is None or marker.topics in ((), topics):
        return
    raise TerminalError(
        f"{stream} has published to {', '.join(marker.topics)} so far, and is to publish to {', '.join(topics)}",
        remedy="name the former topics (ACTIVITY_WINDOW_TOPIC_PREFIX, ACTIVITY_ROUTE_TOPIC_PREFIX, "
        f"ACTIVITY_ALERT_TOPIC); or go on with these: `activity resync {stream} --reason …` sends all that they lack",
    )


def refuse_earlier(settings: Settings, stream: str, table: Table, marker: Marker | None) -> None:
    """Make sure that a table has the version that a marker names, and that it is still the same commit.

    Raises:
        TerminalError: it has not: the table was restored to an earlier state, and perhaps has grown again.
    """
    if marker is None:
        return
    version = marker.snapshot or marker.version + (marker.rows > 0)
    newest = deltalog.newest_version(settings.lake, table)
    found = deltalog.entry(settings.lake, table, version) if marker.commit else None
    if version <= newest and (found is None or found.commit == marker.commit):
        return
    what = "is another commit by now" if version <= newest else f"is not there (the newest is {newest})"
    raise TerminalError(
        f"{table.label} was restored to an earlier state: its version {version}, up to which {stream} has "
        f"published it, {what}",
        remedy=f"put the newer one back; or go on with this one: `activity resync {stream} --reason …` makes the topic "
        "say what it says",
    )
