"""Land records: parse them and write the tables' Parquet files, in the driver or in a task of Spark's.

A small batch is landed by the driver, a large one by tasks (`shares.py`). Either way nothing is in a table until the
driver commits the files, so a batch that is refused, or that a crash interrupts, leaves no row. Records come and go in
parts of a few megabytes, so memory does not grow with a batch.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.columns import LANDED
from customer_activity.contracts.parsing import parse_batch
from customer_activity.errors import FREE_SPACE, DiskFull
from customer_activity.lake.datafiles import DataFile, FileWriter, discard, in_parts, stamped

# Parsed at a time: enough to spread the cost of whole-column checks, few enough for a cache.
PARSED_ROWS = 8_192
PARSED_BYTES = 16 << 20  # parsing and writing hold a part some eight times
FILE_BYTES = 512 << 20  # of Arrow: a file that has so much is finished, and another one begun


class Landing(NamedTuple):
    """How to land: plain values, because tasks get them, too.

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

    @classmethod
    def together(cls, parts: Iterable[Landed]) -> Landed:
        """Return what several tasks have landed as one."""
        files: dict[Table, list[DataFile]] = {}
        outcomes: Counter[tuple[str, str | None]] = Counter()
        for part in parts:
            for table, of_table in part.files.items():
                files.setdefault(table, []).extend(of_table)
            outcomes.update(part.outcomes)
        return cls(files, dict(outcomes))

    def discard(self, lake: str) -> None:
        """Remove the files: no commit names them, and none will."""
        for table, files in self.files.items():
            discard(lake, table, files)

    def report(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "files": {table.value: files for table, files in self.files.items()},
            "outcomes": [(topic, reason, records) for (topic, reason), records in self.outcomes.items()],
        }

    @classmethod
    def of_report(cls, told: Mapping[str, Any]) -> Landed:
        """Return what `report` tells."""
        return cls(
            {Table(table): [DataFile(*file) for file in files] for table, files in told["files"].items()},
            {(topic, reason): records for topic, reason, records in told["outcomes"]},
        )


def land(records: Iterable[pa.RecordBatch], landing: Landing) -> Landed:
    """Land records in this process, part after part; what ends it early leaves none of its files.

    Args:
        records: as `Fetcher.fetch` yields them.
        landing: how to land.

    Raises:
        DiskFull: the lake's disk has no space left.
    """
    files = {table: _Files(landing.lake, table) for table in (*landing.tables.values(), Table.QUARANTINE)}
    try:
        outcomes = _written(records, landing, files)
        return Landed({table: done for table, of in files.items() if (done := of.close())}, dict(outcomes))
    except BaseException as error:
        is_full = isinstance(error, OSError) and error.errno == errno.ENOSPC  # by now: there will be space again
        for of in files.values():
            of.discard()
        if is_full:
            raise DiskFull(f"no space left on the disk of {landing.lake}", remedy=FREE_SPACE) from None
        raise


def _written(
    records: Iterable[pa.RecordBatch], landing: Landing, files: Mapping[Table, _Files]
) -> Counter[tuple[str, str | None]]:
    """Parse records and write them; count them by topic and reason."""
    contracts = {topic: LANDED[table] for topic, table in landing.tables.items()}
    outcomes: Counter[tuple[str, str | None]] = Counter()
    for part in in_parts(records, PARSED_ROWS, PARSED_BYTES):
        parsed = pa.Table.from_batches(
            [
                parse_batch(batch, contracts=contracts, currency=landing.currency, landed_at=landing.landed_at)
                for batch in part.combine_chunks().to_batches()
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
    return outcomes


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

    def discard(self) -> None:
        self.writer.abandon()
        discard(self.lake, self.table, [file for file in self.finished if file is not None])
