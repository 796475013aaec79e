"""`activity catalogue load`: a file becomes a version of the catalogue, once, and a wrong file none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.commands import catalogue as command
from customer_activity.contracts.tables import arrow_schema
from customer_activity.demo.traffic import dataset
from customer_activity.errors import ActivityError, SettingsError, TransientError
from customer_activity.lake import delta
from customer_activity.operations import catalogue
from customer_activity.operations.catalogue import Loaded
from customer_activity.settings import Settings


@pytest.fixture
def on() -> Iterator[None]:
    """Switch enrichment on."""
    topology.switch_on(["enrichment"])
    yield
    topology.switch_on([])


@pytest.fixture
def enriching(settings: Settings, on: None) -> str:
    """Return a lake with the catalogue's table."""
    delta.ensure_tables(settings.lake)
    return settings.lake


def written(folder: Path, text: str | bytes, name: str = "catalogue.csv") -> Path:
    file = folder / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def rows(lake: str) -> list[dict[str, Any]]:
    found = DeltaTable(table_path(lake, Table.PRODUCTS)).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: (row["version"], row["product_id"]))


def test_each_version_has_what_it_changes(enriching: str, tmp_path: Path) -> None:
    first = written(tmp_path, "product_id,department,brand\n1,FOOD,A\n2,TOYS,\n3,DRINKS,B\n")
    assert catalogue.load(enriching, first) == Loaded(version=1, products=3, changed=3, gone=0)
    second = written(tmp_path, "product_id,department,brand\n1,FOOD,A\n2,GAMES,\n4,DRINKS,B\n")
    assert catalogue.load(enriching, second) == Loaded(version=2, products=3, changed=2, gone=1)
    changes = [
        (row["version"], row["product_id"], row["department"], row["brand"], row["is_gone"]) for row in rows(enriching)
    ]
    assert changes == [
        (1, "1", "FOOD", "A", False),
        (1, "2", "TOYS", None, False),
        (1, "3", "DRINKS", "B", False),
        (2, "2", "GAMES", None, False),
        (2, "3", None, None, True),
        (2, "4", "DRINKS", "B", False),
    ]


def test_a_file_that_is_loaded_again_changes_nothing(enriching: str, tmp_path: Path) -> None:
    file = written(tmp_path, "product_id,department\n1,FOOD\n2,\n")
    catalogue.load(enriching, file)
    before = DeltaTable(table_path(enriching, Table.PRODUCTS)).version()
    assert catalogue.load(enriching, file) == Loaded(version=1, products=2, changed=0, gone=0)
    assert DeltaTable(table_path(enriching, Table.PRODUCTS)).version() == before


def test_a_product_that_comes_back_is_there_again(enriching: str, tmp_path: Path) -> None:
    for products in ("1,FOOD\n2,TOYS", "2,TOYS", "1,FOOD\n2,TOYS"):
        done = catalogue.load(enriching, written(tmp_path, f"product_id,department\n{products}\n"))
    assert done == Loaded(version=3, products=2, changed=1, gone=0)


def test_numbers_of_a_parquet_file_are_texts(enriching: str, tmp_path: Path) -> None:
    file = tmp_path / "catalogue.parquet"
    pq.write_table(pa.table({"product_id": pa.array([25671], pa.int64()), "manufacturer_id": [2]}), file)
    catalogue.load(enriching, file)
    assert [(row["product_id"], row["manufacturer_id"]) for row in rows(enriching)] == [("25671", "2")]


def test_the_data_sets_products_are_a_catalogue(enriching: str) -> None:
    assert catalogue.load(enriching, dataset.catalogue()) == Loaded(version=1, products=92_331, changed=92_331, gone=0)
    assert catalogue.load(enriching, dataset.catalogue()).changed == 0


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        pytest.param(
            "catalogue.csv", "product_id,departmnt\n1,FOOD\n", "unknown column departmnt", id="a typing error"
        ),
        pytest.param("catalogue.csv", "department\nFOOD\n", "no column product_id", id="no ids"),
        pytest.param("catalogue.csv", "product_id\n1\n2\n1\n", "product 1 more than once", id="an id twice"),
        pytest.param(
            "catalogue.csv", "product_id,brand\n1,A\n,B\n", "1 rows have no product_id", id="a row without id"
        ),
        pytest.param("catalogue.csv", "product_id\n", "has no product", id="empty"),
        pytest.param("catalogue.csv", "", "cannot be read", id="nothing at all"),
        pytest.param("catalogue.csv", "product_id\n\x1b[1m\n", "control characters", id="an escape sequence"),
        pytest.param("catalogue.csv", b"product_id\n\xff\n", "cannot be read", id="not UTF-8"),
        pytest.param("catalogue.csv", "product_id,brand\n1\n", "cannot be read", id="a short line"),
        pytest.param("catalogue.parquet", "product_id\n1\n", "cannot be read", id="not Parquet"),
        pytest.param("catalogue.json", "[]", "neither .csv nor .parquet", id="another format"),
        pytest.param("missing.csv", None, "cannot be read", id="no file"),
    ],
)
def test_what_is_no_catalogue_is_refused(
    enriching: str, tmp_path: Path, name: str, content: str | bytes | None, words: str
) -> None:
    file = tmp_path / name if content is None else written(tmp_path, content, name)
    with pytest.raises(ActivityError, match=words) as refused:
        catalogue.load(enriching, file)
    assert (refused.value.exit_code, bool(refused.value.remedy)) == (2, True)
    assert rows(enriching) == []


def test_without_enrichment_it_says_what_to_switch_on(settings: Settings, tmp_path: Path) -> None:
    delta.ensure_tables(settings.lake)
    with pytest.raises(SettingsError, match="enrichment is off") as refused:
        catalogue.load(settings.lake, written(tmp_path, "product_id\n1\n"))
    assert "ACTIVITY_STREAMS" in refused.value.remedy


def test_two_that_load_at_once_make_two_versions(
    enriching: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = (written(tmp_path, f"product_id\n{name}\n", f"{name}.csv") for name in ("mine", "theirs"))
    compared, waiting = catalogue.changes, [theirs]

    def overtaken(*arguments: Any) -> Any:
        found = compared(*arguments)
        if waiting:
            catalogue.load(enriching, waiting.pop())
        return found

    monkeypatch.setattr(catalogue, "changes", overtaken)
    assert catalogue.load(enriching, mine) == Loaded(version=2, products=1, changed=1, gone=1)
    assert [(row["version"], row["product_id"]) for row in rows(enriching)] == [
        (1, "theirs"),
        (2, "mine"),
        (2, "theirs"),
    ]


def test_one_who_is_always_overtaken_may_try_again(
    enriching: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def always(table: DeltaTable, given: pa.Table) -> tuple[int, pa.Table]:
        DeltaTable(table.table_uri).alter.set_table_properties({"delta.appendOnly": "false"})
        return 1, pa.Table.from_pylist([{"product_id": "1"}], arrow_schema(Table.PRODUCTS))

    monkeypatch.setattr(catalogue, "changes", always)
    with pytest.raises(TransientError, match="written to by others"):
        catalogue.load(enriching, written(tmp_path, "product_id\n1\n"))


def test_the_command_says_what_was_loaded(enriching: str, settings: Settings, tmp_path: Path) -> None:
    file = written(tmp_path, "product_id\n1\n")
    said = CliRunner().invoke(command.app, ["load", str(file), "--json"], obj=settings)
    assert json.loads(said.output) == {"version": 1, "products": 1, "changed": 1, "gone": 0}
    again = CliRunner().invoke(command.app, ["load", str(file)], obj=settings)
    assert "nothing differs from version 1" in again.output
