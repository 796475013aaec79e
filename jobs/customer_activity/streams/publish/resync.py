"""Make the view topic say what gold says, from the tables as they are: only what differs is sent.

For a publisher that cannot go on from where it was: files of its change feed are gone, the topic was damaged, or rows
wait in quarantine for a limit that has been raised since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyarrow import dataset

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.checkpoints import checkpoint
from customer_activity.contracts.tables import arrow_schema
from customer_activity.contracts.view import version_of
from customer_activity.engine import gate, stream
from customer_activity.engine.stream import Resynced, Traced
from customer_activity.errors import TerminalError
from customer_activity.kafka.marker import BEFORE_THE_FIRST, Marker
from customer_activity.lake import audit, delta, deltalog
from customer_activity.lake.datafiles import in_parts
from customer_activity.lease import lease
from customer_activity.settings import Settings
from customer_activity.storage.filesystem import filesystem
from customer_activity.streams.publish.parts import PART_BYTES, PART_RECORDS
from customer_activity.streams.publish.records import COLUMNS, oversized, traced
from customer_activity.streams.publish.too_large import TooLarge, keep_new
from customer_activity.streams.publish.transaction import Publisher

ROWS_AT_A_TIME = 10_000
KEY_ROWS = 1_000_000  # of which the newest of each customer are found at a time
READ_AHEAD = {"batch_readahead": 2, "fragment_readahead": 2}
REPAIRED_BY_SENDING = (
    "across/view",
)  # suites of rules about the topic itself: sending what differs is what they ask for


class Found(NamedTuple):
    """What a look at gold and the topic has found.

    Attributes:
        going: records to send.
        unchanged: rows that are right.
        too_large: how many rows the topic does not take.
        held: the records of those that it does not have.
    """

    going: list[Traced]
    unchanged: int
    too_large: int
    held: list[TooLarge]


def resync(settings: Settings, reason: str) -> Resynced:
    """Send what differs, with a marker at gold's newest version with the last of it; publish goes on after that.

    It can be interrupted, and has to be run again then: what is out does not differ any more. It takes over from any
    former publisher.

    Raises:
        SettingsError: there is no lake.
        QueryAlreadyRunning: publish runs.
        PublishingHeld: quality holds publishing, and not for what the topic has.
        TerminalError: the topic has newer versions than the lake: the lake was restored to an earlier state.
        TransientError: Kafka does not answer, or aborted a transaction.
    """
    lake, query = settings.lake, topology.publishing().name
    delta.require_tables(lake)
    with lease.kept_out(lake, [query]) as held:
        gate.require_open(lake, but_for=REPAIRED_BY_SENDING)
        return _resync(settings, query, reason, held.fencing_epoch)


def _resync(settings: Settings, query: str, reason: str, fencing_epoch: Callable[[str], int]) -> Resynced:
    lake = settings.lake
    log = DeltaTable(table_path(lake, Table.ACTIVITY_CHANGES))
    with Publisher(settings) as publisher:  # from here on nobody else publishes
        found = compared(current_rows(lake, log), publisher.on_topic(), publisher.max_bytes, settings.view_topic)
        keep_new(lake, query, fencing_epoch, found.held, publisher.max_bytes)  # before the marker passes them over
        table_id, version = str(log.metadata().id), log.version()
        commit = deltalog.position(lake, Table.ACTIVITY_CHANGES, table_id, version).commit
        send(publisher, found.going, Marker(table_id, version, commit=commit))
    now = datetime.now(UTC)
    aside = checkpoint.set_aside(lake, query, now)
    deletes = sum(value is None for _, value, *_ in found.going)
    done = Resynced(len(found.going) - deletes, deletes, found.unchanged, found.too_large)
    audit.append(lake, now, "resync", query, reason, **done._asdict(), set_aside=aside)
    return done


def send(
    publisher: Publisher,
    going: Sequence[stream.Record | Traced],
    marker: Marker,
    *,
    most_records: int = PART_RECORDS,
    most_bytes: int = PART_BYTES,
) -> None:
    """Send records in transactions of a bounded size.

    Until the last of them the marker stays where it was, and says that this is under way, and in which lake: who went
    on from there would send rows twice, and older ones after newer.
    """
    former = publisher.marker or Marker(marker.table_id, BEFORE_THE_FIRST)
    under_way = former._replace(table_id=marker.table_id, is_resyncing=True)
    begin, size = 0, 0
    for number, (key, value, *_) in enumerate(going):
        bytes_of_it = len(key) + len(value or b"")
        if number > begin and (number - begin == most_records or size + bytes_of_it > most_bytes):
            publisher.publish(going[begin:number], under_way)
            begin, size = number, 0
        size += bytes_of_it
    publisher.publish(going[begin:], marker)


def current_rows(lake: str, log: DeltaTable) -> Iterator[pa.Table]:
    """Yield the newest change of every customer that is not gone, some thousands at a time.

    Who is in gold, and where, is in memory at once; the rows are not.
    """
    changes = _opened(lake, log)
    wanted = np.sort(np.asarray(_newest(changes), np.int64))
    first = 0
    for batch in changes.to_batches(batch_size=ROWS_AT_A_TIME, columns=list(COLUMNS), **READ_AHEAD):
        begin, end = np.searchsorted(wanted, [first, first + batch.num_rows])
        if begin < end:
            yield pa.Table.from_batches([batch]).take(pa.array(wanted[begin:end] - first))
        first += batch.num_rows


def _newest(changes: dataset.Dataset) -> pa.ChunkedArray:
    """Return the numbers of the rows that are their customer's newest, where it is not gone."""
    columns = ["customer_id", "view_version", "is_gone"]
    newest = changes.schema.empty_table().select(columns).append_column("number", pa.array([], pa.int64()))
    first = 0
    for part in in_parts(changes.to_batches(columns=columns, **READ_AHEAD), KEY_ROWS):
        numbers = pa.array(np.arange(first, first + part.num_rows))
        both = pa.concat_tables([newest, part.append_column("number", numbers)])
        both = both.take(
            pc.sort_indices(both, [("view_version", "ascending", "at_start")])
        )  # null: damaged, none's newest
        last = [(name, "last") for name in newest.column_names[1:]]
        newest = both.group_by("customer_id", use_threads=False).aggregate(last).rename_columns(newest.column_names)
        first += part.num_rows
    return newest.filter(pc.invert(newest.column("is_gone"))).column("number")


