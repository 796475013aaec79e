"""Make topics say what a table says, from the table as it is: only what differs is sent.

For a publisher of a table that cannot go on from where it was: its change feed is gone, or its topic was damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from customer_activity.checkpoints import checkpoint
from customer_activity.engine import gate
from customer_activity.engine.stream import Record, Resynced
from customer_activity.kafka import settled
from customer_activity.kafka.marker import Marker
from customer_activity.lake import audit, delta, deltalog
from customer_activity.lease import lease
from customer_activity.settings import Settings
from customer_activity.streams.publish import changed
from customer_activity.streams.publish.resync import send
from customer_activity.streams.publish.transaction import Publisher

if TYPE_CHECKING:
    from customer_activity.streams.publish.published import Published


def resynced(stream: Published, settings: Settings, reason: str) -> Resynced:
    """Send what differs, then a marker at the table's newest version; the stream goes on after that.

    It can be interrupted, and run again: what is out by then does not differ any more. It takes over from any former
    publisher.

    Raises:
        SettingsError: there is no lake.
        QueryAlreadyRunning: the stream runs.
        PublishingHeld: quality holds publishing.
        TransientError: Kafka does not answer, or aborted a transaction.
    """
    lake, query = settings.lake, stream.spec.name
    delta.require_tables(lake)
    with lease.kept_out(lake, [query]):
        if rules := gate.holding(lake):
            raise gate.held(rules)
        version = deltalog.newest_version(lake, stream.table)
        with Publisher(settings, outlet=stream.outlet(settings)) as publisher:  # nobody else publishes from here on
            going, unchanged, too_large = compared(stream, settings, publisher, version)
            commit = deltalog.position(lake, stream.table, "", version).commit
            marker = Marker(delta.table_id(lake, stream.table), version, commit=commit)
            send(publisher, going, marker)
        now = datetime.now(UTC)
        aside = checkpoint.set_aside(lake, query, now)
        deletes = sum(value is None for _, value, *_ in going)
        done = Resynced(len(going) - deletes, deletes, unchanged, too_large)
        audit.append(lake, now, "resync", query, reason, **done._asdict(), set_aside=aside)
    return done


def compared(
    stream: Published, settings: Settings, publisher: Publisher, version: int
) -> tuple[list[Record], int, int]:
    """Return the records to send, and how many are right, and too large, at a version of the table.

    On a topic whose records stand by themselves those that are missing are sent, and none is taken back.
    """
    topics = publisher.outlet.topics
    on_topic = {topic: {} if stream.is_log else publisher.on_topic(topic) for topic in topics}
    logged = {(*record, topic) for topic in topics if stream.is_log for record in settled.records(settings, topic)}
    going: list[Record] = []
    unchanged = too_large = 0
    for key, value, topic in wanted(stream, settings, publisher, version):
        known = on_topic[topic].pop(key, None)
        if known == value or (key, value, topic) in logged:
            unchanged += 1
        elif value is not None and len(key) + len(value) > publisher.max_bytes:
            too_large += 1
        else:
            going.append((key, value, topic))
    for topic, left in on_topic.items():
        going += [(key, None, topic) for key, value in left.items() if value is not None]
    return going, unchanged, too_large


def wanted(
    stream: Published, settings: Settings, publisher: Publisher, version: int
) -> Iterator[tuple[bytes, bytes | None, str]]:
    """Yield all records that a table's rows make at a version."""
    first = publisher.outlet.topics[0]
    for rows in changed.snapshot(settings.lake, stream.table, version):
        for _, (key, value, *topic) in stream.records(rows, settings):
            yield key, value, topic[0] if topic else first
