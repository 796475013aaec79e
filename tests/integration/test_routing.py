"""Routing through the broker: row and message never disagree, wherever a driver is killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import ROUTES, Table
from customer_activity.commands.verify import others, published
from customer_activity.kafka import topics
from customer_activity.settings import Settings
from customer_activity.verification.verify import verify
from support.broker import consumed, rows, send
from support.records import Record, profile, purchase
from support.weeks import drain, killed

HIGH, OTHER = ROUTES
PLACES = [
    *(f"routing:{point}" for point in ("staged", "committed", "written")),
    *(f"publish_routed:{point}" for point in ("planned", "sending", "published", "written")),
]


@pytest.fixture
def routing(settings: Settings, tmp_path: Path) -> Iterator[Settings]:
    """Return settings with routing on, rules of the test's own, and its topics."""
    topology.switch_on(["publish_routed"])
    topics.check(settings, create=True)
    own = settings.model_copy(
        update={"streams": "publish_routed", "routing_rules": tmp_path / "rules.yaml", "fail_points": True}
    )
    ruled(own, 1000)
    yield own
    topology.switch_on([])


def ruled(settings: Settings, least: int) -> None:
    """Write rules: purchases of so much are of high value."""
    conditions = [{"column": "amount", "is": ">=", "value": least}]
    document = {"rules": [{"rule": "large", "when": conditions, "route": HIGH}], "default": OTHER}
    settings.routing_rules.write_text(json.dumps(document), encoding="utf-8")


def bought(numbers: range) -> list[Record]:
    return [purchase(f"P-{number}", f"C-{number % 5}", f"{100 * (number % 13)}.50") for number in numbers]


@pytest.mark.nightly
@pytest.mark.parametrize("place", PLACES)
def test_row_and_message_never_disagree(spark: SparkSession, routing: Settings, place: str) -> None:
    send(routing, profile("C-1", loyaltyStatus="GOLD"), *bought(range(60)))
    drain(spark, routing)
    ruled(routing, 500)
    send(routing, *bought(range(60, 120)))
    killed(routing, place)
    ruled(routing, 900)
    send(routing, *bought(range(120, 130)))
    drain(spark, routing)
    routed = {row["purchase_id"]: row for row in rows(routing, Table.ROUTED)}
    assert len(routed) == 130
    assert len({row["rules_version"] for row in routed.values()}) > 1
    for route in ROUTES:
        sent = consumed(routing, routing.topics[route])
        of_route = {name for name, row in routed.items() if row["route"] == route}
        assert sorted(key.decode() for key, _ in sent) == sorted(of_route)
        for key, value in sent:
            said, row = json.loads(value or b"", parse_float=Decimal), routed[key.decode()]
            assert (said["purchaseId"], said["amount"], said["rule"], said["rulesVersion"]) == (
                row["purchase_id"],
                row["amount"],
                row["rule"],
                row["rules_version"],
            )
            assert not {"name", "email", "address"} & set(said)
    checks = verify(routing, settle_seconds=0, others=others(), published=published(routing)).checks
    assert [check.name for check in checks if not check.ok] == []
    compared = {check.name: check.observed for check in checks}
    assert {"gold.routed_purchases", "ops.routing_rules"} <= compared.keys()
    counts = Counter(row["route"] for row in routed.values())
    assert {route: compared[routing.topics[route]] for route in ROUTES} == counts