def _opened(lake: str, log: DeltaTable) -> dataset.Dataset:
    """Return gold's changes; a scan of them has its rows in the same order each time."""
    files, folder = filesystem(table_path(lake, Table.ACTIVITY_CHANGES))
    paths = [f"{folder}/{path}" for path in pa.table(log.get_add_actions()).column("path").to_pylist()]
    schema = arrow_schema(Table.ACTIVITY_CHANGES)
    if not paths:
        return dataset.dataset(schema.empty_table())
    return dataset.dataset(paths, schema=schema, filesystem=files, format="parquet")


def compared(gold: Iterable[pa.Table], on_topic: dict[bytes, bytes | None], max_bytes: int, topic: str) -> Found:
    """Compare gold's rows with the topic; what the topic has is used up on the way.

    Raises:
        TerminalError: the topic has a newer version of a row.
    """
    going: list[Traced] = []
    unchanged = 0
    large: set[bytes] = set()
    held: list[TooLarge] = []
    for rows in gold:
        too_large = oversized(rows, max_bytes)
        large |= {key for key, _ in too_large.values()}
        held += [TooLarge(0, topic, *record) for record in too_large.values() if on_topic.get(record[0]) != record[1]]
        keep = pa.array([number not in too_large for number in range(rows.num_rows)], pa.bool_())
        for record in traced(rows.filter(keep), max_bytes):
            known = on_topic.pop(record.key, None)
            if known == record.value:
                unchanged += 1
                continue
            _refuse_newer(record.key, known, record.value)
            going.append(record)
    going += [Traced(key, None, ()) for key, known in on_topic.items() if known is not None and key not in large]
    return Found(going, unchanged, len(large), held)


def _refuse_newer(key: bytes, known: bytes | None, value: bytes | None) -> None:
    if known is not None and value is not None and version_of(known) > version_of(value):
        raise TerminalError(
            f"the view topic has newer rows than the lake (of customer {key.decode()}, for one)",
            remedy="where the lake is of an earlier time, let it read on to where it was, or give it another topic; "
            "where it has read everything, `activity rebuild --apply` gives its rows a version that is newer still",
        )
