"""What Kafka says: what the input topics have that did not land, and what the view topic has."""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from customer_activity import topology
from customer_activity.catalog import table_path
from customer_activity.checkpoints import checkpoint
from customer_activity.contracts import CUSTOMER_ACTIVITY, LATEST_MILLIS, Kind, decoder
from customer_activity.contracts.columns import ACTIVITY_FIELDS
from customer_activity.errors import TransientError
from customer_activity.kafka import clients
from customer_activity.kafka.marker import BEFORE_THE_FIRST, Marker, identity, parse
from customer_activity.quality.snapshot import Relations
from customer_activity.settings import Settings
from customer_activity.verification import kafka_input

MILLIS = pa.timestamp("ms", tz="UTC")
TOGETHER_OFFSETS = 10_000  # gaps that are no further apart are read in one go

GAPS = """
WITH held AS (
    SELECT topic, partition, "offset", lead("offset") OVER (PARTITION BY topic, partition ORDER BY "offset") AS follower
    FROM (SELECT DISTINCT topic, partition, "offset" FROM bronze.landed) SEMI JOIN incomplete USING (topic, partition)
)
SELECT topic, partition, greatest("offset" + 1, lowest) AS first, follower - 1 AS last
FROM held JOIN incomplete USING (topic, partition) WHERE follower > greatest("offset" + 1, lowest)
UNION ALL
SELECT topic, partition, lowest, coalesce(least_held, landed_to) - 1 FROM incomplete
WHERE coalesce(least_held, landed_to) > lowest
UNION ALL
SELECT topic, partition, greatest(most_held + 1, lowest), landed_to - 1 FROM incomplete
WHERE landed_to > greatest(most_held + 1, lowest)
"""
INCOMPLETE = """
CREATE OR REPLACE TEMP TABLE incomplete AS
WITH held AS (
    SELECT topic, partition, count(DISTINCT "offset") AS records,
           min("offset") AS least_held, max("offset") AS most_held
    FROM bronze.landed GROUP BY ALL
)
SELECT offsets.topic, offsets.partition, offsets.lowest, offsets.landed_to, least_held, most_held
FROM topic.offsets AS offsets LEFT JOIN held USING (topic, partition)
WHERE offsets.landed_to > offsets.lowest
  AND coalesce(records < most_held - least_held + 1 OR least_held > offsets.lowest OR most_held < landed_to - 1, true)
"""


TIMES = [field.column for field in CUSTOMER_ACTIVITY.fields if field.is_timestamp]
NUMBERS = {  # as publish writes them: with all of their decimals
    field.column: re.compile(
        rf"-?[0-9]{{1,{field.precision - field.scale}}}\.[0-9]{{{field.scale}}}{'|null' * field.nullable}".encode()
    )
    for field in CUSTOMER_ACTIVITY.fields
    if field.kind is Kind.NUMBER
}
VIEW_SCHEMA = pa.schema(
    [
        *(pa.field(column.name, MILLIS if column.name in TIMES else column.type) for column in ACTIVITY_FIELDS),
        pa.field("is_deleted", pa.bool_()),
        pa.field("is_readable", pa.bool_()),
    ]
)


class View(NamedTuple):
    """The view topic at one moment.

    Attributes:
        values: the last value of each key; null deletes it.
        marker: how far gold was out before the values were read: at least so far they are.
        asked_us: when that was, in microseconds since 1970.
    """

    values: Mapping[bytes, bytes | None]
    marker: Marker | None
    asked_us: int


def read_view(settings: Settings) -> View:
    """Read the view topic; do so before the tables are pinned, which have then whatever it has.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        TopicMismatch: there is no such topic.
    """
    asked_us = time.time_ns() // 1_000  # a large view takes minutes to read, and gold goes on meanwhile
    key = identity(settings).encode()
    marker = parse(clients.last_values(settings, settings.progress_topic).get(key))
    marker = None if marker is None else _further(settings.lake, marker)
    return View(clients.last_values(settings, settings.view_topic), marker, asked_us)


def _further(lake: str, marker: Marker) -> Marker:
    """Return a marker at the version that publish has read: those without a row to send move none, and may be gone."""
    progress = checkpoint.progress(lake, topology.publishing().name)
    read = -1 if progress is None else progress.table_versions.get(marker.table_id, -1)
    return marker._replace(version=read, rows=0) if read > marker.version else marker


def view_relations(view: View, lake: str) -> Relations:
    """Return `topic.view`, and `topic.published`: up to which view version all was out, and when that was asked."""
    said = {"view_version": [_published(view.marker, lake)], "asked_us": [view.asked_us]}
    published = pa.table(said, pa.schema([(name, pa.int64()) for name in said]))
    return {"topic.view": _rows(view.values), "topic.published": published}


