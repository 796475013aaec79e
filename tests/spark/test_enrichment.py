"""Enriched purchases: what was known when a purchase landed, whatever the batches, the crashes and what comes later."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import REPLAY, Table
from customer_activity.lake import delta
from customer_activity.lake.failpoints import FailPoint
from customer_activity.operations import catalogue, current_rows, recomputing
from customer_activity.rebuild.building import Choice
from customer_activity.rebuild.repair import apply_in
from customer_activity.rebuild.run import rebuild_in
from customer_activity.settings import Settings
from customer_activity.streams.enrichment import state
from support import tables
from support.pipeline import Pipeline
from support.proof import proof, proofs
from support.quick_pipeline import QuickPipeline
from support.records import Record, profile, purchase, tombstone

nightly = pytest.mark.nightly
TABLES = (Table.ENRICHED, Table.CATALOGUE_VERSIONS, Table.PRODUCTS)


class Killed(Exception):
    """Raised at a fail point, as if the process had ended there."""


@pytest.fixture
def enriching(spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    """Return the queries with that of enrichment switched on."""
    topology.switch_on(["enrichment"])
    delta.ensure_tables(settings.lake)
    monkeypatch.setattr(state, "MANY_RECORDS", 20)  # of a customer
    yield QuickPipeline(spark, settings)
    topology.switch_on([])


def load(pipeline: Pipeline, tmp_path: Path, *products: str) -> int:
    """Load a catalogue of lines `id,department`; return its version."""
    file = tmp_path / "catalogue.csv"
    file.write_text("\n".join(["product_id,department", *products]), encoding="utf-8")
    return catalogue.load(pipeline.settings.lake, file).version


def land(pipeline: Pipeline, *records: Record) -> None:
    pipeline.send(*records)
    pipeline.hop("bronze")


def follow(pipeline: Pipeline) -> None:
    for hop in ("silver", "enrichment"):
        pipeline.hop(hop)


def enriched(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    return {row["purchase_id"]: row for row in pipeline.rows(Table.ENRICHED)}


def assert_right(pipeline: Pipeline) -> None:
    for check in proofs(pipeline, *TABLES):
        assert check.ok, check


def test_an_address_that_changes(enriching: Pipeline) -> None:
    """The example of docs/ENRICHMENT.md."""
    land(enriching, profile("C-1", address="1 Old Street"), purchase("P-1", "C-1", "10.00"))
    land(enriching, profile("C-1", 2_000, address="2 New Street"), purchase("P-2", "C-1", "20.00"))
    follow(enriching)
    land(enriching, purchase("P-3", "C-2", "30.00"))
    land(enriching, profile("C-2", address="3 Last Street"))
    follow(enriching)
    assert {name: (row["address"], row["profile_landing"]) for name, row in enriched(enriching).items()} == {
        "P-1": ("1 Old Street", 1),
        "P-2": ("2 New Street", 2),
        "P-3": ("UNKNOWN", None),
    }
    for hop in ("gold", "activity"):
        enriching.hop(hop)
    view = {
        name: (row["address"], row["purchase_count"], row["total_amount"]) for name, row in enriching.gold().items()
    }
    assert view == {
        "C-1": ("2 New Street", 2, Decimal("30.00")),
        "C-2": ("3 Last Street", 1, Decimal("30.00")),
    }
    assert_right(enriching)


def test_what_one_batch_of_silver_brings_together_is_told_apart(enriching: Pipeline) -> None:
    land(enriching, profile(address="1 Old Street"), purchase("P-1"))
    land(enriching, profile(address="2 New Street", updated=2_000), purchase("P-2"))
    land(enriching, tombstone(), purchase("P-3"))
    land(enriching, profile(address="3 Last Street", updated=500), purchase("P-4"))
    follow(enriching)
    assert {name: row["address"] for name, row in enriched(enriching).items()} == {
        "P-1": "1 Old Street",
        "P-2": "2 New Street",
        "P-3": "UNKNOWN",
        "P-4": "3 Last Street",
    }
    assert_right(enriching)


def test_silver_keeps_too_little_of_profiles_to_tell(enriching: Pipeline) -> None:
    land(enriching, profile(address="1 Old Street"), purchase("P-1"))
    land(enriching, profile(address="2 New Street", updated=2_000), purchase("P-2"))
    follow(enriching)
    (change,) = enriching.rows(Table.PROFILE_CHANGES)
    assert (change["address"], enriched(enriching)["P-1"]["address"]) == ("2 New Street", "1 Old Street")


def test_a_catalogue_is_taken_in_between_two_batches(enriching: Pipeline, tmp_path: Path) -> None:
    for number, products in enumerate([[], ["X,DRINKS"], ["X,FOOD", "Y,"], ["Y,TOYS"]]):
        if products:
            load(enriching, tmp_path, *products)
        land(enriching, purchase(f"X-{number}", productId="X"), purchase(f"Y-{number}", productId="Y"))
        follow(enriching)
    departments = {name: (row["department"], row["catalogue_version"]) for name, row in enriched(enriching).items()}
    assert departments == {
        "X-0": ("UNKNOWN", 0),
        "X-1": ("DRINKS", 1),
        "X-2": ("FOOD", 2),
        "X-3": ("UNKNOWN", 3),
        "Y-0": ("UNKNOWN", 0),
        "Y-1": ("UNKNOWN", 1),
        "Y-2": (None, 2),
        "Y-3": ("TOYS", 3),
    }
    assert_right(enriching)


@pytest.mark.parametrize(
    ("commit", "place", "version"),
    [
        pytest.param(1, FailPoint.STAGED, 2, id="before the version is stored"),
        pytest.param(1, FailPoint.COMMITTED, 1, id="once the version is stored"),
        pytest.param(2, FailPoint.STAGED, 1, id="before the rows are", marks=nightly),
        pytest.param(2, FailPoint.COMMITTED, 1, id="once the rows are"),
    ],
)
def test_a_driver_that_is_killed_enriches_the_same(
    enriching: Pipeline, tmp_path: Path, commit: int, place: FailPoint, version: int
) -> None:
    load(enriching, tmp_path, "X,DRINKS")
    land(enriching, profile(), purchase("P-1", productId="X"))
    enriching.hop("silver")
    reached: list[FailPoint] = []

    def killed(point: FailPoint) -> None:
        reached.append(point)
        if point is place and reached.count(place) == commit:
            raise Killed

    with pytest.raises(Killed):
        enriching.hop("enrichment", killed)
    load(enriching, tmp_path, "X,FOOD")
    land(enriching, profile(address="2 New Street", updated=2_000))
    enriching.repeat("enrichment")
    assert [(row["catalogue_version"], row["address"]) for row in enriching.rows(Table.ENRICHED)] == [
        (version, "1 Old Street")
    ]
    land(enriching, purchase("P-2", productId="X"))
    follow(enriching)
    assert enriched(enriching)["P-2"]["department"] == "FOOD"
    assert_right(enriching)


def world(seed: int, records: int = 90) -> list[Record]:
    """Return purchases of a few customers and products, among profiles that change, come late, and end.

    One customer's profile changes all the time.
    """
    chance = random.Random(seed)

    def record(number: int) -> Record:
        customer = f"C-{chance.randrange(5)}"
        kind = chance.random()
        if number % 6:
            return profile("C-0", chance.randrange(max(1, number - 9), number + 5), address=f"{number % 4} Street")
        if kind < 0.15:
            return tombstone(customer)
        if kind < 0.5:
            return profile(customer, chance.randrange(max(1, number - 20), number + 5), address=f"{number} Street")
        return purchase(f"P-{chance.randrange(records)}", customer, productId=f"{chance.randrange(4)}")

    return [record(number) for number in range(6 * records)]


def landed(pipeline: Pipeline, tmp_path: Path, seed: int, cuts: int) -> None:
    """Land a world in so many landings, followed now and then, with catalogues and losses of state in between."""
    chance, records = random.Random(seed), world(seed)
    size = -(-len(records) // cuts)
    for begin in range(0, len(records), size):
        land(pipeline, *records[begin : begin + size])
        if chance.random() < 0.5:
            follow(pipeline)
        if chance.random() < 0.2 and pipeline.settings.index_dir.exists():
            pipeline.restart(loses_indexes=True)
        if chance.random() < 0.3:
            load(pipeline, tmp_path, *(f"{number},{begin + number % 2}" for number in range(3)))
    follow(pipeline)


@pytest.mark.parametrize(
    ("seed", "cuts"), [(1, 12), *(pytest.param(seed, 3 * seed, marks=nightly) for seed in range(2, 12))]
)
def test_whatever_the_order_and_the_batches(enriching: Pipeline, tmp_path: Path, seed: int, cuts: int) -> None:
    landed(enriching, tmp_path, seed, cuts)
    assert len(enriched(enriching)) == len(enriching.rows(Table.PURCHASES))
    assert_right(enriching)


def test_computed_again_the_rows_are_the_same(enriching: Pipeline, tmp_path: Path) -> None:
    landed(enriching, tmp_path, 20, 8)
    load(enriching, tmp_path, "0,NEW")
    before = enriching.rows(Table.ENRICHED)
    land(enriching, purchase("P-new", productId="0"))
    enriching.hop("silver")
    current_rows.make(enriching.settings.lake, "enrichment", 1)
    assert [row for row in enriching.rows(Table.ENRICHED) if row["purchase_id"] != "P-new"] == before
    assert enriched(enriching)["P-new"]["department"] == "NEW"
    decided = enriching.rows(Table.CATALOGUE_VERSIONS)
    load(enriching, tmp_path, "0,NEWER")
    recomputing.recompute(enriching.settings, "enrichment", "asked for")
    assert enriched(enriching)["P-new"]["department"] == "NEW"
    assert enriching.rows(Table.CATALOGUE_VERSIONS) == decided
    assert_right(enriching)


def test_it_follows_a_correction(enriching: Pipeline, tmp_path: Path) -> None:
    landed(enriching, tmp_path, 21, 6)
    before, wrong = enriching.rows(Table.ENRICHED), enriching.rows(Table.PURCHASES)[0] | {"purchase_id": "P-X"}
    tables.append(enriching.settings.lake, Table.PURCHASES, wrong, query=REPLAY)  # which bronze does not know
    enriching.hop("enrichment")
    assert proof(enriching, Table.ENRICHED).examples == ("P-X should not be there",)
    assert apply_in(enriching.spark, enriching.settings, read=lambda *_: {}).correction is not None
    assert rebuild_in(enriching.spark, enriching.settings, Choice()).differences == 0
    assert enriching.rows(Table.ENRICHED) == before
    assert_right(enriching)
