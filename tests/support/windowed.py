"""Purchases of some days, the streams that put them into windows of days, and what their tables must hold then."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from customer_activity.catalog import Table
from support import event_time
from support.event_time import Windows
from support.pipeline import Pipeline
from support.proof import proofs
from support.records import Record, purchase

HOUR, DAY = 3_600_000, 86_400_000
START = int(datetime(2026, 3, 26, tzinfo=UTC).timestamp() * 1000)  # three days before clocks change in Berlin
BERLIN = "Europe/Berlin"
CHAIN = ("event_time", "late_events", "daily", "weekly")
TABLES = (Table.WATERMARKS, Table.TIMED_PURCHASES, Table.LATE_EVENTS, Table.REPROCESSED, Table.DAILY, Table.WEEKLY)
OF_DAYS = {Table.DAILY: (1, "day"), Table.WEEKLY: (7, "first_day")}


def bought(number: int, at: int, customer: str = "C-1", amount: str = "1.25", sent: int | None = None) -> Record:
    return purchase(f"P-{number}", customer, amount, START + at, sent=START + at if sent is None else sent)


def world(seed: int, purchases: int = 120, late_hours: float = 20.0, days: int = 12) -> list[Record]:
    """Return purchases of some days in the order in which they arrive: each up to so many hours late."""
    chance = random.Random(seed)
    times = sorted(chance.randrange(days * DAY) for _ in range(purchases))
    arrivals = [(at + chance.random() * late_hours * HOUR, number, at) for number, at in enumerate(times)]
    return [
        bought(number, at, f"C-{number % 4}", f"{number % 7}.{number % 10}5", sent=START + int(arrival))
        for arrival, number, at in sorted(arrivals)
    ]


def land(pipeline: Pipeline, records: Sequence[Record], batches: int = 1) -> None:
    """Let bronze and silver take records in so many batches."""
    size = -(-len(records) // batches)
    for begin in range(0, len(records), size):
        pipeline.send(*records[begin : begin + size])
        take(pipeline)


def land_in(pipeline: Pipeline, partition: int, *records: Record) -> None:
    """Let bronze and silver take records of one partition."""
    pipeline.sent += [pipeline.log.append(record, partition) for record in records]
    take(pipeline)


def take(pipeline: Pipeline) -> None:
    for hop in ("bronze", "silver"):
        pipeline.hop(hop)


def follow(pipeline: Pipeline) -> None:
    for hop in CHAIN:
        pipeline.hop(hop)


def wanted(pipeline: Pipeline, days: int) -> Windows:
    settings = pipeline.settings
    return event_time.expected(
        event_time.as_bought(pipeline.rows(Table.PURCHASES)),
        days=days,
        zone=settings.time_zone,
        grace=timedelta(hours=settings.grace_hours),
        idle=timedelta(minutes=settings.idle_partition_minutes),
    )


def assert_right(pipeline: Pipeline) -> None:
    """Hold all tables against the rules, in Python and by the queries that the streams declare."""
    grace = timedelta(hours=pipeline.settings.grace_hours)
    late = {
        (row["purchase_id"], row["reason"], row["excluded_from"], row["window_start"])
        for row in pipeline.rows(Table.LATE_EVENTS)
    }
    expected_late: set[tuple[Any, ...]] = set()
    for table, (days, first_day) in OF_DAYS.items():
        right = wanted(pipeline, days)
        rows = {(row["customer_id"], row[first_day]): row for row in pipeline.rows(table)}
        figures = {key: (row["purchase_count"], row["total_amount"]) for key, row in rows.items()}
        assert figures == {key: (window.count, window.total) for key, window in right.windows.items()}
        assert {key for key, row in rows.items() if row["is_final"]} == right.final(grace)
        extremes = {key: (row["first_purchase_at"], row["last_purchase_at"]) for key, row in rows.items()}
        assert extremes == {key: (min(each.times), max(each.times)) for key, each in right.windows.items()}
        for purchase_id, reason, first in right.late:
            at = None if first is None else event_time.midnight(first, pipeline.settings.time_zone)
            expected_late.add((purchase_id, reason, None if first is None else table.label, at))
        closed = {(each, "window_closed", Table.SESSIONS.label, None) for each in right.without_session}
        expected_late |= closed
    assert late == expected_late
    for check in proofs(pipeline, *TABLES):
        assert check.ok, check
