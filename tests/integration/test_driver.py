"""The driver as a process of its own, with a real broker: found again, killed, started again, left alone, stopped."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from functools import partial

import pytest

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.inspection import status
from customer_activity.kafka import clients
from customer_activity.lineage.events_file import events_file
from customer_activity.maintenance import on_demand, replays
from customer_activity.metrics.listed import METRICS
from customer_activity.quarantine import contents
from customer_activity.quarantine.contents import Selection
from customer_activity.settings import Settings
from customer_activity.supervision import driver, processes, requests
from customer_activity.supervision.driver import Driver, State
from support import lineage_events, scraped
from support.broker import assert_verified, rows, send, view
from support.records import profile, purchase
from support.waiting import until

TOLERATED_MS = 300_000  # what an event may be ahead of its landing


@pytest.fixture
def settings(settings: Settings) -> Iterator[Settings]:
    """Return settings of a driver that merges often; leave none behind, whatever happens."""
    hasty = settings.model_copy(update={"merge_seconds": 1.0, "metrics_port": 0})
    yield hasty
    driver.stop(hasty, 0)


def assert_tells(settings: Settings, looks: Iterator[Driver]) -> None:
    """See that the driver says itself how it is, and what its batches have done; somebody looks after it meanwhile."""

    def observed(stream: str) -> bool:
        next(looks)
        told = scraped.scrape(settings)
        return bool(scraped.value(told, "activity_freshness_seconds_count", {"stream": stream}))

    assert scraped.ask(settings, "/livez")[0] == 200
    until(lambda: next(looks).state.is_well and scraped.ask(settings, "/readyz")[0] == 200)
    for stream in ("publish", "activity"):  # the driver before it may have merged one row, and this one the other
        until(partial(observed, stream))
    listed = {metric.family: metric.kind.value for metric in METRICS}
    assert scraped.families(settings).items() <= listed.items()
    told = scraped.scrape(settings)
    assert scraped.value(told, "activity_stream_restarts_total", {"stream": "bronze"}) == 1
    assert scraped.value(told, "activity_driver_cpu_seconds_total", {"process": "jvm"})


def test_a_driver_is_found_again_killed_started_again_and_stops_when_nobody_is_left(settings: Settings) -> None:
    send(settings, profile("C-1"), purchase("P-1", "C-1"))
    first, process = driver.start(settings, attended=10, wait_seconds=120)
    again, another = driver.start(settings, attended=10, wait_seconds=120)
    assert process is not None
    assert (another, again.pid, again.state) == (None, process.pid, State.RUNNING)
    assert first.pid is not None

    for member in processes.family(first.pid):
        member.send_signal(signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL
    until(lambda: driver.observe(settings).state is State.DEAD)
    send(settings, purchase("P-2", "C-1"))
    second, process = driver.start(settings, attended=10, wait_seconds=120)
    assert process is not None
    assert second.pid == process.pid != first.pid
    looks = driver.watch(settings, 0.5)
    until(lambda: next(looks).gold_rows == 1)

    assert_tells(settings, looks)

    # What has nothing to read says so: otherwise the first record after a quiet hour would make it look stuck.
    until(lambda: next(looks).state.is_well and all(query.idle_at for query in status.report(settings).queries))

    # Refused, and right some seconds later: brought back between the batches of the driver that runs.
    at = time.time_ns() // 1_000_000 + TOLERATED_MS + 4_000
    ahead = purchase("P-3", "C-1", at=at)
    producer = clients.producer(settings)
    producer.produce(settings.purchase_topic, key=ahead.key, value=ahead.value, timestamp=at)
    assert producer.flush(30) == 0
    until(lambda: bool(next(looks).pid and contents.groups(settings.lake, Selection())))
    asked = replays.asked(settings, Selection(), "its clock was ahead")

    def brought_back() -> bool:
        next(looks)
        answer = requests.by_driver(settings, requests.REPLAY, asked, 60)
        return bool(answer and answer["replay"]["accepted"])

    until(brought_back)
    send(settings, purchase("P-4", "C-1"))  # lands after it, with a number of its own

    def is_out() -> bool:  # a driver that stops merges what gold has, and publishes nothing more
        next(looks)
        (_, row) = view(settings)[-1]
        return bool(row and row["purchaseCount"] == 4)

    until(is_out)

    done = on_demand.maintain(settings, 60)
    assert done.by_driver
    assert {table.table for table in done.tables} == {table.label for table in topology.tables()}
    assert not [table.error for table in done.tables if table.error]

    until(lambda: driver.observe(settings).state is State.STOPPED)  # nobody pays attention any more
    assert process.wait(30) == 0
    assert "no heartbeat from this driver's supervisor" in processes.log_path(settings, "stream").read_text(
        encoding="utf-8"
    )
    assert [row["purchase_count"] for row in rows(settings, Table.ACTIVITY)] == [4], "it stopped gracefully"
    until(lambda: not processes.family(process.pid))  # its JVM ends a moment later
    assert driver.stop(settings, 1) is None
    told = [event["eventType"] for event in lineage_events.read(events_file(settings))]
    both = 2 * (1 + len(topology.names()))  # the first one had no time to tell of its end
    assert (told.count("START"), told.count("COMPLETE")) == (both, both // 2)
    assert_verified(settings)
