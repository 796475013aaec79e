"""One live driver a query: who may begin, who must stop, and commits that come too late."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from customer_activity.catalog import Table, lock_path, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.session import JvmLock
from customer_activity.errors import LeaseLost, QueryAlreadyRunning
from customer_activity.lake import commits, merging
from customer_activity.lake.failpoints import FailPoint
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.lease import lease as lease_module
from customer_activity.lease.epochs import FROZEN, LOCKED, ProcessLock
from customer_activity.lease.lease import LEASE_SECONDS, Lease
from customer_activity.settings import Settings
from support.streams import Query
from support.waiting import until

QUERY, CHANGES = Query.SILVER, Table.PROFILE_CHANGES


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "WAIT_SECONDS", 0.0)


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return str(tmp_path)


def epoch_file(lake: str, epoch: int) -> Path:
    return Path(lock_path(lake, QUERY)).with_name(f"{QUERY}.{epoch}")


@contextmanager
def another_driver(lake: str, *, silent_for: float, has_lock: bool = True) -> Iterator[None]:
    """Hold the query as another process does: this test's own, which is not the JVM."""
    path = Path(lock_path(lake, QUERY))
    path.parent.mkdir(exist_ok=True)
    epoch_file(lake, 7).write_text(LOCKED if has_lock else FROZEN)
    touched = time.time() - silent_for
    os.utime(epoch_file(lake, 7), (touched, touched))
    with path.open("w") as lock:
        if has_lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)
        yield


def test_each_driver_has_a_greater_epoch(spark: SparkSession, lake: str) -> None:
    for epoch in (1, 2, 3):
        with Lease(partial(JvmLock, spark), lake, [QUERY]) as held:
            assert held.fencing_epoch(QUERY) == epoch
            assert held.frozen == []


def test_a_driver_at_work_is_left_alone(spark: SparkSession, lake: str) -> None:
    with another_driver(lake, silent_for=1), pytest.raises(QueryAlreadyRunning, match="silver already runs"):
        Lease(partial(JvmLock, spark), lake, [QUERY])
    assert not epoch_file(lake, 8).exists()


def test_a_process_without_a_jvm_and_a_driver_turn_each_other_away(spark: SparkSession, lake: str) -> None:
    with Lease(partial(JvmLock, spark), lake, [QUERY]), pytest.raises(QueryAlreadyRunning):
        Lease(ProcessLock, lake, [QUERY])
    with Lease(ProcessLock, lake, [QUERY]) as held:
        assert held.fencing_epoch(QUERY) == 2
        with pytest.raises(QueryAlreadyRunning):
            Lease(partial(JvmLock, spark), lake, [QUERY])


def test_a_driver_that_works_without_the_lock_is_left_alone(spark: SparkSession, lake: str) -> None:
    with another_driver(lake, silent_for=1, has_lock=False), pytest.raises(QueryAlreadyRunning):
        Lease(partial(JvmLock, spark), lake, [QUERY])


def test_a_frozen_driver_is_taken_over_from_and_may_not_commit(spark: SparkSession, lake: str) -> None:
    with another_driver(lake, silent_for=LEASE_SECONDS + 1), Lease(partial(JvmLock, spark), lake, [QUERY]) as held:
        assert (held.fencing_epoch(QUERY), held.frozen) == (8, [QUERY])
        held.renew()
        assert held.frozen == [QUERY]  # it still holds the lock
        assert epoch_file(lake, 8).read_text() == FROZEN


def test_the_lock_is_taken_when_the_frozen_driver_has_ended(spark: SparkSession, lake: str) -> None:
    with another_driver(lake, silent_for=LEASE_SECONDS + 1):
        held = Lease(partial(JvmLock, spark), lake, [QUERY])
    with held:
        held.renew()
        assert held.frozen == []
        assert epoch_file(lake, 8).read_text() == LOCKED


def test_a_driver_that_was_taken_over_from_stops(spark: SparkSession, lake: str) -> None:
    with Lease(partial(JvmLock, spark), lake, [QUERY]) as held:
        epoch_file(lake, 2).touch()
        with pytest.raises(LeaseLost, match=r"silver: another driver has taken over .*epoch 1"):
            held.fencing_epoch(QUERY)
        with pytest.raises(LeaseLost):
            held.renew()


def test_the_lease_is_renewed_whatever_the_driver_does(
    spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "RENEW_SECONDS", 0.01)
    with Lease(partial(JvmLock, spark), lake, [QUERY]) as held:
        os.utime(epoch_file(lake, 1), (0, 0))
        until(lambda: epoch_file(lake, 1).stat().st_mtime > 0, 10)
        held.check()
        epoch_file(lake, 2).touch()
        held.keeper.join(10)
        with pytest.raises(LeaseLost):
            held.check()


# Commits that come too late. The lease's file says nothing in them: a frozen driver may have looked before it froze.
Write = Callable[[SparkSession, str, MicroBatch], object]


def append(spark: SparkSession, lake: str, batch: MicroBatch) -> None:
    rows = [{"customer_id": "C-1", "is_tombstone": False}]
    commits.append(spark, lake, CHANGES, pa.Table.from_pylist(rows, arrow_schema(CHANGES)), batch)


def merge(_: SparkSession, lake: str, batch: MicroBatch) -> None:
    rows = pa.Table.from_pylist([{"customer_id": f"C-{batch.batch_id}"}], arrow_schema(Table.PROFILES))
    merging.merge(rows, lake, Table.PROFILES, batch, key=["customer_id"])


by_each_way = pytest.mark.parametrize(("write", "table"), [(append, CHANGES), (merge, Table.PROFILES)])


@by_each_way
def test_an_older_epoch_is_refused(spark: SparkSession, settings: Settings, write: Write, table: Table) -> None:
    write(spark, settings.lake, MicroBatch(QUERY, "g", 0, fencing_epoch=lambda: 5))
    with pytest.raises(LeaseLost):
        write(spark, settings.lake, MicroBatch(QUERY, "g", 1, fencing_epoch=lambda: 4))
    assert DeltaTable(table_path(settings.lake, table)).version() == 1


@by_each_way
def test_a_commit_is_refused_when_the_successor_commits_meanwhile(
    spark: SparkSession, settings: Settings, write: Write, table: Table
) -> None:
    def successor(point: FailPoint) -> None:
        if point is FailPoint.STAGED:
            # Another generation: nothing but the lease is in both commits.
            write(spark, settings.lake, MicroBatch(QUERY, "h", 0, fencing_epoch=lambda: 5))

    late = MicroBatch(QUERY, "g", 8, fencing_epoch=lambda: 4, failpoint=successor)
    with pytest.raises((Py4JJavaError, DeltaError), match=r"(?i)concurrent|conflict|transaction"):
        write(spark, settings.lake, late)
    assert DeltaTable(table_path(settings.lake, table)).version() == 1