def _rows(values: Mapping[bytes, bytes | None]) -> pa.Table:
    rows = []
    for key, value in values.items():
        customer = key.decode(errors="replace")
        row = {} if value is None else _record(customer, value)
        state = {"customer_id": customer, "is_deleted": value is None, "is_readable": value is None or bool(row)}
        rows.append(row | state)
    return pa.Table.from_pylist(rows, VIEW_SCHEMA)


def _record(customer: str, value: bytes) -> dict[str, Any]:
    """Return a customer's value as gold's columns; empty for one that is not as the contract has it."""
    try:
        row = msgspec.structs.asdict(decoder(CUSTOMER_ACTIVITY).decode(value))
    except (msgspec.DecodeError, RecursionError):  # the latter: it is nested too deeply
        return {}
    numbers = [written.fullmatch(row[column]) for column, written in NUMBERS.items()]
    times = (abs(row[column] or 0) <= LATEST_MILLIS for column in TIMES)
    if row["customer_id"] != customer or not all(numbers) or not all(times):
        return {}
    return row | {column: msgspec.json.decode(row[column], type=Decimal | None) for column in NUMBERS}


def _published(marker: Marker | None, lake: str) -> int:
    """Return gold's greatest view version at the version that the marker names; 0 where nothing is out."""
    if marker is None or marker.version == BEFORE_THE_FIRST:
        return 0
    (table,) = topology.publishing().sources
    if str(DeltaTable(table_path(lake, table)).metadata().id) != marker.table_id:
        return 0
    try:
        changes = DeltaTable(table_path(lake, table), version=marker.version)
    except DeltaError as error:
        raise TransientError(
            f"{table.label}: version {marker.version}, which is on the topic, is not in the log",
            remedy="judge again after the next batch; if it stays, the lake is stale: older than the topic",
        ) from error
    column = changes.to_pyarrow_dataset().to_table(columns=["view_version"])["view_version"]
    return pc.max(column).as_py() or 0


def offsets(settings: Settings, landed: Mapping[str, Mapping[int, int]]) -> Relations:
    """Return `topic.offsets`: what the input topics have, and up to where bronze has read.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        TopicMismatch: there is no such topic.
    """
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "lowest": low,
            "highest": high,
            "landed_to": min(high, landed.get(topic, {}).get(partition, low)),
        }
        for topic in (settings.topics[role] for stream in topology.landings() for role in stream.topics)
        for partition, (low, high) in clients.offset_range(settings, topic).items()
    ]
    numbers = [(name, pa.int64()) for name in ("lowest", "highest", "landed_to")]
    schema = pa.schema([("topic", pa.string()), ("partition", pa.int32()), *numbers])
    return {"topic.offsets": pa.Table.from_pylist(rows, schema)}


def unlanded(settings: Settings, database: duckdb.DuckDBPyConnection) -> Relations:
    """Return `topic.unlanded`: committed records in the range that bronze has read, and not in bronze.

    Offsets may be missing for good reasons (compaction, a transaction's markers), so Kafka is asked about each gap.

    Raises:
        BrokerUnavailable: Kafka does not answer any more.
        TransientError: retention removed records meanwhile.
    """
    database.execute(INCOMPLETE)
    gaps: dict[tuple[str, int], list[range]] = defaultdict(list)
    for topic, partition, first, last in database.execute(GAPS).fetchall():
        gaps[topic, partition].append(range(first, last + 1))
    found = [
        {"topic": topic, "partition": partition, "offset": offset, "kafka_timestamp": at}
        for (topic, partition), holes in gaps.items()
        for offset, at in _records_in(settings, topic, partition, holes)
    ]
    schema = [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())]
    columns = pa.schema([*schema, ("kafka_timestamp", pa.timestamp("us", tz="UTC"))])
    return {"topic.unlanded": pa.Table.from_pylist(found, columns)}


def _records_in(
    settings: Settings, topic: str, partition: int, gaps: Iterable[range]
) -> Iterator[tuple[int, datetime | None]]:
    """Yield offset and time of the committed records in some gaps of a partition; None for one that no table holds."""
    for together in _joined(sorted(gaps, key=lambda gap: gap.start)):
        start, end = {partition: together[0].start}, {partition: together[-1].stop}
        starts = [gap.start for gap in together]
        for record in kafka_input.read(settings, topic, start, end):
            if record.offset in together[bisect_right(starts, record.offset) - 1]:
                millis = record.timestamp
                yield record.offset, None if millis is None else datetime.fromtimestamp(millis / 1000, UTC)


def _joined(gaps: Iterable[range]) -> Iterator[list[range]]:
    """Put gaps that are near each other together."""
    together: list[range] = []
    for gap in gaps:
        if together and gap.start - together[-1].stop > TOGETHER_OFFSETS:
            yield together
            together = []
        together.append(gap)
    if together:
        yield together
