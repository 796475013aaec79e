"""Land records where they are: parse them and write the tables' Parquet files, in the driver or in Spark's workers.

A small batch is landed by the driver, a large one by every worker at once. Either way nothing is in a table until the
driver commits the files, so a batch that is refused, or that a crash interrupts, leaves no row. Records come and go in
parts of a few megabytes, so memory does not grow with a batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity import unforeseen
from customer_activity.catalog import Table
from customer_activity.contracts import LATEST_MILLIS, NO_TIMESTAMP
from customer_activity.contracts.columns import LANDED
from customer_activity.contracts.parsing import parse_batch
from customer_activity.lake import jvm
from customer_activity.lake.datafiles import DataFile, FileWriter, in_parts, stamped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Parsed at a time: enough to spread the cost of whole-column checks, few enough for a cache. Spark hands out 1,000.
PARSED_ROWS = 8_192
PARSED_BYTES = 16 << 20  # parsing and writing hold a part some eight times
FILE_BYTES = 512 << 20  # of Arrow: a file that has so much is finished, and another one begun
# Between the JVM and a worker, which hold a few of them.
ARROW_ROWS = 1_000
ARROW_BYTES = 32 << 20
TOO_LATE_FOR_SPARK = "long overflow"  # what its Kafka source ends with at a timestamp that microseconds do not hold


class NotForWorkers(Exception):
    """Raised when a batch has records that Spark does not hand out as they are; none of it was landed."""


class Landing(NamedTuple):
    """How to land: plain values, because Spark's workers get them, too.

    Attributes:
        lake: where the tables are.
        tables: by topic, the table of its records, which has their contract.
        currency: the deployment's.
        number: of the landing.
        landed_at: when it lands, in whole milliseconds: events are compared with it, and rows carry it.
    """

    lake: str
    tables: Mapping[str, Table]
    currency: str
    number: int
    landed_at: datetime


class Landed(NamedTuple):
    """What was landed: the files to commit by table, and records by topic and reason (None: accepted)."""

    files: dict[Table, list[DataFile]]
    outcomes: dict[tuple[str, str | None], int]


def land_here(records: Iterable[pa.RecordBatch], landing: Landing) -> Landed:
    """Land a batch in this process, part after part."""
    return _collected(_land(records, landing))


def land_in_workers(records: DataFrame, landing: Landing, largest: int = 0) -> Landed:
    """Land a batch in Spark's workers, each its part.

    Args:
        records: as Spark's Kafka source gives them.
        landing: how to land.
        largest: bytes that a record has at most, as far as is known.

    Raises:
        NotForWorkers: some of the records have to come another way, and with them all.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - whoever looks at the stream needs no Spark

    def land(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source = iter(batches)
        yield from _land(_as_they_are(source), landing)
        for _ in source:  # Spark expects its batches to be taken, also those that are no longer needed
            pass

    rows = min(ARROW_ROWS, max(1, ARROW_BYTES // max(1, largest)))
    records.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows))
    try:
        reported = records.mapInArrow(unforeseen.without_words(land), REPORT).toArrow()
    except (PySparkException, jvm.java_error()) as error:
        if TOO_LATE_FOR_SPARK in str(error):
            raise NotForWorkers("a Kafka timestamp is too late for Spark") from error
        raise
    if pc.any(reported.column("is_unreadable")).as_py():
        raise NotForWorkers("a header's name, or a Kafka timestamp, is not as Spark tells it")
    return _collected(reported.to_batches())


# One row a file, and one row a count; the columns of the other kind are null. One row alone says that there are
# records that Spark does not hand out as they are.
_REPORT = pa.schema(
    [
        *((name, pa.string()) for name in ("table", "path", "stats", "topic", "reason")),
        *((name, pa.int64()) for name in ("size", "rows", "records")),
        ("is_unreadable", pa.bool_()),
    ]
)
_DDL = {pa.string(): "string", pa.int64(): "bigint", pa.bool_(): "boolean"}
REPORT = ", ".join(f"`{field.name}` {_DDL[field.type]}" for field in _REPORT)


class _Unreadable(Exception):
    """Raised in a worker that meets a record which is not as Kafka has it."""


def _as_they_are(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass on what Spark tells truly.

    Java puts U+FFFD in the place of what is not UTF-8 in a header's name, goes on after U+0000 where the other client
    ends, and counts days before 1582 by another calendar.
    """
    for batch in batches:
        names = batch.column("headers").flatten().field("key")
        millis = pc.divide(batch.column("timestamp").cast(pa.timestamp("us")).cast(pa.int64()), 1000)
        in_range = pc.and_(pc.greater_equal(millis, NO_TIMESTAMP), pc.less_equal(millis, LATEST_MILLIS))
        is_odd = pc.match_substring_regex(names, "[\ufffd\\x00]") if len(names) else names
        if not pc.all(in_range, min_count=0).as_py() or (len(names) and pc.any(is_odd, min_count=0).as_py()):
            raise _Unreadable
        yield batch


def _land(batches: Iterable[pa.RecordBatch], landing: Landing) -> Iterator[pa.RecordBatch]:
    """Parse and write; yield one batch of REPORT."""
    try:
        yield _report(batches, landing)
    except _Unreadable:
        yield pa.RecordBatch.from_pylist([{"is_unreadable": True}], _REPORT)


def _report(batches: Iterable[pa.RecordBatch], landing: Landing) -> pa.RecordBatch:
    files = {table: _Files(landing.lake, table) for table in (*landing.tables.values(), Table.QUARANTINE)}
    contracts = {topic: LANDED[table] for topic, table in landing.tables.items()}
    outcomes: Counter[tuple[str, str | None]] = Counter()
    for records in in_parts(batches, PARSED_ROWS, PARSED_BYTES):
        parsed = pa.Table.from_batches(
            [
                parse_batch(batch, contracts=contracts, currency=landing.currency, landed_at=landing.landed_at)
                for batch in records.combine_chunks().to_batches()
            ]
        )
        is_good = pc.is_null(parsed.column("reason"))
        for topic, table in landing.tables.items():
            good = parsed.filter(pc.and_(is_good, pc.equal(parsed.column("topic"), topic)))
            if good.num_rows:
                outcomes[topic, None] += good.num_rows
                files[table].write(stamped(good, "ingested_at", landing.number, landing.landed_at))
        if pc.all(is_good, min_count=0).as_py():
            continue
        bad = parsed.filter(pc.invert(is_good))
        files[Table.QUARANTINE].write(stamped(bad, "quarantined_at", landing.number, landing.landed_at))
        outcomes.update(zip(bad.column("topic").to_pylist(), bad.column("reason").to_pylist(), strict=True))
    report = [{"table": table.value, **file._asdict()} for table, of in files.items() for file in of.close()]
    report += [{"topic": topic, "reason": reason, "records": n} for (topic, reason), n in outcomes.items()]
    return pa.RecordBatch.from_pylist(report, _REPORT)


class _Files:
    """The files of one table, none of them larger than a reader likes."""

    def __init__(self, lake: str, table: Table) -> None:
        self.lake, self.table = lake, table
        self.writer = FileWriter(lake, table)
        self.finished: list[DataFile | None] = []

    def write(self, rows: pa.Table) -> None:
        self.writer.write(rows)
        if self.writer.bytes >= FILE_BYTES:
            self.finished.append(self.writer.close())
            self.writer = FileWriter(self.lake, self.table)

    def close(self) -> list[DataFile]:
        return [file for file in (*self.finished, self.writer.close()) if file is not None]


def _collected(batches: Iterable[pa.RecordBatch]) -> Landed:
    files: dict[Table, list[DataFile]] = {}
    outcomes: Counter[tuple[str, str | None]] = Counter()
    for batch in batches:
        for row in batch.to_pylist():
            if row["table"] is not None:
                file = DataFile(row["path"], row["size"], row["rows"], row["stats"])
                files.setdefault(Table(row["table"]), []).append(file)
            else:
                outcomes[row["topic"], row["reason"]] += row["records"]
    return Landed(files, dict(outcomes))
