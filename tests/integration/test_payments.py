"""Payments through the broker: a driver that is killed anywhere in them, and what verify says afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.commands.verify import others
from customer_activity.kafka import topics
from customer_activity.quality.run import run
from customer_activity.quality.verdicts import Outcome
from customer_activity.settings import Settings
from customer_activity.verification.verify import verify
from support.broker import rows, send
from support.records import Record, payment, profile, purchase
from support.weeks import drain, killed

MINUTE = 60_000
START = int(datetime(2026, 3, 20, tzinfo=UTC).timestamp() * 1000)
PLACES = [
    f"{stream}:{point}"
    for stream in ("payment_events", "event_time", "payments")
    for point in ("staged", "committed", "written")
]


@pytest.fixture
def paying(settings: Settings) -> Iterator[Settings]:
    """Return settings with payments on."""
    topology.switch_on(["payments"])
    topics.check(settings, create=True)
    yield settings.model_copy(
        update={"streams": "payments", "grace_hours": 1.0, "fail_points": True, "max_bad_share": 1.0}
    )
    topology.switch_on([])


def world(seed: int) -> list[Record]:
    """Return purchases of some hours, and payments of most of them: some early, late, twice, or for none."""
    chance = random.Random(seed)
    arriving: list[tuple[float, Record]] = [(0, profile("C-1"))]
    for number in range(150):
        at = chance.randrange(600)
        name = f"P-{seed}-{number}"
        arriving.append((at, purchase(name, "C-1", f"{number % 9}.25", START + at * MINUTE)))
        for _ in range(chance.choice([0, 1, 1, 1, 2])):
            after = chance.choice([-5, 3, 10, 29, 45, 200])
            amount = f"{number % 9}.{chance.choice([25, 25, 25, 26])}"
            which = payment(
                name, amount, START + (at + after) * MINUTE, payment_id=f"pay-{number}-{chance.randrange(2)}"
            )
            arriving.append((at + after + chance.random() * 5, which))
    arriving += [(at, payment(f"nobody-{at}", at=START)) for at in range(0, 600, 100)]
    arriving += [(at, Record("payment-events", b"P", b"{")) for at in (50, 500)]
    return [record for _, record in sorted(arriving, key=lambda each: each[0])]


@pytest.mark.nightly
@pytest.mark.parametrize("place", PLACES)
def test_a_driver_that_is_killed_in_payments_harms_nothing(spark: SparkSession, paying: Settings, place: str) -> None:
    records = world(len(place))
    send(paying, *records[:200])
    drain(spark, paying)
    send(paying, *records[200:])
    killed(paying, place)
    drain(spark, paying)
    assert {row["reason"] for row in rows(paying, Table.UNMATCHED_PAYMENTS)} == {
        "no_purchase",
        "differs",
        "repeated",
        "paid_twice",
    }
    assert rows(paying, Table.UNPAID)
    found = verify(paying, settle_seconds=0, others=others())
    assert [check for check in found.checks if not check.ok] == []
    judged = run(paying.model_copy(update={"quality_docs": str(paying.run_dir / "quality")}))
    assert [
        (each.rule.rule, each.judged.found) for each in judged.failing if each.judged.outcome is Outcome.ERROR
    ] == []
    assert {each.rule.rule for each in judged.failing} <= {"share_of_refused_records"}
    assert "only_young_purchases_wait_for_payment" in {each.rule.rule for each in judged.verdicts}
    wanted = ("bronze.payment_events", "silver.paid_purchases", "silver.unpaid_purchases", "ops.unmatched_payments")
    assert set(wanted) <= {check.name for check in found.checks}
    assert f"accounting of {paying.payment_topic}" in {check.name for check in found.checks}
