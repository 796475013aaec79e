"""Routed purchases: one route each, by the rules that were in force when it landed, whatever happens since."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import ROUTES, Table
from customer_activity.errors import SettingsError
from customer_activity.lake import delta
from customer_activity.lake.failpoints import FailPoint
from customer_activity.operations import current_rows, recomputing
from customer_activity.rebuild.building import Choice
from customer_activity.rebuild.run import rebuild_in
from customer_activity.settings import Settings
from support.pipeline import Pipeline
from support.proof import proof
from support.quick_pipeline import QuickPipeline
from support.records import Record, profile, purchase

HIGH, OTHER = ROUTES
nightly = pytest.mark.nightly


class Killed(Exception):
    """Raised at a fail point, as if the process had ended there."""


@pytest.fixture
def routing(spark: SparkSession, settings: Settings, tmp_path: Path) -> Iterator[Pipeline]:
    """Return the queries with that of routing switched on, and rules of the test's own."""
    topology.switch_on(["routing"])
    delta.ensure_tables(settings.lake)
    own = settings.model_copy(update={"routing_rules": tmp_path / "rules.yaml"})
    ruled(own, 1000)
    yield QuickPipeline(spark, own)
    topology.switch_on([])


def ruled(settings: Settings, least: float, **more: Any) -> None:
    """Write rules: purchases of so much are of high value, and what `more` says."""
    conditions = [{"column": "amount", "is": ">=", "value": least}]
    conditions += [{"column": name, "is": "=", "value": value} for name, value in more.items()]
    document = {"rules": [{"rule": "large", "when": conditions, "route": HIGH}], "default": OTHER}
    settings.routing_rules.write_text(json.dumps(document), encoding="utf-8")


def land(pipeline: Pipeline, *records: Record) -> None:
    pipeline.send(*records)
    for hop in ("bronze", "silver", "enrichment"):
        pipeline.hop(hop)


def routes(pipeline: Pipeline) -> dict[str, tuple[str, str]]:
    return {row["purchase_id"]: (row["rule"], row["route"]) for row in pipeline.rows(Table.ROUTED)}


def assert_right(pipeline: Pipeline) -> None:
    for table in (Table.ROUTED, Table.ROUTING_RULES, Table.ENRICHED):
        check = proof(pipeline, table)
        assert check.ok, check


def test_a_purchase_takes_one_route(routing: Pipeline) -> None:
    land(routing, profile(), purchase("P-1", amount="1000.00"), purchase("P-2", amount="999.99"))
    routing.hop("routing")
    assert routes(routing) == {"P-1": ("large", HIGH), "P-2": ("default", OTHER)}
    assert_right(routing)


@pytest.mark.parametrize(
    "condition",
    [
        {"column": "amount", "is": "<=", "value": 2},
        {"column": "amount", "is": "in", "value": [1, 3]},
        {"column": "product_id", "is": "!=", "value": "it's"},
        *(
            pytest.param({"column": column, "is": how, "value": value}, marks=nightly)
            for column, how, value in (
                *(("amount", how, 2) for how in (">", "<", ">=", "=", "!=")),
                *(("loyalty_status", how, "GOLD") for how in ("=", "!=")),
                ("loyalty_status", "in", ["GOLD", "UNKNOWN"]),
            )
        ),
    ],
    ids=str,
)
def test_verify_comes_to_the_same(routing: Pipeline, condition: dict[str, Any]) -> None:
    document = {
        "rules": [
            {"rule": "both", "when": [condition, {"column": "amount", "is": ">", "value": 1}], "route": HIGH},
            {"rule": "one", "when": [condition], "route": OTHER},
        ],
        "default": HIGH,
    }
    routing.settings.routing_rules.write_text(json.dumps(document), encoding="utf-8")
    land(
        routing,
        profile("C-1", loyaltyStatus="GOLD"),
        profile("C-2"),
        *(
            purchase(f"P-{customer}-{amount}", customer, f"{amount}.00", productId=product)
            for customer, product in (("C-1", "it's"), ("C-2", None), ("C-3", "X"))
            for amount in (1, 2, 3)
        ),
    )
    routing.hop("routing")
    assert len({rule for rule, _ in routes(routing).values()}) > 1
    assert_right(routing)


