"""Pieces of files as other writers lay them out."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import pieces
from customer_activity.lake.pieces import Piece

ROWS = [f"P-{number}" for number in range(5)]


@pytest.mark.parametrize("groups", [[5], [0, 5], [2, 0, 3], [0, 2, 0, 0, 3, 0]], ids=str)
def test_row_groups_without_rows_are_passed_over(tmp_path: Path, groups: list[int]) -> None:
    schema = arrow_schema(Table.PURCHASES)
    folder = Path(table_path(str(tmp_path), Table.PURCHASES))
    folder.mkdir(parents=True)
    left = iter(ROWS)
    with pq.ParquetWriter(folder / "a.parquet", schema) as writer:
        for count in groups:
            rows = [{"purchase_id": next(left)} for _ in range(count)]
            writer.write_table(pa.Table.from_pylist(rows, schema))
    assert pq.ParquetFile(folder / "a.parquet").num_row_groups == len(groups)
    piece = Piece(Table.PURCHASES, "a.parquet")
    found: list[str] = []
    for first, rows in pieces.read(str(tmp_path), piece, ["purchase_id"]):
        assert pieces.read_at(str(tmp_path), piece, first, ["purchase_id"]) == rows
        assert first == len(found)
        found += rows.column("purchase_id").to_pylist()
    assert found == ROWS
