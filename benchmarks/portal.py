"""Measure the portal: answers at 500 requests a second, and how long it takes to restore two million customers.

    .venv/bin/python benchmarks/portal.py [--customers 2000000] [--seconds 60] [--out DIR]

On these cores run besides: the broker, the client that asks (`benchmarks/requests.py`: asyncio, 16 connections, each
request sent when it is due), and what publishes changes of 500 customers a second, one transaction a second. Said at
the end, and in <out>/portal.json: seconds until ready from an empty store, from the store of a portal that was killed,
and memory; percentiles of the answers, without changes and with them.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from subprocess import Popen
from typing import Annotated, Any

if not __package__:  # run as a file: only its own folder is searched
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import httpx
import psutil
import typer

from benchmarks import environment, requests
from benchmarks.trial import say
from customer_activity.kafka import clients
from customer_activity.settings import Settings
from customer_activity.supervision import processes

TREE = Path(__file__).resolve().parents[1]
PORT = 8099
READY_SECONDS = 900.0
LOOK_SECONDS = 0.05
TRANSACTION_RECORDS = 50_000
MEGABYTE = 1_000_000
ROW = (
    '{"customerId":"C-%08d","name":"%s %s","email":"customer-%d@example.com","address":"%d Orchard Street, flat %d, '
    'Kingsmere","loyaltyStatus":"SILVER","profileUpdatedAtEpochMillis":1483142400000,"purchaseCount":%d,'
    '"totalAmount":%d.%02d,"currency":"EUR","firstPurchaseAtEpochMillis":1483142400000,"lastPurchaseAtEpochMillis":'
    '1486378364000,"viewVersion":%d,"asOfEpochMillis":%d}'
)
FIRST = ("Myrtle", "Sage", "Linden", "Olive", "Cedar", "Heather", "Willow", "Jasmine", "Ivy", "Alder")
LAST = ("Ridgeway", "Ashbrook", "Meadowcroft", "Fieldgate", "Stonebridge", "Lakemoor", "Havbakke", "Birchwood")


def row(customer: int, version: int) -> bytes:
    """Return a row of the view, of the size that real ones have."""
    name = FIRST[customer % 10], LAST[customer // 10 % 8]
    figures = (customer, *name, customer, customer % 200, customer % 90, version, version * 7, version % 100)
    return (ROW % (*figures, version, int(time.time() * 1000))).encode()


def fill(settings: Settings, customers: int) -> None:
    """Put a row of each customer on the view topic, in transactions as the publisher has them."""
    producer = clients.producer(settings, transactional_id="fill", linger_ms=20)
    producer.init_transactions(60)
    for first in range(0, customers, TRANSACTION_RECORDS):
        producer.begin_transaction()
        for customer in range(first, min(first + TRANSACTION_RECORDS, customers)):
            producer.produce(settings.view_topic, key=b"C-%08d" % customer, value=row(customer, 1))
            if customer % 10_000 == 0:
                producer.poll(0)
        producer.commit_transaction(60)


def change(settings: Settings, customers: int, per_second: int, seconds: float) -> int:
    """Publish changes of customers drawn evenly, a transaction a second; return how many."""
    producer = clients.producer(settings, transactional_id="change")
    producer.init_transactions(60)
    drawn, began, sent = random.Random(1), time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        producer.begin_transaction()
        for _ in range(per_second):
            customer = drawn.randrange(customers)
            producer.produce(settings.view_topic, key=b"C-%08d" % customer, value=row(customer, 2 + int(passed)))
        producer.commit_transaction(60)
        sent += per_second
        time.sleep(max(0.0, int(passed) + 1 - (time.monotonic() - began)))
    return sent


@contextmanager
def started(settings: Settings, name: str) -> Iterator[tuple[Popen[bytes], dict[str, Any]]]:
    """Start a portal and wait until it is ready; kill it at the end of the block. Yield what it took, too."""
    began = time.monotonic()
    child = processes.start(settings, name, ["portal"])
    process, greatest = psutil.Process(child.pid), 0
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=10) as asks:
            while not _is_ready(asks):
                if child.poll() is not None or time.monotonic() - began > READY_SECONDS:
                    raise RuntimeError(f"the portal is not ready: {processes.last_lines(settings, name)}")
                greatest = max(greatest, process.memory_info().rss)
                time.sleep(LOOK_SECONDS)
            seconds = time.monotonic() - began
        found = {
            "ready_seconds": round(seconds, 1),
            "cpu_seconds": round(sum(process.cpu_times()[:2]), 1),
            "memory_megabytes": round(process.memory_info().rss / MEGABYTE),
            "greatest_megabytes": round(greatest / MEGABYTE),
        }
        yield child, found
    finally:
        child.kill()
        child.wait()


def _is_ready(asks: httpx.Client) -> bool:
    try:
        return asks.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def asked(
    pool: ProcessPoolExecutor, settings: Settings, customers: int, rate: int, seconds: float, changes: int
) -> dict[str, Any]:
    """Ask for rows for some seconds, while so many customers a second change."""
    changing = pool.submit(change, settings, customers, changes, seconds) if changes else None
    found = pool.submit(requests.run, PORT, customers, rate, seconds, 7).result()._asdict()
    figures = {name: round(value, 1) for name, value in found.items()}
    return figures | {"changes": changing.result() if changing else 0}


def main(
    *,
    customers: Annotated[int, typer.Option(min=1, help="Rows on the view topic.")] = 2_000_000,
    rate: Annotated[int, typer.Option(min=1, help="Requests a second.")] = 500,
    changes: Annotated[int, typer.Option(min=1, help="Customers that change a second.")] = 500,
    seconds: Annotated[float, typer.Option(min=1, help="Of each measurement of answers.")] = 60.0,
    out: Annotated[Path, typer.Option(help="Folder of results, logs and data.")] = TREE / "var" / "portal-benchmark",
) -> None:
    """Measure restoring, answers, and a portal that was killed."""
    with environment.opened(out.resolve()) as opened, ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        settings = opened.model_copy(update={"portal_port": PORT})
        say(f"{customers:,} rows on the view topic")
        pool.submit(fill, settings, customers).result()
        result: dict[str, Any] = {"customers": customers, "rate": rate}
        with started(settings, "portal") as (child, result["restored"]):
            say(f"restored: {result['restored']}")
            before = sum(psutil.Process(child.pid).cpu_times()[:2])
            result["quiet"] = asked(pool, settings, customers, rate, seconds, 0)
            say(f"without changes: {result['quiet']}")
            between = sum(psutil.Process(child.pid).cpu_times()[:2])
            result["changing"] = asked(pool, settings, customers, rate, seconds, changes)
            say(f"with {changes} changes a second: {result['changing']}")
            after = sum(psutil.Process(child.pid).cpu_times()[:2])
            result["quiet"]["cores"] = round((between - before) / result["quiet"]["seconds"], 2)
            result["changing"]["cores"] = round((after - between) / result["changing"]["seconds"], 2)
            result["memory_megabytes"] = round(psutil.Process(child.pid).memory_info().rss / MEGABYTE)
            files = (settings.run_dir / "portal").iterdir()
            result["store_megabytes"] = round(sum(file.stat().st_size for file in files) / MEGABYTE)
        with started(settings, "portal-again") as (_, result["killed"]):
            say(f"after kill -9: {result['killed']}")
        (out / "portal.json").write_text(json.dumps(result, indent=2), encoding="utf-8")
        say(json.dumps(result))


if __name__ == "__main__":
    typer.run(main)
