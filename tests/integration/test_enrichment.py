"""Enrichment through the broker: a driver that is killed anywhere in it, a catalogue that is loaded, and verify."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.commands.verify import others
from customer_activity.settings import Settings
from customer_activity.verification.verify import verify
from support.broker import rows, send
from support.records import Record, profile, purchase
from support.shell import environment
from support.weeks import drain, killed

STREAMS = ("enrichment",)
PLACES = [f"enrichment:{point}" for point in ("staged", "committed", "written")]


@pytest.fixture
def enriching(settings: Settings) -> Iterator[Settings]:
    """Return settings with enrichment on."""
    topology.switch_on(STREAMS)
    yield settings.model_copy(update={"streams": ",".join(STREAMS), "fail_points": True})
    topology.switch_on([])


def load(settings: Settings, folder: Path, *products: str) -> None:
    file = folder / "catalogue.csv"
    file.write_text("\n".join(["product_id,department", *products]), encoding="utf-8")
    command = [sys.executable, "-m", "customer_activity", "catalogue", "load", str(file)]
    done = subprocess.run(command, env=environment(settings), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def bought(numbers: range) -> list[Record]:
    return [purchase(f"P-{number}", f"C-{number % 5}", productId=f"{number % 4}") for number in numbers]


@pytest.mark.nightly
@pytest.mark.parametrize("place", PLACES)
def test_a_driver_that_is_killed_while_it_enriches_harms_nothing(
    spark: SparkSession, enriching: Settings, tmp_path: Path, place: str
) -> None:
    send(enriching, *(profile(f"C-{number}") for number in range(3)), *bought(range(40)))
    drain(spark, enriching)
    load(enriching, tmp_path, "0,FOOD", "1,TOYS")
    moved = (profile(f"C-{number}", 2_000, address="2 New Street") for number in range(2))
    send(enriching, *moved, *bought(range(40, 80)))
    killed(enriching, place)
    load(enriching, tmp_path, "0,DRINKS", "2,GAMES")
    send(enriching, *bought(range(80, 90)))
    drain(spark, enriching)
    found = rows(enriching, Table.ENRICHED)
    assert len({row["purchase_id"] for row in found}) == len(found) == 90
    assert {row["catalogue_version"] for row in found} >= {0, 2}
    checks = verify(enriching, settle_seconds=0, others=others()).checks
    assert [check.name for check in checks if not check.ok] == []
    assert {"silver.enriched_purchases", "ops.catalogue_versions", "reference.products"} <= {
        check.name for check in checks
    }
