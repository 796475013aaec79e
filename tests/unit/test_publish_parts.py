"""A large batch goes out in parts, each with a marker behind which a restart goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from customer_activity.kafka.marker import Marker
from customer_activity.streams.publish import parts
from customer_activity.streams.publish.parts import OTHER_BYTES, ROW, TEXTS, VERSION

BEGIN = Marker("gold", -1)


def rows(*versions: int, address: str = "") -> pa.Table:
    """Rows of some versions, each of a customer of its own."""
    table = pa.table({VERSION: pa.array(versions, pa.int64())})
    customers = pa.array([f"{number:02}" for number in range(len(versions))])
    for name in set(TEXTS):
        of_all = pa.nulls(len(versions), pa.string()) if name != "address" else pa.repeat(address, len(versions))
        table = table.append_column(name, customers if name == "customer_id" else of_all)
    return table


def feed(*versions: int, at_a_time: int = 3, address: str = "") -> Iterator[pa.Table]:
    table = rows(*versions, address=address)
    return parts.numbered(table.slice(first, at_a_time) for first in range(0, len(versions), at_a_time))


@pytest.mark.parametrize("at_a_time", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("versions", "records", "expected"),
    [
        pytest.param([], 3, [], id="nothing"),
        pytest.param([1, 2, 3], 3, [(3, (3, 0))], id="all fits"),
        pytest.param([1, 1, 2, 2], 3, [(2, (1, 0)), (2, (2, 0))], id="a part ends with a version"),
        pytest.param([1, 1, 5, 5], 3, [(2, (4, 0)), (2, (5, 0))], id="versions without rows are out with it"),
        pytest.param([1, 2, 3, 4], 2, [(2, (2, 0)), (2, (4, 0))], id="exactly full"),
        pytest.param([7] * 7, 3, [(3, (6, 3)), (3, (6, 6)), (1, (7, 0))], id="a version larger than a part"),
        pytest.param(
            [1, 2, 2, 2, 2, 2, 3],
            2,
            [(1, (1, 0)), (2, (1, 2)), (2, (1, 4)), (2, (3, 0))],
            id="the rest of a large version goes with the next",
        ),
        pytest.param([0, 0, 1], 1, [(1, (-1, 1)), (1, (0, 0)), (1, (1, 0))], id="rows in the version that made it"),
    ],
)
def test_parts_end_with_versions_where_they_can(
    versions: list[int], records: int, expected: list[tuple[int, tuple[int, int]]], at_a_time: int
) -> None:
    found = list(parts.parts(feed(*versions, at_a_time=at_a_time), BEGIN, records=records))
    assert [(part.rows.num_rows, (part.marker.version, part.marker.rows)) for part in found] == expected
    assert all(part.marker.table_id == "gold" for part in found)


def test_a_part_is_bounded_by_bytes() -> None:
    address = "x" * 1_000
    of_a_row = OTHER_BYTES + 2 + 2 + len(address)  # the id is the key, too
    found = list(parts.parts(feed(1, 2, 3, 4, 5, address=address), BEGIN, size=2 * of_a_row))
    assert [part.rows.num_rows for part in found] == [2, 2, 1]


def test_a_record_larger_than_a_part_goes_alone() -> None:
    found = list(parts.parts(feed(1, 1, 1, address="x" * 1_000), BEGIN, size=10))
    assert [(part.rows.num_rows, part.marker.rows) for part in found] == [(1, 1), (1, 2), (1, 0)]


@pytest.mark.parametrize("records", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("again", [1, 2, 4, 100], ids=lambda records: f"then {records} at a time")
def test_whatever_part_was_the_last_the_rest_goes_on_behind_it(records: int, again: int) -> None:
    versions = [1, 2, 2, 2, 2, 2, 4, 5, 5, 5, 9]
    every = [row for part in parts.parts(feed(*versions), BEGIN) for row in part.rows.to_pylist()]
    first = list(parts.parts(feed(*versions), BEGIN, records=records))
    for number in range(len(first)):
        out = [row for part in first[: number + 1] for row in part.rows.to_pylist()]
        rest = parts.parts(feed(*versions), first[number].marker, records=again)
        assert out + [row for part in rest for row in part.rows.to_pylist()] == every


def test_rows_are_numbered_within_their_commit() -> None:
    numbers = [row for table in feed(3, 3, 3, 3, 4, 6, 6, at_a_time=2) for row in table.column(ROW).to_pylist()]
    assert numbers == [0, 1, 2, 3, 0, 0, 1]
