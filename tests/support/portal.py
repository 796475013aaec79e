"""A portal as a process, and what its publisher has put on the view topic."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx
from confluent_kafka import Producer

from customer_activity.kafka import clients, settled
from customer_activity.settings import Settings
from customer_activity.supervision import processes
from support.broker import end_transaction
from support.waiting import until

Record = tuple[str, bytes | None]


def begun(settings: Settings) -> Producer:
    """Begin a transaction of a publisher's."""
    producer = clients.producer(settings, transactional_id=f"publishes-{settings.view_topic}")
    producer.init_transactions(30)
    producer.begin_transaction()
    return producer


def send(settings: Settings, *records: Record, commits: bool = True) -> None:
    """Publish records in one transaction, which is aborted where it does not commit, and wait until it has ended.

    A broker answers before it has written the marks that end a transaction: until then its records cannot be read.
    """
    producer = begun(settings)
    write(producer, settings, records)
    end_transaction(producer, commits=commits)
    settled.settle(settings, settings.view_topic)


def write(producer: Producer, settings: Settings, records: Sequence[Record]) -> None:
    for key, text in records:
        producer.produce(settings.view_topic, key=key, value=text)
    assert producer.flush(30) == 0


@contextmanager
def running(settings: Settings, name: str = "portal") -> Iterator[httpx.Client]:
    """Run `activity portal` as a process, and kill it at the end of the block."""
    child = processes.start(settings, name, ["portal"])
    with httpx.Client(base_url=f"http://127.0.0.1:{settings.portal_port}", timeout=10) as asks:
        try:
            until(lambda: child.poll() is None and is_ready(asks))
            yield asks
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait(10)


def is_ready(asks: httpx.Client) -> bool:
    try:
        return asks.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False
