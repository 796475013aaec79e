"""Make topics say what a table says, from the table as it is: only what differs is sent.

For a publisher of a table that cannot go on from where it was: its change feed is gone, or its topic was damaged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable

from customer_activity.catalog import Table, table_path
from customer_activity.checkpoints import checkpoint
from customer_activity.contracts import published
from customer_activity.engine import gate
from customer_activity.engine.stream import Record, Resynced
from customer_activity.kafka import settled
from customer_activity.kafka.marker import Marker
from customer_activity.lake import audit, delta, deltalog
from customer_activity.lake.named_operations import epochs_of
from customer_activity.lake.replacing import replace
from customer_activity.lease import lease
from customer_activity.settings import Settings
from customer_activity.streams.publish import changed, outdated
from customer_activity.streams.publish.publication import Publication
from customer_activity.streams.publish.resync import send
from customer_activity.streams.publish.too_large import TooLarge, keep_new
from customer_activity.streams.publish.transaction import Publisher


def resynced(stream: Publication, settings: Settings, reason: str) -> Resynced:
    """Send what differs, then a marker at the table's newest version; the stream goes on after that.

    It can be interrupted, and has to be run again then: what is out does not differ any more. It takes over from any
    former publisher.

    Raises:
        SettingsError: there is no lake.
        QueryAlreadyRunning: the stream runs.
        PublishingHeld: quality holds publishing.
        TransientError: Kafka does not answer, or aborted a transaction.
    """
    lake, query = settings.lake, stream.spec.name
    delta.require_tables(lake)
    if stream.outdated is not None and not DeltaTable.is_deltatable(table_path(lake, stream.outdated)):
        delta.create(lake, stream.outdated)  # a driver of this release has not run yet
    with lease.kept_out(lake, [query]) as held:
        if rules := gate.holding(lake):
            raise gate.held(rules)
        version = deltalog.newest_version(lake, stream.table)
        with Publisher(settings, outlet=stream.outlet(settings)) as publisher:  # nobody else publishes from here on
            if stream.outdated is None:
                found = compared(stream, settings, publisher, version)
            else:
                found = compared_once(stream, stream.outdated, settings, publisher, version)
                if found.outdated.num_rows:  # before the marker, behind which nobody looks for them
                    fence = CommitProperties(app_transactions=epochs_of(lake, stream.outdated, held.fencing_epoch))
                    replace(lake, stream.outdated, stream.key, (), found.outdated.to_batches(), fence)
            keep_new(lake, query, held.fencing_epoch, found.too_large, publisher.max_bytes)
            commit = deltalog.position(lake, stream.table, "", version).commit
            marker = Marker(delta.table_id(lake, stream.table), version, commit=commit)
            send(publisher, found.going, marker)
        now = datetime.now(UTC)
        aside = checkpoint.set_aside(lake, query, now)
        deletes = sum(value is None for _, value, *_ in found.going)
        done = Resynced(
            len(found.going) - deletes, deletes, found.unchanged, len(found.too_large), found.outdated.num_rows
        )
        audit.append(lake, now, "resync", query, reason, **done._asdict(), set_aside=aside)
    return done


class Compared(NamedTuple):
    """How topics differ from a version of a table.

    Attributes:
        going: the records to send.
        unchanged: how many are right.
        too_large: the records that a topic does not take.
        outdated: rows of records that stay though the table no longer has them so, and that are not noted.
    """

    going: list[Record]
    unchanged: int
    too_large: list[TooLarge]
    outdated: pa.Table = pa.table({})


def compared(stream: Publication, settings: Settings, publisher: Publisher, version: int) -> Compared:
    """Return what differs on topics where the last record of a key counts."""
    on_topic = {topic: publisher.on_topic(topic) for topic in publisher.outlet.topics}
    going: list[Record] = []
    too_large: list[TooLarge] = []
    unchanged = 0
    for key, value, topic in wanted(stream, settings, publisher, version):
        if published.says_the_same(on_topic[topic].pop(key, None), value):
            unchanged += 1
        elif value is not None and len(key) + len(value) > publisher.max_bytes:
            too_large.append(TooLarge(0, topic, key, value))
        else:
            going.append((key, value, topic))
    for topic, left in on_topic.items():
        going += [(key, None, topic) for key, value in left.items() if value is not None]
    return Compared(going, unchanged, too_large)


def compared_once(
    stream: Publication, table: Table, settings: Settings, publisher: Publisher, version: int
) -> Compared:
    """Return what differs on a topic whose records stand by themselves: none is sent twice, and none is taken back.

    One that is missing goes out as it was sent, where it was. One that is on the topic and not in the published table,
    or otherwise there, is outdated: it was sent when the changes were lost, or by a release that noted none.
    """
    (name,), schema = stream.key, outdated.fields(table)
    first = publisher.outlet.topics[0]
    sent = {_named(value, name, schema): value for _, value in settled.records(settings, first) if value is not None}
    noted = _by_name(outdated.kept(settings.lake, table, schema.names), name)
    going: list[Record] = []
    stale: list[bytes] = []
    too_large: list[TooLarge] = []
    unchanged = 0
    for key, present, topic in wanted(stream, settings, publisher, version):
        this = _named(present or b"", name, schema)
        value = noted.get(this, present)
        there = sent.pop(this, None)
        if there is not None:
            unchanged += 1
            stale += [there] * (there != value and this not in noted)
        elif value is not None and len(key) + len(value) > publisher.max_bytes:
            too_large.append(TooLarge(0, topic, key, value))
        else:
            going.append((key, value, topic))
    stale += [value for this, value in sent.items() if this not in noted]
    rows = [row for value in stale if (row := published.row(value, schema)) is not None]
    found = pa.concat_tables([schema.empty_table(), *rows])
    return Compared(going, unchanged, too_large, outdated.noted(table, found))


def _by_name(rows: pa.Table, name: str) -> dict[str, bytes]:
    """Return the values of rows, by the column that names them."""
    return dict(zip(rows.column(name).to_pylist(), published.values(rows), strict=True))


def _named(value: bytes, name: str, schema: pa.Schema) -> str:
    """Return what names a record; empty where it is none of ours."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):  # the second one: it is nested too deeply
        return ""
    return str(found.get(published.field_name(schema.field(name)), "")) if isinstance(found, dict) else ""


def wanted(
    stream: Publication, settings: Settings, publisher: Publisher, version: int
) -> Iterator[tuple[bytes, bytes | None, str]]:
    """Yield all records that a table's rows make at a version."""
    first = publisher.outlet.topics[0]
    for rows in changed.snapshot(settings.lake, stream.table, version):
        for _, (key, value, *topic) in stream.records(rows, settings):
            yield key, value, topic[0] if topic else first