def test_executors_come_to_the_same(routing: Pipeline) -> None:
    """Enriched there, too; catalogue and profiles come to the purchases."""
    routing.send(profile("C-1", loyaltyStatus="GOLD"), *(purchase(f"P-{n}", f"C-{n % 3}", f"{n}.00") for n in range(9)))
    ruled(routing.settings, 5, loyalty_status="GOLD")
    for hop in ("bronze", "silver"):
        routing.hop(hop)
    routing.settings = routing.settings.model_copy(update={"placement": "executors"})
    routing.restart()
    for hop in ("enrichment", "routing"):
        placed = routing.hop(hop).placement
        assert placed is not None
        assert str(placed.place) == "executors"
    assert {name for name, (rule, _) in routes(routing).items() if rule == "large"} == {"P-7"}
    assert_right(routing)


def test_other_rules_are_for_what_lands_from_then_on(routing: Pipeline) -> None:
    land(routing, purchase("P-1", amount="500.00"))
    routing.hop("routing")
    ruled(routing.settings, 500)
    routing.restart()
    land(routing, purchase("P-2", amount="500.00"))
    routing.hop("routing")
    assert routes(routing) == {"P-1": ("default", OTHER), "P-2": ("large", HIGH)}
    first, second = (row["rules_version"] for row in sorted(routing.rows(Table.ROUTED), key=lambda r: r["purchase_id"]))
    assert first != second
    assert_right(routing)
    before = routing.rows(Table.ROUTED)
    recomputing.recompute(routing.settings, "routing", "asked for")
    assert routing.rows(Table.ROUTED) == before
    current_rows.make(routing.settings.lake, "routing", 2)
    assert routing.rows(Table.ROUTED) == before
    assert rebuild_in(routing.spark, routing.settings, Choice()).differences == 0
    assert_right(routing)


@pytest.mark.parametrize(
    ("commit", "place", "wanted"),
    [
        pytest.param(1, FailPoint.STAGED, HIGH, id="before the rules are stored"),
        pytest.param(1, FailPoint.COMMITTED, OTHER, id="once the rules are stored"),
        pytest.param(2, FailPoint.STAGED, OTHER, id="before the rows are", marks=nightly),
        pytest.param(2, FailPoint.COMMITTED, OTHER, id="once the rows are"),
    ],
)
def test_a_driver_that_is_killed_routes_the_same(routing: Pipeline, commit: int, place: FailPoint, wanted: str) -> None:
    land(routing, purchase("P-1", amount="500.00"))
    reached: list[FailPoint] = []

    def killed(point: FailPoint) -> None:
        reached.append(point)
        if point is place and reached.count(place) == commit:
            raise Killed

    with pytest.raises(Killed):
        routing.hop("routing", killed)
    ruled(routing.settings, 500)
    routing.repeat("routing")
    assert [row["route"] for row in routing.rows(Table.ROUTED)] == [wanted]
    land(routing, purchase("P-2", amount="500.00"))
    routing.hop("routing")
    assert routes(routing)["P-2"] == ("large", HIGH)
    assert_right(routing)


def test_where_it_never_ran_no_rules_are_made_up(routing: Pipeline) -> None:
    land(routing, purchase("P-1"))
    with pytest.raises(SettingsError, match="routing has never run") as refused:
        current_rows.make(routing.settings.lake, "routing", 1)
    assert "ACTIVITY_STREAMS" in refused.value.remedy
    recomputing.recompute(routing.settings, "routing", "to begin with")
    assert routes(routing) == {"P-1": ("default", OTHER)}
    assert_right(routing)


def test_a_wrong_file_of_rules_stops_it_before_anything_is_routed(routing: Pipeline) -> None:
    land(routing, purchase("P-1"))
    ruled(routing.settings, 1000, departmnt="FOOD")
    with pytest.raises(SettingsError, match="no column departmnt"):
        routing.hop("routing")
    assert routes(routing) == {}
