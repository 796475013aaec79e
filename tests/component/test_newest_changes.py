"""Which change of a customer is the newest, wherever its record was."""

from __future__ import annotations

from itertools import permutations

import pyarrow as pa
import pytest

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.streams.current import profiles

Place = tuple[int | None, int, int]  # landing, partition, offset


@pytest.mark.parametrize(
    "places",
    [
        pytest.param([(1, 0, 1), (1, 0, 2), (1, 0, 10)], id="offsets in a partition"),
        pytest.param([(1, 0, 900), (2, 1, 3)], id="a later landing on another partition, with a smaller offset"),
        pytest.param([(1, 3, 5), (2, 0, 1), (3, 1, 0)], id="landings before partitions"),
        pytest.param([(1, 0, 9), (1, 1, 2)], id="partitions within a landing"),
        pytest.param([(None, 3, 900), (0, 0, 0)], id="landed before landings were numbered"),
        pytest.param([(None, 0, 900), (None, 1, 3)], id="both landed before"),
    ],
)
def test_the_newest_profile_is_the_last_in_the_order_of_records(places: list[Place]) -> None:
    columns = arrow_schema(Table.PROFILE_CHANGES)
    schema = pa.schema([columns.field(name) for name in profiles.COLUMNS])
    reduce = profiles.STREAM.reduce
    for order in permutations(places):
        rows = [
            {"customer_id": "C-1", "landing": landing, "partition": partition, "offset": offset}
            for landing, partition, offset in order
        ]
        (found,) = reduce(iter(pa.Table.from_pylist(rows, schema).to_batches(max_chunksize=1))).to_pylist()
        assert (found["landing"], found["partition"], found["offset"]) == places[-1]
