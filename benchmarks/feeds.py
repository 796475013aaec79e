"""What it costs to keep gold's change feed for others: files and bytes a merge, and the time that a long log takes.

    .venv/bin/python benchmarks/feeds.py [--customers 20000] [--changed 1000] [--merges 100] [--entries 10000,43200]

Merges as the stream `activity` does, into a table of so many customers, and sees what each leaves: its entry in the
log, its file of changes, and the data files that it replaced. Then the log is made as long as it is after a day, by
entries without files, and a merge is timed again: between so many checkpoints as the driver makes.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table as Printed

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import delta, merging
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.maintenance.maintenance import COMMITS_A_CHECKPOINT

TABLE = Table.ACTIVITY
TIMED_MERGES = 7
NOTE_CHARACTERS = 1_500  # of what a commit notes
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def main(
    customers: Annotated[int, typer.Option(min=1)] = 20_000,
    changed: Annotated[int, typer.Option(min=1, help="Customers that a merge changes.")] = 1_000,
    merges: Annotated[int, typer.Option(min=1)] = 100,
    entries: Annotated[str, typer.Option(help="Lengths of the log, comma separated.")] = "10000,43200",
) -> None:
    """Measure it on a lake of its own."""
    folder = Path(tempfile.mkdtemp(prefix="feeds-"))
    try:
        lake = str(folder / "lake")
        delta.ensure_tables(lake)
        merge(lake, 0, range(customers))
        before = sizes(lake)
        for number in range(1, merges + 1):
            merge(lake, number, range(number * changed, (number + 1) * changed), customers)
            if number % COMMITS_A_CHECKPOINT == 0:
                DeltaTable(table_path(lake, TABLE)).create_checkpoint()
        show(before, sizes(lake), merges)
        for length in sorted(map(int, entries.split(","))):
            lengthen(lake, length)
            seconds = [timed(lake, length + number, changed, customers) for number in range(TIMED_MERGES)]
            opening = statistics.median(opened(lake) for _ in range(TIMED_MERGES))
            Console().print(
                f"a log of {length:,} entries: opened in {1_000 * opening:.0f} ms, "
                f"merged into in {1_000 * statistics.median(seconds):.0f} ms"
            )
    finally:
        shutil.rmtree(folder)


def merge(lake: str, number: int, ids: range, customers: int | None = None) -> None:
    """Merge a change of some customers."""
    rows = {
        "customer_id": [f"customer-{each if customers is None else each % customers:09}" for each in ids],
        "name": [f"Name of {each}" for each in ids],
        "email": [f"somebody.{each}@example.org" for each in ids],
        "address": [f"{each} New Street, 20095 Hamburg" for each in ids],
        "purchase_count": [number] * len(ids),
        "total_amount": [Decimal("12.50") * number] * len(ids),
        "view_version": [number] * len(ids),
        "as_of": [NOW] * len(ids),
    }
    source = pa.table(
        [pa.array(rows.get(field.name, [None] * len(ids)), field.type) for field in arrow_schema(TABLE)],
        schema=arrow_schema(TABLE),
    )
    merging.merge(source, lake, TABLE, MicroBatch("activity", "g", number), key=["customer_id"])


def sizes(lake: str) -> dict[str, tuple[int, int]]:
    """Return files and bytes of the table by what they are."""
    folder, found = Path(table_path(lake, TABLE)), {}
    for name, pattern in (("log entries", "_delta_log/*.json"), ("changes", "_change_data/*"), ("data", "*.parquet")):
        files = [file.stat().st_size for file in folder.glob(pattern)]
        found[name] = (len(files), sum(files))
    return found


def show(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]], merges: int) -> None:
    """Print what a merge leaves."""
    table = Printed("what a merge leaves", "files", "bytes")
    for name, (files, size) in after.items():
        table.add_row(name, f"{(files - before[name][0]) / merges:.1f}", f"{(size - before[name][1]) / merges:,.0f}")
    Console().print(table)


def lengthen(lake: str, length: int) -> None:
    """Make a log so long by entries without files, with a checkpoint some commits ago, as the driver makes them."""
    target = DeltaTable(table_path(lake, TABLE))
    log = Path(table_path(lake, TABLE), "_delta_log")
    entry = json.dumps({"commitInfo": {"timestamp": 0, "operation": "WRITE", "userMetadata": "x" * NOTE_CHARACTERS}})
    for version in range(target.version() + 1, length + 1):
        (log / f"{version:020}.json").write_text(f"{entry}\n", encoding="utf-8")
    DeltaTable(table_path(lake, TABLE), version=length - COMMITS_A_CHECKPOINT // 2).create_checkpoint()


def opened(lake: str) -> float:
    """Return the seconds that it takes to open the table."""
    began = time.perf_counter()
    DeltaTable(table_path(lake, TABLE))
    return time.perf_counter() - began


def timed(lake: str, number: int, changed: int, customers: int) -> float:
    """Return the seconds that a merge takes."""
    began = time.perf_counter()
    merge(lake, number, range(number * changed, (number + 1) * changed), customers)
    return time.perf_counter() - began


if __name__ == "__main__":
    typer.run(main)
