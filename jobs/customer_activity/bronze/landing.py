"""Land records where they are: parse them and write the tables' Parquet files, in the driver or in Spark's workers.

A small batch is landed by the driver, a large one by every worker at once. Either way nothing is in a table until the
driver commits the files, so a batch that is refused, or that a crash interrupts, leaves no row.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType, StructType

from customer_activity.bronze.parsing import parse_batch
from customer_activity.catalog import Table
from customer_activity.datafiles import DataFile, FileWriter, in_parts

# Parsed at a time: enough to spread the cost of whole-column checks, few enough for a cache. Spark hands out 1,000.
PARSED_ROWS = 8_192


class Landing(NamedTuple):
    """How to land: plain values, because Spark's workers get them, too."""

    lake: str
    purchase_topic: str
    profile_topic: str
    currency: str


class Landed(NamedTuple):
    """What was landed: the files to commit by table, and records by topic and reason (None: accepted)."""

    files: dict[Table, list[DataFile]]
    outcomes: dict[tuple[str, str | None], int]


def land_here(records: pa.Table, landing: Landing) -> Landed:
    """Land a batch in this process."""
    return _collected(_land(records.to_batches(), landing))


def land_in_workers(records: DataFrame, landing: Landing) -> Landed:
    """Land a batch in Spark's workers, each its part."""

    def land(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return _land(batches, landing)

    return _collected(records.mapInArrow(land, REPORT).toArrow().to_batches())


# One row a file, and one row a count; the columns of the other kind are null.
REPORT = StructType()
for _name in ("table", "path", "stats", "topic", "reason"):
    REPORT = REPORT.add(_name, StringType())
for _name in ("size", "rows", "records"):
    REPORT = REPORT.add(_name, LongType())
_REPORT = pa.schema([(f.name, pa.int64() if isinstance(f.dataType, LongType) else pa.string()) for f in REPORT.fields])


def _land(batches: Iterable[pa.RecordBatch], landing: Landing) -> Iterator[pa.RecordBatch]:
    """Parse and write; yield one batch of REPORT."""
    writers = {
        table: FileWriter(landing.lake, table)
        for table in (Table.PROFILE_EVENTS, Table.PURCHASE_EVENTS, Table.QUARANTINE)
    }
    outcomes: Counter[tuple[str, str | None]] = Counter()
    tables = {landing.purchase_topic: Table.PURCHASE_EVENTS, landing.profile_topic: Table.PROFILE_EVENTS}
    for records in in_parts(batches, PARSED_ROWS):
        parsed = pa.Table.from_batches(
            [
                parse_batch(
                    records.combine_chunks().to_batches()[0],
                    purchase_topic=landing.purchase_topic,
                    profile_topic=landing.profile_topic,
                    currency=landing.currency,
                )
            ]
        )
        is_good = pc.is_null(parsed.column("reason"))
        for topic, table in tables.items():
            good = parsed.filter(pc.and_(is_good, pc.equal(parsed.column("topic"), topic)))
            if good.num_rows:
                outcomes[topic, None] += good.num_rows
                writers[table].write(_stamped(good, "ingested_at"))
        if pc.all(is_good, min_count=0).as_py():
            continue
        bad = parsed.filter(pc.invert(is_good))
        writers[Table.QUARANTINE].write(_stamped(bad, "quarantined_at"))
        outcomes.update(zip(bad.column("topic").to_pylist(), bad.column("reason").to_pylist(), strict=True))
    report = [
        {"table": table.value, **file._asdict()}
        for table, writer in writers.items()
        if (file := writer.close()) is not None
    ]
    report += [{"topic": topic, "reason": reason, "records": n} for (topic, reason), n in outcomes.items()]
    yield pa.RecordBatch.from_pylist(report, _REPORT)


def _stamped(rows: pa.Table, column: str) -> pa.Table:
    now = datetime.fromtimestamp(time.time(), UTC)
    return rows.append_column(column, pa.repeat(pa.scalar(now, pa.timestamp("us", tz="UTC")), rows.num_rows))


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
