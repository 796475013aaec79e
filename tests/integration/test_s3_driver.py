"""A driver that stays, on a lake on S3: no lock there tells that one was killed, only its silence."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from customer_activity.catalog import Table
from customer_activity.lake import bucket
from customer_activity.lease import epochs
from customer_activity.lease.epochs import ProcessLock
from customer_activity.maintenance import on_demand
from customer_activity.settings import Settings
from customer_activity.supervision import driver, processes
from customer_activity.supervision.driver import State
from support.broker import assert_verified, rows, send
from support.records import profile, purchase
from support.streams import Query
from support.waiting import until


@pytest.fixture
def on_s3(on_s3: Settings) -> Iterator[Settings]:
    """Return settings of a driver that merges often; leave none behind, and while the server still answers."""
    hasty = on_s3.model_copy(update={"merge_seconds": 1.0})
    yield hasty
    driver.stop(hasty, 0)


@pytest.mark.nightly
@pytest.mark.timeout(600)  # a minute and a half on two idle cores
def test_a_driver_on_s3_is_killed_started_again_maintained_and_stopped(on_s3: Settings) -> None:
    bucket.create(on_s3)
    send(on_s3, profile("C-1"), purchase("P-1", "C-1"))
    first, process = driver.start(on_s3, attended=None, wait_seconds=120)
    assert first.pid is not None
    assert process is not None
    until(lambda: driver.observe(on_s3).gold_rows == 1)
    before = epochs.of(on_s3.lake, ProcessLock).newest()
    send(on_s3, profile("C-2"), purchase("P-2", "C-1"))
    for member in processes.family(first.pid):
        member.send_signal(signal.SIGKILL)
    process.wait(30)
    assert driver.observe(on_s3).state is State.DEAD

    second, process = driver.start(on_s3, attended=None, wait_seconds=120)
    assert process is not None
    assert (second.state, second.pid) == (State.RUNNING, process.pid)
    assert epochs.of(on_s3.lake, ProcessLock).newest() == {query: before[query] + 1 for query in Query}
    until(lambda: driver.observe(on_s3).gold_rows == 2)
    done = on_demand.maintain(on_s3, 60)
    assert (done.by_driver, [table.error for table in done.tables if table.error]) == (True, [])

    assert driver.stop(on_s3, 60) is True
    assert process.wait(30) == 0
    until(lambda: sorted(row["purchase_count"] for row in rows(on_s3, Table.ACTIVITY)) == [0, 2])
    assert_verified(on_s3)
