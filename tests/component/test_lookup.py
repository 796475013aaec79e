"""Rows that are looked up in a table as a whole: on this machine by DuckDB, elsewhere by Arrow."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.columns import TRACE
from customer_activity.lake import delta, lookup
from customer_activity.maintenance import maintenance
from support.tables import append

COLUMNS = ("purchase_id", "partition", "offset", "currency", TRACE[0].name)
WAYS = {"by DuckDB": "lake", "by Arrow": "la*k?e"}  # DuckDB would take that for a pattern


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a lake whose silver.purchases has nine purchases in four files, beside one that a pattern would match."""
    lake = str(tmp_path / request.param)
    delta.ensure_tables(lake)
    for numbers in (range(1), range(1, 3), range(3, 8), range(8, 9)):
        append(lake, Table.PURCHASES, *map(purchase, numbers))
    shutil.copytree(lake, tmp_path / "lakee")
    return lake


def purchase(number: int) -> dict[str, object]:
    return {"purchase_id": f"P-{number}", "partition": 0, "offset": number, "currency": "EUR"}


def found(lake: str, *ids: str) -> list[dict[str, object]]:
    rows = lookup.rows_of(lake, Table.PURCHASES, COLUMNS, pa.array(ids, pa.string())).sort_by("offset").to_pylist()
    assert all(list(row) == list(COLUMNS) for row in rows)
    return [{name: value for name, value in row.items() if name != COLUMNS[-1]} for row in rows]


@pytest.mark.parametrize("at_a_time", [1, 3, 100])
@pytest.mark.parametrize("is_compacted", [False, True], ids=["appended", "compacted"])
@pytest.mark.parametrize("numbers", [(), (0,), (2, 5), (3, 4, 5, 6, 7, 8), range(9)], ids=str)
def test_rows_with_the_keys_are_found(
    lake: str, numbers: tuple[int, ...], is_compacted: bool, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "ROWS_AT_A_TIME", at_a_time)
    if is_compacted:  # by delta-rs, which has types of its own for texts
        assert maintenance.compact(lake, Table.PURCHASES) is not None
    unknown = ("P-9", "p-1", "P-", "", "'", "*")
    assert found(lake, *unknown, *(f"P-{number}" for number in numbers)) == [purchase(number) for number in numbers]


@pytest.mark.parametrize("ids", [(), ("P-1",)], ids=["no key", "a key"])
def test_an_empty_table_has_none(tmp_path: Path, ids: tuple[str, ...]) -> None:
    lake = str(tmp_path / "lake")
    delta.ensure_tables(lake)
    assert found(lake, *ids) == []


def test_no_file_without_such_a_row_is_read_again(lake: str) -> None:
    """Its other columns could not even be read."""
    for file in Path(table_path(lake, Table.PURCHASES)).glob("*.parquet"):
        rows = pq.read_table(file)
        if not {"P-0", "P-4"} & set(rows.column("purchase_id").to_pylist()):
            pq.write_table(
                rows.set_column(rows.schema.names.index("offset"), "offset", pa.array([[{"a": 1}]] * len(rows))), file
            )
    assert found(lake, "P-0", "P-4") == [purchase(0), purchase(4)]


def test_what_a_file_lacks_is_null(lake: str) -> None:
    """A column that came later is in no older file."""
    for file in Path(table_path(lake, Table.PURCHASES)).glob("*.parquet"):
        pq.write_table(pq.read_table(file).drop_columns([TRACE[0].name]), file)
    assert found(lake, "P-7") == [purchase(7)]


def test_a_file_that_is_gone_is_named(lake: str) -> None:
    lost = next(Path(table_path(lake, Table.PURCHASES)).glob("*.parquet"))
    lost.unlink()
    with pytest.raises(FileNotFoundError) as raised:
        found(lake, "P-1")
    assert lost.name in f"{raised.value} {raised.value.filename}"


def test_it_gives_signs_of_life(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "ROWS_AT_A_TIME", 3)
    told: list[str] = []
    lookup.rows_of(lake, Table.PURCHASES, COLUMNS, pa.array(["P-1"]), told.append)
    assert len(told) > 1
    assert told[-1] == "9 rows of silver.purchases are compared with the batch"
