"""Whether Kafka still has the records that landed last, and no others at their offsets: a log may be truncated.

A log that was restored from a backup, or truncated by an unclean leader election, ends before what has landed, and
gives the offsets after that to new records. Once it has grown past the checkpoint's position nothing else tells: the
topic and its id are the same, and the new records at offsets that the lake has already would never land.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from functools import reduce
from operator import or_
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TopicPartition
from deltalake import DeltaTable

from customer_activity.catalog import Table, table_path
from customer_activity.kafka import clients
from customer_activity.settings import Settings

LOOKED_BACK = 1_000  # offsets before a position among which records are looked for: not each offset has one
COMPARED = 5  # records of a partition: compaction may have taken the last one, or new records have a transaction's mark
COLUMNS = ["topic", "partition", "offset", "kafka_timestamp", "key"]

Place = tuple[int, int]  # partition and offset
Positions = Mapping[int, int]  # the next offset to read, by partition


class Known(NamedTuple):
    """What tells a record from another one at its offset; None where the lake does not have it."""

    millis: int | None  # Kafka's time
    key: bytes | None

    def is_unlike(self, other: Known) -> bool:
        """Whether both are known and differ."""
        return any(mine is not None and mine != its for mine, its in zip(self, other, strict=True))


def unlike(
    settings: Settings, tables: Iterable[Table], topic: str, positions: Positions, begins: Mapping[int, int]
) -> Place | None:
    """Return the first place where Kafka has another record than the one that landed; None: what it has is the same.

    Args:
        settings: which lake, which broker.
        tables: where the topic's records landed, the refused ones among them.
        topic: which one.
        positions: up to where each partition was read.
        begins: the first offset that Kafka still has of each of them.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    known = _landed_last(settings.lake, tables, topic, positions)
    wanted = {place: record for place, record in known.items() if place[1] >= begins.get(place[0], 0)}
    if not wanted:
        return None
    found = in_kafka(settings, topic, wanted)
    return next((place for place in sorted(found) if wanted[place].is_unlike(found[place])), None)


def in_kafka(settings: Settings, topic: str, places: Iterable[Place]) -> dict[Place, Known]:
    """Return the records that Kafka has at some places; it need not have one at each.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    offsets: dict[int, list[int]] = {}
    for partition, offset in places:
        offsets.setdefault(partition, []).append(offset)
    found: dict[Place, Known] = {}
    with closing(clients.reader(settings, fetch_wait_max_ms=clients.END_WAIT_MS)) as consumer:
        clients.find_leaders(consumer, settings, [topic])
        for partition, of_partition in offsets.items():
            last = max(of_partition)
            for message in clients.messages(consumer, settings, TopicPartition(topic, partition, min(of_partition))):
                offset = message.offset() or 0
                if offset in of_partition:
                    found[partition, offset] = Known(message.timestamp()[1], message.key())
                if offset >= last:
                    break
    return found


def _landed_last(lake: str, tables: Iterable[Table], topic: str, positions: Positions) -> dict[Place, Known]:
    """Return the newest records of each partition that landed; a batch that is read again may have landed already."""
    near = [
        (pc.field("partition") == partition) & (pc.field("offset") >= position - LOOKED_BACK)
        for partition, position in positions.items()
    ]
    if not near:
        return {}
    known: dict[Place, Known] = {}
    for table in tables:
        rows = (
            DeltaTable(table_path(lake, table)).to_pyarrow_dataset().to_table(columns=COLUMNS, filter=reduce(or_, near))
        )
        # A replay's merge leaves texts as views, which Arrow compares with no text.
        rows = rows.filter(pc.equal(rows.column("topic").cast(pa.string()), topic))
        millis = pc.divide(rows.column("kafka_timestamp").cast(pa.int64()), 1_000)
        rows = rows.set_column(COLUMNS.index("kafka_timestamp"), "kafka_timestamp", millis)
        for partition in positions:
            of_partition = rows.filter(pc.equal(rows.column("partition"), partition))
            for row in of_partition.sort_by([("offset", "descending")]).slice(0, COMPARED).to_pylist():
                known[partition, row["offset"]] = Known(row["kafka_timestamp"], row["key"])
    return known
