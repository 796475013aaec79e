"""Make the view topic say what gold says, from the tables as they are: only what differs is sent.

For a publisher that cannot go on from where it was: files of its change feed are gone, the topic was damaged, or rows
wait in quarantine for a limit that has been raised since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

from customer_activity import audit, checkpoints, delta, gate, kafka, lease
from customer_activity.catalog import Query, Table, table_path
from customer_activity.errors import TerminalError
from customer_activity.publish.stream import FIELDS, Record, net_changes, oversized, records, version_of
from customer_activity.publish.transaction import Marker, Publisher
from customer_activity.settings import Settings

MENDS = ("across/view",)  # suites of rules about the topic itself: sending what differs is what they ask for


class Resynced(NamedTuple):
    """What was sent.

    Attributes:
        rows: rows that the topic lacked or had otherwise.
        deletes: keys that the topic had and gold has not.
        unchanged: rows that were right.
        too_large: rows that the topic still does not take.
    """

    rows: int
    deletes: int
    unchanged: int
    too_large: int


def resync(settings: Settings, reason: str) -> Resynced:
    """Send what differs in one transaction, with a marker at gold's newest version; publish goes on after it.

    Raises:
        SettingsError: there is no lake.
        QueryAlreadyRunning: publish runs.
        PublishingHeld: quality holds publishing, and not for what the topic has.
        TerminalError: the topic has newer versions than the lake: the lake was put back to an earlier time.
        TransientError: Kafka does not answer, or aborted the transaction.
    """
    lake = settings.lake
    delta.require_tables(lake)
    with lease.kept_out(lake, [Query.PUBLISH]):
        gate.require_open(lake, but_for=MENDS)
        return _resync(settings, reason)


def _resync(settings: Settings, reason: str) -> Resynced:
    lake = settings.lake
    log = DeltaTable(table_path(lake, Table.ACTIVITY_CHANGES))
    rows = current_rows(log)
    with Publisher(settings) as publisher:  # from here on nobody else publishes
        on_topic = kafka.last_values(settings, settings.view_topic)
        too_large = oversized(rows, publisher.max_bytes)
        keep = pa.array([number not in too_large for number in range(rows.num_rows)], pa.bool_())
        wanted = dict(records(rows.filter(keep)))
        refused = {key for key, _ in too_large.values()}
        going = list(differences(wanted, on_topic, refused))
        publisher.publish(going, Marker(str(log.metadata().id), log.version()))
    now = datetime.now(UTC)
    aside = checkpoints.set_aside(lake, Query.PUBLISH, now)
    deletes = sum(value is None for _, value in going)
    sent = len(going) - deletes
    done = Resynced(sent, deletes, len(wanted) - sent, len(refused))
    audit.note(lake, now, "resync", Query.PUBLISH, reason, **done._asdict(), set_aside=aside)
    return done


def current_rows(log: DeltaTable) -> pa.Table:
    """Return the newest change of every customer that is not gone."""
    changes = pa.table(log.to_pyarrow_dataset().to_table(columns=[*FIELDS.values(), "is_gone"]))
    numbers = pa.array([0] * changes.num_rows, pa.int64())
    existed = pa.array([False] * changes.num_rows, pa.bool_())  # one that is gone needs no record of this
    return net_changes(changes.append_column("_commit_version", numbers).append_column("existed", existed), -1)


def differences(
    wanted: Mapping[bytes, bytes | None], on_topic: Mapping[bytes, bytes | None], held: set[bytes]
) -> Iterator[Record]:
    """Yield what has to be sent for the topic to have what is wanted; keys that are held stay as they are.

    Raises:
        TerminalError: the topic has a newer version of a row.
    """
    for key, value in wanted.items():
        known = on_topic.get(key)
        if known == value:
            continue
        if known is not None and value is not None and version_of(known) >= version_of(value):
            raise TerminalError(
                f"the view topic has newer rows than the lake (of customer {key.decode()}, for one)",
                remedy="the lake is of an earlier time: let it read on to where it was, or give it another topic",
            )
        yield key, value
    for key, known in on_topic.items():
        if known is not None and key not in wanted and key not in held:
            yield key, None
