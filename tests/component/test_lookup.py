"""Rows that are looked up in a table as a whole: on this machine by DuckDB, elsewhere by Arrow."""

from __future__ import annotations

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.columns import TRACE
from customer_activity.lake import delta, lookup
from customer_activity.maintenance import maintenance
from support.tables import append

AT = datetime(2026, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)
COLUMNS = ("purchase_id", "partition", "offset", "currency", "occurred_at", TRACE[0].name)
LAKES = {
    "by DuckDB": "lake",
    "by Arrow": "la*k?e",  # DuckDB would take that for a pattern
    "below a folder that says which partition": "partition=3/lake",
    "below a folder that says which purchase": "purchase_id=P-3/lake",
}


@pytest.fixture(params=list(LAKES.values()), ids=list(LAKES))
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a lake whose silver.purchases has nine purchases in four files, beside one that a pattern would match."""
    lake = str(tmp_path / request.param)
    delta.ensure_tables(lake)
    for numbers in (range(1), range(1, 3), range(3, 8), range(8, 9)):
        append(lake, Table.PURCHASES, *map(purchase, numbers))
    shutil.copytree(lake, tmp_path / "lakee")
    return lake


def purchase(number: int) -> dict[str, object]:
    return {"purchase_id": f"P-{number}", "partition": 0, "offset": number, "currency": "EUR", "occurred_at": AT}


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


@pytest.mark.parametrize("memory", ["1MB", "12MB"])
def test_what_takes_too_much_memory_is_read_otherwise(lake: str, memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "MEMORY", memory)
    unknown = [f"{number:064}" for number in range(200_000)]
    assert found(lake, "P-2", *unknown) == [purchase(2)]


def test_times_that_do_not_say_so_are_utc(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's OPTIMIZE writes them so by default, and DuckDB would take them for those of the machine's time zone."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        for file in Path(table_path(lake, Table.PURCHASES)).glob("*.parquet"):
            pq.write_table(pq.read_table(file), file, use_deprecated_int96_timestamps=True)
        assert found(lake, "P-7") == [purchase(7)]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_file_that_is_gone_is_named(lake: str) -> None:
    lost = next(Path(table_path(lake, Table.PURCHASES)).glob("*.parquet"))
    lost.unlink()
    with pytest.raises(FileNotFoundError) as raised:
        found(lake, "P-1")
    assert lost.name in f"{raised.value} {raised.value.filename}"


@pytest.mark.parametrize(("rows", "files"), [(3, 100), (100, 1)], ids=["rows", "files"])
def test_it_gives_signs_of_life(lake: str, rows: int, files: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "ROWS_AT_A_TIME", rows)
    monkeypatch.setattr(lookup, "FILES_AT_A_TIME", files)
    told: list[str] = []
    lookup.rows_of(lake, Table.PURCHASES, COLUMNS, pa.array(["P-1"]), told.append)
    compared = [words for words in told if "compared" in words]
    assert len(compared) > 1
    assert compared[-1] == "9 rows of silver.purchases are compared with the batch"
    assert "1 rows of silver.purchases have keys of the batch" in told
