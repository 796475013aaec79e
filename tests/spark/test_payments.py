"""Payments: which one pays a purchase, whatever came first, however batches are cut, and wherever a driver ends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.lake import delta
from customer_activity.settings import Settings
from support.pipeline import Pipeline
from support.proof import proof
from support.quick_pipeline import QuickPipeline
from support.records import Record, payment, purchase

MINUTE = 60_000
START = int(datetime(2026, 3, 26, tzinfo=UTC).timestamp() * 1000)
LANDS, JOINS = ("bronze", "silver", "payment_events"), ("event_time", "payments")
TABLES = (Table.PAID, Table.UNPAID, Table.UNMATCHED_PAYMENTS)
nightly = pytest.mark.nightly


@pytest.fixture
def paying(spark: SparkSession, settings: Settings) -> Iterator[Pipeline]:
    """Return the queries with those of payments switched on: half an hour to pay, and an hour of grace."""
    topology.switch_on(["payments"])
    wanted = settings.model_copy(update={"grace_hours": 1.0})
    delta.ensure_tables(wanted.lake)
    yield QuickPipeline(spark, wanted)
    topology.switch_on([])


def bought(minute: float, name: str = "P-1", amount: str = "10.00") -> Record:
    at = START + round(minute * MINUTE)
    return purchase(name, "C-1", amount, at, sent=at)


def paid(minute: float, name: str = "P-1", amount: str = "10.00", **more: str) -> Record:
    at = START + round(minute * MINUTE)
    return payment(name, amount, at, sent=at, **more)


def clock(minute: float) -> Record:
    """A purchase that is paid with another currency than ours, and moves the watermark."""
    return bought(minute, f"P-{minute}")


def land(pipeline: Pipeline, *records: Record) -> None:
    """Let records land, all of one topic in one partition."""
    pipeline.sent += [pipeline.log.append(record, 0) for record in records]
    for hop in LANDS:
        pipeline.hop(hop)


def follow(pipeline: Pipeline) -> None:
    for hop in JOINS:
        pipeline.hop(hop)


class Found(NamedTuple):
    """What the tables say of P-1: the payment that counts and how it came, whether it is unpaid, other payments."""

    paid: tuple[str, str] | None = None
    is_unpaid: bool = False
    others: tuple[tuple[str, str | None], ...] = ()


def found(pipeline: Pipeline) -> Found:
    paid_rows = [row for row in pipeline.rows(Table.PAID) if row["purchase_id"] == "P-1"]
    unpaid = [row for row in pipeline.rows(Table.UNPAID) if row["purchase_id"] == "P-1"]
    others = [row for row in pipeline.rows(Table.UNMATCHED_PAYMENTS) if row["purchase_id"] == "P-1"]
    assert len(paid_rows) + len(unpaid) < 2
    how = [
        (row["payment_id"], "early" if row["is_early"] else "late" if row["is_late"] else "in time")
        for row in paid_rows
    ]
    return Found(
        how[0] if how else None, bool(unpaid), tuple(sorted((row["reason"], row["differs_in"]) for row in others))
    )


def assert_right(pipeline: Pipeline) -> None:
    """Hold all tables against the queries that the stream declares."""
    for table in TABLES:
        check = proof(pipeline, table)
        assert check.ok, check


IN_TIME = ("pay-P-1", "in time")


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param([bought(0), paid(10)], Found(IN_TIME), id="paid"),
        pytest.param([bought(0), paid(30)], Found(IN_TIME), id="paid at the last moment"),
        pytest.param([bought(0), paid(30.001)], Found(("pay-P-1", "late")), id="paid late"),
        pytest.param([bought(0), paid(-5)], Found(("pay-P-1", "early")), id="confirmed before the purchase"),
        pytest.param([bought(0)], Found(), id="waits for its payment"),
        pytest.param([bought(0), clock(89.9)], Found(), id="still waits within the grace"),
        pytest.param([bought(0), clock(90)], Found(is_unpaid=True), id="unpaid after half an hour and the grace"),
        pytest.param([bought(0), clock(90), paid(95)], Found(("pay-P-1", "late")), id="unpaid, and paid after all"),
        pytest.param(
            [bought(0), clock(90), paid(20)], Found(IN_TIME), id="unpaid, and paid by one that was on its way"
        ),
        pytest.param([paid(10)], Found(others=(("no_purchase", None),)), id="without a purchase"),
        pytest.param([paid(10), bought(0)], Found(IN_TIME), id="arrives before its purchase"),
        pytest.param([bought(0), paid(10), paid(10)], Found(IN_TIME, others=(("repeated", None),)), id="sent again"),
        pytest.param(
            [bought(0), paid(10), paid(11, payment_id="pay-2")],
            Found(IN_TIME, others=(("paid_twice", None),)),
            id="paid twice",
        ),
        pytest.param(
            [bought(0), clock(90), paid(10, amount="9.99")],
            Found(is_unpaid=True, others=(("differs", "amount"),)),
            id="another amount",
        ),
        pytest.param(
            [bought(0), paid(10, currency="USD")], Found(others=(("differs", "currency"),)), id="another currency"
        ),
        pytest.param(
            [bought(0), paid(10, customerId="C-2")], Found(others=(("differs", "customer_id"),)), id="another customer"
        ),
        pytest.param([bought(0), paid(10, customerId="C-1")], Found(IN_TIME), id="the same customer"),
        pytest.param(
            [bought(0), paid(9, amount="1", currency="USD", customerId="C-2"), paid(10)],
            Found(IN_TIME, others=(("differs", "amount,currency,customer_id"),)),
            id="the first that agrees counts",
        ),
        pytest.param(
            [paid(10, payment_id="pay-2"), paid(5), bought(0)],
            Found(("pay-2", "in time"), others=(("paid_twice", None),)),
            id="the first that landed, not the first that was confirmed",
        ),
    ],
)
@pytest.mark.parametrize(
    "at_once", [pytest.param(True, id="one batch"), pytest.param(False, id="a batch a record", marks=nightly)]
)
def test_which_payment_counts(paying: Pipeline, records: list[Record], expected: Found, at_once: bool) -> None:
    for each in [records] if at_once else [[record] for record in records]:
        land(paying, *each)
        follow(paying)
    assert found(paying) == expected
    assert_right(paying)
