"""The rules about enriched and routed purchases: an intact lake passes them, and each finds what it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import ROUTES, Table
from customer_activity.lake import delta
from customer_activity.operations import catalogue
from customer_activity.quality.run import run
from customer_activity.settings import Settings
from support.pipeline import copied_lake
from support.quality import Rows, failing, rewrite
from support.quick_pipeline import QuickPipeline
from support.records import profile, purchase

HIGH, OTHER = ROUTES
nightly = pytest.mark.nightly
Change = Callable[[Rows], Rows | None]


@pytest.fixture
def on() -> Iterator[None]:
    """Switch routing on."""
    topology.switch_on(["routing"])
    yield
    topology.switch_on([])


@pytest.fixture(scope="module")
def routed(spark: SparkSession, empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Make a lake with purchases that are routed, by two versions of the catalogue; nobody changes it."""
    topology.switch_on(["routing"])
    folder = tmp_path_factory.mktemp("routed")
    settings = copied_lake(empty_lake, folder)
    delta.ensure_tables(settings.lake)
    pipeline, file = QuickPipeline(spark, settings), folder / "catalogue.csv"
    for number in range(3):
        pipeline.send(
            profile("C-1", 1_000 + number, address=f"{number} Street"),
            *(purchase(f"P-{number}-{each}", f"C-{each}", f"{800 * each}.00", productId="X") for each in range(3)),
        )
        for hop in ("bronze", "silver", "enrichment", "routing"):
            pipeline.hop(hop)
        file.write_text(f"product_id,department\nX,D-{number}\n", encoding="utf-8")
        catalogue.load(settings.lake, file)
    pipeline.close()
    topology.switch_on([])
    return settings


def judged(settings: Settings) -> set[str]:
    """Return the rules about these tables that fail."""
    tables = {table.label for spec in topology.optional() for table in spec.tables if table in topology.tables()}
    return failing(run(settings, sorted(tables)))


def first(**values: Any) -> Change:
    """Change the first row."""
    return lambda rows: [rows[0] | values, *rows[1:]]


def each(**values: Any) -> Change:
    """Change all rows."""
    return lambda rows: [row | values for row in rows]


def again(rows: Rows) -> Rows:
    return [*rows, rows[0]]


def fewer(rows: Rows) -> Rows:
    return rows[1:]


def moved(rows: Rows) -> Rows:
    return [row | {"address": "elsewhere"} for row in rows]


def backwards(rows: Rows) -> Rows:
    return [row | {"landing": 10 - row["landing"]} for row in rows]


DAMAGES = [
    pytest.param(Table.ENRICHED, again, "purchases_are_enriched_once", id="enriched twice"),
    pytest.param(Table.ENRICHED, fewer, "purchases_are_enriched_once", id="not enriched", marks=nightly),
    pytest.param(Table.ENRICHED, moved, "profiles_are_those_of_their_coordinates", id="another address"),
    pytest.param(Table.ENRICHED, each(landing=0), "profiles_are_those_of_their_coordinates", id="a profile from later"),
    pytest.param(
        Table.ENRICHED, first(catalogue_version=7), "products_are_those_of_their_version", id="a version", marks=nightly
    ),
    pytest.param(
        Table.ENRICHED, each(department="UNKNOWN", brand="UNKNOWN"), "few_products_are_unknown", id="unknown products"
    ),
    pytest.param(Table.CATALOGUE_VERSIONS, again, "one_catalogue_version_a_landing", id="decided twice", marks=nightly),
    pytest.param(Table.CATALOGUE_VERSIONS, backwards, "catalogue_versions_never_go_back", id="it goes back"),
    pytest.param(
        Table.CATALOGUE_VERSIONS,
        first(catalogue_version=7),
        "catalogue_versions_never_go_back",
        id="made up",
        marks=nightly,
    ),
    pytest.param(Table.PRODUCTS, again, "a_version_changes_a_product_once", id="a product twice", marks=nightly),
    pytest.param(Table.ROUTED, again, "purchases_are_routed_once", id="routed twice", marks=nightly),
    pytest.param(Table.ROUTED, fewer, "purchases_are_routed_once", id="not routed"),
    pytest.param(Table.ROUTED, each(route=HIGH), "routes_are_those_of_the_stored_rules", id="another route"),
    pytest.param(
        Table.ROUTED, first(rules_version="x"), "routes_are_those_of_the_stored_rules", id="other rules", marks=nightly
    ),
    pytest.param(Table.ROUTING_RULES, again, "one_set_of_routing_rules_a_landing", id="rules twice", marks=nightly),
]


def test_an_intact_lake_passes(routed: Settings, on: None, tmp_path: Path) -> None:
    settings = copied_lake(Path(routed.lake), tmp_path, quality_docs=str(tmp_path / "docs"))
    assert judged(settings) == set()


@pytest.mark.parametrize(("table", "change", "found"), DAMAGES)
def test_a_rule_finds_what_it_is_about(
    routed: Settings, on: None, tmp_path: Path, table: Table, change: Change, found: str
) -> None:
    settings = copied_lake(Path(routed.lake), tmp_path, quality_docs=str(tmp_path / "docs"))
    rewrite(settings.lake, table, change)
    assert found in judged(settings)
