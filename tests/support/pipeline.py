"""The pipeline on real Delta tables without Kafka: the product's own batch functions, fed record by record.

A hop's batch is cut as Structured Streaming cuts it: everything in the change feed since the hop's last batch.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.engine.stream import Context, Writer
from customer_activity.engine.workers import Here
from customer_activity.kafka.marker import Marker
from customer_activity.lake import delta, deltalog
from customer_activity.lake.failpoints import FailPoint, nowhere
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.lake.numbering import Numbering
from customer_activity.settings import Settings
from customer_activity.streams.bronze.bad_share import BadShareGuard
from customer_activity.streams.bronze.stream import Lands
from customer_activity.streams.publish import stream as publish
from customer_activity.streams.registry import ALL, STREAMS
from support.kafka_batches import KAFKA_SCHEMA
from support.records import Log, Record
from support.streams import Query

Work = Callable[[DataFrame, MicroBatch], None]

LANDING = {stream.spec.name: stream for stream in ALL if isinstance(stream, Lands)}
SOURCES = {stream.spec.name: stream.spec.sources for stream in ALL}  # of change feeds


def copied_lake(lake: Path, folder: Path, **settings: Any) -> Settings:
    """Copy a lake into a folder of one's own, as if it had been written just now; return settings of that.

    A lake that tests share may be hours old, and Spark reads no changes from before the retention, which is one hour.
    """
    shutil.copytree(lake, folder / "lake")
    written = {path: path.stat().st_mtime for path in (folder / "lake").rglob("*")}
    later = time.time() - max(written.values(), default=0)
    for path, at in written.items():
        os.utime(path, (at + later, at + later))
    return Settings(lake=str(folder / "lake"), run_dir=folder / "run", **settings)


def kafka_rows(entries: Iterable[tuple[str, int, int, Record]]) -> pa.Table:
    """Return records with coordinates as Spark's Kafka source gives them."""
    rows = [
        {
            "key": record.key,
            "value": record.value,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": datetime.fromtimestamp(record.timestamp_ms / 1000, UTC),
            "timestampType": 0,
            "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
        }
        for topic, partition, offset, record in entries
    ]
    return pa.Table.from_pylist(rows, schema=KAFKA_SCHEMA)


@dataclass
class ViewTopic:
    """The view topic as a list; it stands in for the transactional publisher."""

    marker: Marker | None = None
    transactions: list[tuple[int, Marker | None]] = field(default_factory=list)
    records: list[tuple[str, dict[str, Any] | None]] = field(default_factory=list)
    values: dict[bytes, bytes | None] = field(default_factory=dict)
    max_bytes: int = 1_000_000
    headers: dict[str, dict[str, bytes]] = field(default_factory=dict)  # of the last record of each key

    def publish(self, sent: Iterable[tuple[Any, ...]], marker: Marker | None) -> int:
        """Take records and their marker together."""
        traced = list(sent)
        records: list[tuple[bytes, bytes | None]] = [(key, value) for key, value, *_ in traced]
        self.headers |= {key.decode(): dict(headers) for key, _, headers in traced}
        self.values |= dict(records)
        batch = [(key.decode(), None if value is None else json.loads(value)) for key, value in records]
        self.records += batch
        self.marker = marker
        self.transactions.append((len(batch), marker))
        return len(batch)

    def on_topic(self) -> dict[bytes, bytes | None]:
        """Return the last value of each key."""
        return self.values

    def latest(self) -> dict[str, dict[str, Any]]:
        """Return the last value of each key that has one."""
        return {key: value for key, value in dict(self.records).items() if value is not None}


