"""Make silver's and gold's indexes again for many ids and customers: seconds, peak memory, and kills on the way.

    .venv/bin/python tests/benchmarks/seeding.py --out FOLDER [--purchases 50000000 --customers 5000000]
        [--kills 3] [--reuse]

Silver's tables are filled by plain commits of silver's, without bronze or Kafka. Then a child process brings the
indexes to their newest version; it is killed as often as told when it has said that some part is in, and begun again.
At the end counts and sums are compared with those of the input.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

if not __package__:  # run as a file: only its own folder is searched, and the package lies in the one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import duckdb
import psutil
import pyarrow as pa
import typer
from deltalake import DeltaTable

from benchmarks.trial import say
from customer_activity import delta
from customer_activity.catalog import Table, table_path
from customer_activity.datafiles import arrow_schema
from customer_activity.gold.state import GoldState
from customer_activity.settings import Settings
from customer_activity.silver.index import SilverIndex
from support.tables import append_table

COMMIT_ROWS = 2_500_000
LOOK_SECONDS = 0.2
# Ids without an order, as UUIDs are: each part of an index would touch all of it if it came in as it lies here.
PURCHASES = """
SELECT md5(i::VARCHAR) AS purchase_id, 'C-' || (i % $customers) AS customer_id, 'X' AS product_id,
    ((i % 10000) / 100.0)::DECIMAL(18, 2) AS amount, 'EUR' AS currency,
    to_timestamp(1700000000 + i // 1000) AS occurred_at, (i % 4)::INTEGER AS partition, i // 4 AS "offset",
    to_timestamp(1700000000 + i // 1000) AS kafka_timestamp, 1 + i // $rows AS landing
FROM range($first, $last) AS t(i)
"""
PROFILES = """
SELECT 'C-' || i AS customer_id, 'Name ' || i AS name, 'c' || i || '@example.org' AS email,
    i || ' Long Street, Some Town' AS address, 'gold' AS loyalty_status, to_timestamp(1700000000) AS updated_at,
    (i % 4)::INTEGER AS partition, i // 4 AS "offset", to_timestamp(1700000000) AS kafka_timestamp,
    1 + i // $rows AS landing, false AS is_tombstone
FROM range($first, $last) AS t(i)
"""


def main(
    *,
    out: Annotated[Path, typer.Option(help="Folder of the lake; made again.")],
    purchases: Annotated[int, typer.Option(min=1)] = 50_000_000,
    customers: Annotated[int, typer.Option(min=1)] = 5_000_000,
    kills: Annotated[int, typer.Option(min=0)] = 3,
    reuse: Annotated[bool, typer.Option(help="Take the tables that an earlier run has filled.")] = False,
    child: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Fill the tables, bring the indexes to where they are, and say what it cost."""
    settings = Settings(lake=str(out.resolve()))
    if child:
        bring(settings)
        return
    if reuse:
        shutil.rmtree(settings.index_dir, ignore_errors=True)
    else:
        shutil.rmtree(out, ignore_errors=True)
        delta.ensure_tables(settings.lake)
        fill(settings.lake, Table.PURCHASES, PURCHASES, purchases, customers)
        fill(settings.lake, Table.PROFILE_CHANGES, PROFILES, customers, customers)
    seconds, peak = 0.0, 0
    for kill in range(kills + 1):
        took, memory, words = run(out, kill_after=kill + 2 if kill < kills else None)
        seconds, peak = seconds + took, max(peak, memory)
        say(f"  {'killed' if kill < kills else 'through'} after {took:.0f} s, peak {memory / 2**20:,.0f} MB: {words}")
    size = sum(file.stat().st_size for file in settings.index_dir.glob("*.db"))
    say(f"{seconds:.0f} s in all, peak {peak / 2**20:,.0f} MB, indexes {size / 2**20:,.0f} MB")
    check(settings, purchases, customers)


def fill(lake: str, table: Table, query: str, rows: int, customers: int) -> None:
    """Append generated rows in commits of some million."""
    with duckdb.connect() as database:
        for first in range(0, rows, COMMIT_ROWS):
            given = {"first": first, "last": min(rows, first + COMMIT_ROWS), "rows": COMMIT_ROWS}
            if "$customers" in query:
                given["customers"] = customers
            made = database.sql(query, params=given).to_arrow_table()
            append_table(lake, table, made.select(arrow_schema(table).names).cast(arrow_schema(table)))


def bring(settings: Settings) -> None:
    """Bring both indexes to the newest versions; print a line a step."""
    ids = {table: delta.table_id(settings.lake, table) for table in Table}
    silver, gold = SilverIndex(settings, ids), GoldState(settings, ids)
    for table in (Table.PURCHASES, Table.PROFILE_CHANGES):
        silver.catch_up(table, told)
    newest = {table: DeltaTable(table_path(settings.lake, table)).version() for table in silver.is_current}
    gold.bring(newest, told)


def told(words: str) -> None:
    print(words, flush=True)  # noqa: T201 - the parent reads it


def run(out: Path, kill_after: int | None) -> tuple[float, int, str]:
    """Run the child; return seconds, peak memory and its last words. Kill it after some parts are in, when told to."""
    started, peak, seen, last = time.monotonic(), 0, 0, ""
    command = [sys.executable, __file__, "--out", str(out), "--child"]
    log = out / "seeding.log"
    with log.open("w") as written, subprocess.Popen(command, stdout=written, env=os.environ) as process:
        while process.poll() is None:
            try:
                peak = max(peak, psutil.Process(process.pid).memory_info().rss)
            except psutil.NoSuchProcess:
                break
            lines = log.read_text().splitlines()
            seen, last = sum("keys of" in line for line in lines), lines[-1] if lines else ""
            if kill_after is not None and seen >= 40 * kill_after:
                process.send_signal(signal.SIGKILL)
            time.sleep(LOOK_SECONDS)
    if process.returncode and kill_after is None:
        raise typer.Exit(1)
    return time.monotonic() - started, peak, last


def check(settings: Settings, purchases: int, customers: int) -> None:
    """Compare counts and sums with those of the input."""
    ids = {table: delta.table_id(settings.lake, table) for table in Table}
    silver, gold = SilverIndex(settings, ids), GoldState(settings, ids)
    cents = sum(range(10_000)) * (purchases // 10_000) + sum(range(purchases % 10_000))
    found = (
        *silver.index.connection.execute("SELECT count(*) FROM purchase").fetchone(),
        *silver.index.connection.execute("SELECT count(*) FROM profile").fetchone(),
        *gold.index.connection.execute("SELECT count(*), sum(purchase_count), sum(cents) FROM summary").fetchone(),
    )
    wanted = (purchases, customers, min(customers, purchases), purchases, cents)
    say(f"{'equal' if found == wanted else 'DIFFERENT'}: {found}, wanted {wanted}")
    if found != wanted:
        raise typer.Exit(1)


if __name__ == "__main__":
    pa.set_cpu_count(2)
    typer.run(main)
