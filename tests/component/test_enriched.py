"""Enrichment of what was there before: purchases of before landings were numbered, and a table without its stream."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.errors import SettingsError
from customer_activity.lake import delta
from customer_activity.operations import catalogue, current_rows
from customer_activity.settings import Settings
from support.tables import append

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def routing(settings: Settings) -> Iterator[Settings]:
    """Return settings of a lake with routing on."""
    topology.switch_on(["routing"])
    delta.ensure_tables(settings.lake)
    yield settings
    topology.switch_on([])


def bought(settings: Settings, number: int, landing: int | None) -> None:
    place = {"partition": 0, "offset": number, "kafka_timestamp": AT, "landing": landing}
    said = {"customer_id": "C-1", "product_id": "X", "amount": Decimal(number), "currency": "EUR", "occurred_at": AT}
    append(settings.lake, Table.PURCHASES, {"purchase_id": f"P-{number}", **said, **place})


def moved(settings: Settings, number: int, landing: int | None) -> None:
    place = {"partition": 0, "offset": number, "kafka_timestamp": AT, "landing": landing, "is_tombstone": False}
    said = {"customer_id": "C-1", "name": "Ada", "address": f"{number} Street", "updated_at": AT}
    append(settings.lake, Table.PROFILE_EVENTS, {**said, **place}, query="bronze")


def rows(settings: Settings, table: Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(table_path(settings.lake, table)).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: row["purchase_id"])


def test_what_landed_before_landings_were_numbered(routing: Settings, tmp_path: Path) -> None:
    for number, landing in enumerate((None, None, 1, 2)):
        moved(routing, number, landing)
        bought(routing, number, landing)
    file = tmp_path / "catalogue.csv"
    file.write_text("product_id,department\nX,FOOD\n", encoding="utf-8")
    catalogue.load(routing.lake, file)
    for stream in ("enrichment", "routing"):
        current_rows.make(routing.lake, stream, 1, by=routing)
    found = {row["purchase_id"]: (row["address"], row["department"]) for row in rows(routing, Table.ENRICHED)}
    # Those without a number share one landing: the newest profile of it is what is known.
    assert found == {
        name: (f"{number} Street", "FOOD")
        for name, number in zip(["P-0", "P-1", "P-2", "P-3"], (1, 1, 2, 3), strict=True)
    }
    assert [row["rule"] for row in rows(routing, Table.ROUTED)] == ["default"] * 4


def test_an_empty_lake_has_nothing_to_enrich(routing: Settings) -> None:
    for stream in ("enrichment", "routing"):
        current_rows.make(routing.lake, stream, 1)
    assert rows(routing, Table.ENRICHED) == rows(routing, Table.ROUTED) == []


def test_rules_are_asked_for_only_where_something_waits(routing: Settings) -> None:
    bought(routing, 1, 1)
    current_rows.make(routing.lake, "enrichment", 1)
    with pytest.raises(SettingsError, match="routing has never run"):
        current_rows.make(routing.lake, "routing", 1)