@dataclass
class Fetched:
    """The records of bronze's batch, in the place of what fetches them from the broker."""

    rows: pa.Table = field(default_factory=lambda: kafka_rows([]))

    def fetch(self, _ranges: Mapping[str, Mapping[int, tuple[int, int]]]) -> list[pa.RecordBatch]:
        """Return them, as often as they are asked for."""
        found: list[pa.RecordBatch] = self.rows.to_batches()
        return found

    def ranges(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Return where they are."""
        found: dict[str, dict[int, tuple[int, int]]] = {}
        places = self.rows.group_by(["topic", "partition"]).aggregate([("offset", "min"), ("offset", "max")])
        for row in places.to_pylist():
            found.setdefault(row["topic"], {})[row["partition"]] = row["offset_min"], row["offset_max"] + 1
        return found

    def close(self) -> None:
        """Do nothing: they are asked for again."""


@dataclass
class Pipeline:
    """All queries on one lake."""

    spark: SparkSession
    settings: Settings
    guard: BadShareGuard = field(default_factory=lambda: BadShareGuard(1.0))
    log: Log = field(default_factory=Log)
    view: ViewTopic = field(default_factory=ViewTopic)
    batches: dict[str, list[MicroBatch]] = field(default_factory=lambda: {name: [] for name in STREAMS})
    cursors: dict[tuple[str, Table], int] = field(default_factory=dict)
    sent: list[tuple[str, int, int, Record]] = field(default_factory=list)
    fetched: Fetched = field(default_factory=Fetched)
    last_input: dict[str, DataFrame] = field(default_factory=dict)
    versions: dict[tuple[str, Table], tuple[int, int]] = field(default_factory=dict)
    ids: dict[Table, str] = field(init=False)
    opened: dict[str, Work] = field(default_factory=dict)
    resources: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        """Open the local indexes, as a driver does when it starts."""
        self.restart()

    def restart(self, *, loses_indexes: bool = False) -> None:
        """Open the streams again, as after a crash; perhaps the disk that the local indexes were on is gone."""
        self.close()
        if loses_indexes:
            shutil.rmtree(self.settings.index_dir)
        self.ids = {table: delta.table_id(self.settings.lake, table) for table in topology.tables()}

    def close(self) -> None:
        """Close the streams with their local indexes; they are opened again when they are asked for."""
        self.resources.close()
        self.opened.clear()

    def work(self, query: str) -> Work:
        """Return what does a stream's batches; the stream is opened where it is not."""
        if query not in self.opened:
            context = Context(self.spark, self.settings, self.ids, self.resources)
            self.opened[query] = (
                publish.worker(context, self.view)  # type: ignore[arg-type]
                if query == Query.PUBLISH
                else STREAMS[query].open(context).work
            )
        return self.opened[query]

    def send(self, *records: Record) -> None:
        """Put records on their topics."""
        self.sent += [self.log.append(record) for record in records]

    def compact(self, topic: str) -> None:
        """Let Kafka compact a topic: neither a repeated batch nor a later one reads what that removes."""
        self.log.compact(topic)
        self.sent = [entry for entry in self.sent if entry[:3] not in self.log.compacted]
        rows = self.fetched.rows.to_pylist()
        there = [(row["topic"], row["partition"], row["offset"]) not in self.log.compacted for row in rows]
        self.fetched.rows = self.fetched.rows.filter(pa.array(there, pa.bool_()))

    def run(self) -> None:
        """Let every hop take what is there."""
        for query in topology.names():
            self.hop(query)

    def hop(self, query: str, failpoint: Callable[[FailPoint], None] = nowhere) -> MicroBatch:
        """Let one hop take what is there, as one batch; `failpoint` is called at its fail points."""
        batch = MicroBatch(query, "generation-1", len(self.batches[query]), failpoint=failpoint)
        self.batches[query].append(batch)
        self.last_input[query] = self._input(query)
        batch.versions = self._versions(query)
        before = self.batches[query][-2].cut["end"] if batch.batch_id else None
        batch.cut = {"begin": before, "end": self._end(query)}
        self._plan(batch)
        self._work(query, batch)
        return batch

    def repeat(self, query: str, *, loses_indexes: bool = False) -> MicroBatch:
        """Give a hop its last batch again, as after a crash before the checkpoint was written."""
        self.restart(loses_indexes=loses_indexes)
        return self._again(query)

    def _again(self, query: str) -> MicroBatch:
        last = self.batches[query][-1]
        again = MicroBatch(query, last.generation, last.batch_id, versions=last.versions, cut=last.cut)
        self._work(query, again)
        return again

    def _plan(self, batch: MicroBatch) -> None:
        """Do what is done before a new batch; nothing, where there is no checkpoint."""

    def _work(self, query: str, batch: MicroBatch) -> None:
        """Do all of a batch."""
        self._write(query, batch)

    def _write(self, query: str, batch: MicroBatch) -> None:
        frame = self.last_input[query]
        if query in LANDING:
            self._land(batch)
        else:
            self.work(query)(frame, batch)

    def _numbering(self, query: str) -> Numbering:
        return Numbering(self.settings.lake, topology.spec(query))

    def _land(self, batch: MicroBatch) -> None:
        stream, numbering, fetched = LANDING[batch.query], self._numbering(batch.query), self.fetched
        batch.ranges = fetched.ranges()
        steps = stream.step(
            batch,
            settings=self.settings,
            guard=self.guard,
            numbering=numbering,
            fetcher=fetched,  # type: ignore[arg-type]
            workers=Here(),  # there is no broker that executors could read from
            opens=lambda _: fetched,  # type: ignore[arg-type,return-value]
        )
        Writer(stream.spec, self.spark, self.settings.lake).make_all(steps, batch)

    def _arrived(self, query: str) -> pa.Table:
        """Take what has been sent to the topics that a stream lands."""
        topics = LANDING[query].topics(self.settings)
        arrived = [entry for entry in self.sent if entry[0] in topics]
        self.sent = [entry for entry in self.sent if entry[0] not in topics]
        return kafka_rows(arrived)

    def _input(self, query: str) -> DataFrame:
        if query in LANDING:
            self.fetched.rows = self._arrived(query)
            return self.spark.range(0)
        parts = [self.changes(query, table).select("_commit_version") for table in SOURCES[query]]
        together = parts[0]
        for part in parts[1:]:
            together = together.union(part)
        return together

    def changes(self, query: str, table: Table) -> DataFrame:
        """Return a table's changes since a query's last batch."""
        path = f"{self.settings.lake}/{table.value}"
        start, newest = self.advance(query, table)
        reader = self.spark.read.format("delta").option("readChangeFeed", "true")
        if start > newest:  # nothing new: the same columns, no rows
            return reader.option("startingVersion", newest).load(path).where(F.lit(False))
        return reader.option("startingVersion", start).option("endingVersion", newest).load(path)

    def advance(self, query: str, table: Table) -> tuple[int, int]:
        """Take note that a query reads a table up to its newest version; return the first version of that and this."""
        newest = deltalog.newest_version(self.settings.lake, table)
        start = self.cursors.get((query, table), -1) + 1
        newest = max(newest, start - 1)  # of a table that was put back nothing is new
        self.cursors[query, table] = newest
        self.versions[query, table] = start - 1, newest
        return start, newest

    def _end(self, query: str) -> list[str]:
        """Return the sources' offsets at the end of a query's batch, as Spark's checkpoint notes them."""
        if query in LANDING:
            ends: dict[str, dict[str, int]] = {}
            for (topic, partition), records in self.log.entries.items():
                if topic in LANDING[query].topics(self.settings):
                    ends.setdefault(topic, {})[str(partition)] = len(records)
            return [json.dumps(ends)]
        return [
            json.dumps({"reservoirId": self.ids[table], "reservoirVersion": upto + 1, "index": -1})
            for table, (_, upto) in self._versions(query).items()
        ]

    def _versions(self, query: str) -> dict[Table, tuple[int, int]]:
        """Return what the checkpoint would tell of a query's batch."""
        return {table: read for (whose, table), read in self.versions.items() if whose == query}

    def rows(self, table: Table, *columns: str) -> list[dict[str, Any]]:
        """Return a table's rows, some columns of them, in order."""
        frame = delta.read(self.spark, self.settings.lake, table)
        return sorted(frame.select(*(columns or frame.columns)).toArrow().to_pylist(), key=str)

    def gold(self) -> dict[str, dict[str, Any]]:
        """Return gold by customer."""
        return {row["customer_id"]: row for row in self.rows(Table.ACTIVITY)}
