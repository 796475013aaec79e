"""Indexes of silver and gold that are lost where there are many ids: made again under supervision, with kills.

    .venv/bin/python benchmarks/seeding.py [--purchases 50000000 --customers 5000000] [--kills 3] [--out FOLDER]

Silver's tables are filled by plain commits, and what follows them is told that it has read them. Then the indexes are
removed, one more purchase is sent, and the driver is started as Airflow does. Whenever it has come some way it is
killed and started again. It must never be called stalled, and the purchase must come out with all that came before it.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import sqlite3
import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: only its own folder is searched, and the package lies in the one above
    _project = Path(__file__).resolve().parents[1]
    sys.path[:1] = [str(_project), str(_project / "tests")]

import duckdb
import psutil
import pyarrow.compute as pc
import typer
from deltalake import DeltaTable

from benchmarks import environment
from benchmarks.lag import TRAFFIC, run
from benchmarks.trial import say
from benchmarks.usage import Sampler
from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.inspection import status
from customer_activity.kafka import clients
from customer_activity.lake import delta, deltalog, history
from customer_activity.lake.deltalog import Position
from customer_activity.settings import PROJECT, Settings
from customer_activity.supervision import driver
from support.streams import Query
from support.tables import append_table

COMMIT_ROWS = 2_500_000
LOOK_SECONDS = 1.0
START_SECONDS = 300.0
THROUGH_SECONDS = 7_200.0
CUSTOMER = "S-7"
# Ids without an order, as UUIDs are: each part of an index would touch all of it if it came in as it lies here.
PURCHASES = """
SELECT md5(i::VARCHAR) AS purchase_id, 'S-' || (i % $customers) AS customer_id, 'X' AS product_id,
    ((i % 10000) / 100.0)::DECIMAL(18, 2) AS amount, 'EUR' AS currency,
    to_timestamp(1700000000 + i // 1000) AS occurred_at, NULL::BIGINT AS risk_score,
    (i % 4)::INTEGER AS partition, i // 4 AS "offset",
    to_timestamp(1700000000 + i // 1000) AS kafka_timestamp, 0 AS landing
FROM range($first, $last) AS t(i)
"""
PROFILES = """
SELECT 'S-' || i AS customer_id, 'Name ' || i AS name, 'c' || i || '@example.org' AS email,
    i || ' Long Street, Some Town' AS address, 'gold' AS loyalty_status, to_timestamp(1700000000) AS updated_at,
    (i % 4)::INTEGER AS partition, i // 4 AS "offset", to_timestamp(1700000000) AS kafka_timestamp,
    0 AS landing, false AS is_tombstone
FROM range($first, $last) AS t(i)
"""
FOLLOWERS = (
    (Query.GOLD, Table.ACTIVITY_CHANGES),
    (Query.SUMMARIES, Table.SUMMARIES),
    (Query.PROFILES, Table.PROFILES),
)
KEYS = re.compile(r"([\d,]+) keys of ([\d,]+) rows")


def main(
    *,
    purchases: Annotated[int, typer.Option(min=1)] = 50_000_000,
    customers: Annotated[int, typer.Option(min=10)] = 5_000_000,
    kills: Annotated[int, typer.Option(min=0)] = 3,
    out: Annotated[Path, typer.Option(help="Folder of broker and lake; emptied.")] = PROJECT / "var" / "seeding",
) -> None:
    """Fill the tables, lose the indexes, have the driver make them again, and say what it cost."""
    with environment.opened(out.resolve()) as settings:
        run(settings, *TRAFFIC)
        run(settings, "stream", "--available-now")
        before = len(DeltaTable(table_path(settings.lake, Table.PURCHASES)).to_pyarrow_table(columns=["purchase_id"]))
        fill(settings.lake, Table.PURCHASES, PURCHASES, purchases, customers)
        fill(settings.lake, Table.PROFILE_CHANGES, PROFILES, customers, customers)
        for query, table in FOLLOWERS:
            say_read(settings.lake, query, table)
            run(settings, "recover", query.value, "--reason", "its table tells of more")
        shutil.rmtree(settings.index_dir)
        send(settings)
        say(f"{purchases:,} purchases and {customers:,} customers are in silver, and no index")
        # A kill at a quarter of what is to do: of silver's ids as often as told but once, then of gold's summaries.
        plan: list[Query | None] = [*[Query.SILVER] * max(0, kills - 1), *[Query.GOLD] * min(1, kills), None]
        seconds, highest = 0.0, 0.0
        for target in plan:
            took, peaks, words = drive(settings, target)
            seconds, highest = seconds + took, max(highest, peaks["total_megabytes"])
            say(f"  {'through' if target is None else 'killed'} after {took:.0f} s, peaks {json.dumps(peaks)}: {words}")
        size = sum(file.stat().st_size for file in settings.index_dir.glob("*.db"))
        say(f"{seconds:.0f} s in all, peak {highest:,.0f} MB of JVM and Python, indexes {size / 1e6:,.0f} MB")
        check(settings, purchases + before + 1, purchases, customers)


def fill(lake: str, table: Table, query: str, rows: int, customers: int) -> None:
    """Append generated rows in commits of some million, as silver's."""
    note = history.latest_metadata(lake, table, Query.SILVER)
    kept = {name: value for name, value in note.items() if name not in ("query", "commit", "counts")}
    with duckdb.connect() as database:
        for first in range(0, rows, COMMIT_ROWS):
            given = {"first": first, "last": min(rows, first + COMMIT_ROWS)}
            if "$customers" in query:
                given["customers"] = customers
            made = database.sql(query, params=given).to_arrow_table()
            wanted = made.select(arrow_schema(table).names).cast(arrow_schema(table))
            append_table(lake, table, wanted, **kept, commit=uuid.uuid4().hex, counts={})


def say_read(lake: str, query: Query, table: Table) -> None:
    """Commit, as a query's, that it has read all that is in its sources."""
    note = dict(history.latest_metadata(lake, table, query))
    read = {source: newest(lake, source) for source in deltalog.noted(note)}
    versions = {place.table_id: place.version for place in read.values()}
    ends = [json.loads(end) for end in note["cut"]["end"]]
    for end in ends:
        end |= {"reservoirVersion": versions[end["reservoirId"]] + 1, "index": -1}
    note |= {source.label: place.version for source, place in read.items() if source.label in note}
    note |= {"commit": uuid.uuid4().hex, "counts": {}, deltalog.READ: deltalog.as_note(read)}
    note["cut"] = {**note["cut"], "end": [json.dumps(end, separators=(",", ":")) for end in ends]}
    place = Path(table_path(lake, table), "_delta_log", f"{deltalog.newest_version(lake, table) + 1:020}.json")
    info = {"timestamp": int(time.time() * 1000), "operation": "WRITE", "userMetadata": json.dumps(note)}
    place.write_text(json.dumps({"commitInfo": info}), encoding="utf-8")


def newest(lake: str, table: Table) -> Position:
    """Return where a table ends."""
    return deltalog.position(lake, table, delta.table_id(lake, table), deltalog.newest_version(lake, table))


def send(settings: Settings) -> None:
    """Send one more purchase of a customer who has many."""
    purchase = {"purchaseId": "one-more", "customerId": CUSTOMER, "amount": 1.00, "currency": "EUR"}
    value = json.dumps({**purchase, "occurredAtEpochMillis": 1_700_000_000_000}).encode()
    producer = clients.producer(settings)
    producer.produce(settings.purchase_topic, key=b"one-more", value=value)
    if producer.flush(60):
        raise typer.Exit(1)


def drive(settings: Settings, kill: Query | None) -> tuple[float, Mapping[str, float], str]:
    """Have the driver run until the purchase is out, or a query's index is made to a quarter: then it is killed.

    Returns seconds, peaks of memory and its last words about an index.
    """
    started, words = time.monotonic(), ""
    found, process = driver.start(settings, attended=None, wait_seconds=START_SECONDS)
    if process is None or found.pid is None:
        raise RuntimeError("a driver runs already")
    sampler = Sampler(found.pid)
    while time.monotonic() < started + THROUGH_SECONDS:
        report = status.report(settings)
        state, message = driver.judged(report, found.pid, time.monotonic() - started, settings)
        if not state.is_well:
            raise RuntimeError(f"{state}: {message}")
        for query in report.queries:
            if made := KEYS.search(query.message):
                words = query.message
                done, rows = (int(number.replace(",", "")) for number in made.groups())
                if query.query == kill and done >= rows // 4:
                    psutil.Process(found.pid).send_signal(signal.SIGKILL)
                    process.wait()
                    return time.monotonic() - started, sampler.peaks(), words
        if is_out(settings.lake):
            if kill is not None:
                raise RuntimeError(f"{kill} was through before it could be killed: take more purchases")
            sampler.stop()
            driver.stop(settings, 60)
            return time.monotonic() - started, sampler.peaks(), words
        time.sleep(LOOK_SECONDS)
    raise RuntimeError(f"not through after {THROUGH_SECONDS:.0f} s; {words}")


def is_out(lake: str) -> bool:
    """Whether gold has a change of the customer's."""
    changes = DeltaTable(table_path(lake, Table.ACTIVITY_CHANGES)).to_pyarrow_dataset()
    return bool(changes.count_rows(filter=pc.field("customer_id") == CUSTOMER))


def check(settings: Settings, ids: int, purchases: int, customers: int) -> None:
    """Compare what came out, and the indexes, with the input."""
    changes = DeltaTable(table_path(settings.lake, Table.ACTIVITY_CHANGES)).to_pyarrow_dataset()
    (row,) = changes.to_table(filter=pc.field("customer_id") == CUSTOMER).to_pylist()
    theirs = range(int(CUSTOMER[2:]), purchases, customers)
    cents = 100 + sum(number % 10_000 for number in theirs)
    found: dict[str, Any] = {"purchases": row["purchase_count"], "cents": int(row["total_amount"] * 100)}
    wanted: dict[str, Any] = {"purchases": len(theirs) + 1, "cents": cents}
    for name, table, key in (("silver", "purchase", ids), ("gold", "summary", min(customers, purchases))):
        with closing(sqlite3.connect(settings.index_dir / f"{name}.db")) as database:
            where = "" if table == "purchase" else "WHERE customer_id LIKE 'S-%'"
            ((count,),) = database.execute(f"SELECT count(*) FROM {table} {where}").fetchall()  # noqa: S608
        found[name], wanted[name] = count, key
    say(f"{'equal' if found == wanted else 'DIFFERENT'}: {found}, wanted {wanted}")
    if found != wanted:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
