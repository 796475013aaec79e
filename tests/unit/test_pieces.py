"""Files are divided into what one task reads, by their rows or, where these are not told, by their bytes."""

from __future__ import annotations

import pytest

from customer_activity.catalog import Table
from customer_activity.lake import pieces
from customer_activity.lake.feeds import Added
from customer_activity.lake.pieces import ROW_BYTES, TASK_ROWS

WHOLE, HALF = TASK_ROWS, TASK_ROWS // 2
LARGE = WHOLE * ROW_BYTES  # a task's bytes


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param([], [], id="none"),
        pytest.param([(HALF, 1)] * 4, [2, 2], id="two halves are a task's"),
        pytest.param([(3 * WHOLE, 1), (1, 1)], [1, 1, 1, 1], id="a large one is divided"),
        pytest.param([(0, LARGE)] * 3, [1, 1, 1], id="large ones that do not tell their rows"),
        pytest.param([(0, 3 * LARGE)], [1, 1, 1], id="a very large one that does not"),
        pytest.param([(0, 1)] * 5, [5], id="small ones that do not"),
        pytest.param([(HALF, 1), (0, LARGE), (HALF, 1)], [1, 1, 1], id="one that does not among others"),
    ],
)
def test_a_task_reads_so_many_rows_or_bytes(files: list[tuple[int, int]], expected: list[int]) -> None:
    added = [Added(0, f"{number}.parquet", size, rows) for number, (rows, size) in enumerate(files)]
    shares = pieces.divided(Table.PURCHASES, added)
    assert [len(share) for share in shares] == expected
    found = [(piece.path, piece.share) for share in shares for piece in share]
    assert found == sorted(set(found))
    assert {path for path, _ in found} == {file.path for file in added}
