"""Large batches on a cluster: what is sent, the driver that takes it, and where it was worked on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from customer_activity.catalog import Table
from customer_activity.lake import history, microbatch
from customer_activity.settings import Settings
from support import cluster
from support.cluster import Cluster
from support.records import Record, profile, purchase
from support.streams import Query
from support.waiting import until

MANY = microbatch.SMALL_BATCH_ROWS + 1_000
SHUFFLED = "shuffle_*.data"  # what tasks have for those of the next stage


@contextmanager
def streams(settings: Settings, found: Cluster, log: Path, **more: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run the streams in a driver of its own, on a cluster, until they have read all."""
    here = settings.model_copy(update={"spark_master": found.address, **more})
    with log.open("wb") as said:
        driver = subprocess.Popen(
            [sys.executable, "-m", "customer_activity", "stream", "--available-now"],
            env={**cluster.environment(found.conf), **here.environment()},
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            yield driver
        finally:
            driver.kill()
            driver.wait()


def drain(settings: Settings, found: Cluster, log: Path, **more: object) -> None:
    with streams(settings, found, log, **more) as driver:
        assert driver.wait(300) == 0, log.read_text(encoding="utf-8")[-2_000:]


def places(settings: Settings) -> set[str]:
    """Return where the newest batches of silver and gold were worked on."""
    made = {Table.PURCHASES: Query.SILVER, Table.ACTIVITY_CHANGES: Query.GOLD}
    notes = (history.latest_metadata(settings.lake, table, query) for table, query in made.items())
    return {note["placement"]["place"] for note in notes}


def backlog(first: int, count: int) -> list[Record]:
    """Return purchases of which a third is one customer's."""
    ids = range(first, first + count)
    return [purchase(f"P-{number}", "C-hot" if number % 3 == 0 else f"C-{number % 500}") for number in ids]


def profiles() -> list[Record]:
    return [profile("C-hot"), *(profile(f"C-{number}") for number in range(400))]


def executor_of(worker: psutil.Process) -> psutil.Process:
    """Wait for a worker's executor, and return it; what started the worker may still be a child of it, as a zombie."""

    def alive() -> list[psutil.Process]:
        return [child for child in worker.children() if child.status() != psutil.STATUS_ZOMBIE]

    until(alive, 60)
    return alive()[0]


def is_at_work(log: Path, query: Query) -> bool:
    """Whether a stream's batch has begun and is not through, by the log of a driver that takes one after the other."""
    told = log.read_text(encoding="utf-8")
    return f" {query} started" in told and f" {query} batch " not in told


def until_between_stages(log: Path, query: Query, executor: psutil.Process) -> None:
    """Wait until an executor has rows for tasks of a next stage, which are lost with it, or the batch is through."""
    folder = Path(executor.environ()["SPARK_EXECUTOR_DIRS"])
    before = set(folder.rglob(SHUFFLED))
    until(lambda: set(folder.rglob(SHUFFLED)) - before or not is_at_work(log, query), 300, every=0.01)
