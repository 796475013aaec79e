"""Texts of a column that come to more than 2 GB, which is all that Arrow's `string` holds: nobody brings them together.

A profile may have texts of nearly a megabyte, and Parquet may have made little of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import executors
from customer_activity.lake.datafiles import ROW_GROUP_BYTES, FileWriter
from customer_activity.lake.reducing import newest_of
from customer_activity.state import profile_records
from customer_activity.streams.silver import profiles

MB = 1 << 20
ROWS, CHUNKS = 2_100, 3

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def records() -> pa.Table:
    """Profile records of as many customers, as they are read: in several chunks."""
    text = "a" * MB
    schema = arrow_schema(Table.PROFILE_CHANGES)
    chunks = []
    for numbers in np.array_split(np.arange(ROWS), CHUNKS):
        given = {
            "customer_id": pa.array([f"C-{number:04}" for number in numbers]),
            "address": pa.array([text] * len(numbers), pa.string()),
            "partition": pa.repeat(0, len(numbers)),
            "offset": pa.array(numbers),
            "landing": pa.repeat(0, len(numbers)),
            "is_tombstone": pa.repeat(pa.scalar(value=False), len(numbers)),
        }
        nothing = pa.nulls(len(numbers))
        columns = [given.get(field.name, nothing).cast(field.type) for field in schema]
        chunks.append(pa.Table.from_arrays(columns, schema=schema))
    return pa.concat_tables(chunks)


def the_newest(records: pa.Table) -> pa.Table:
    return newest_of(records, ["customer_id"], ["landing", "partition", "offset"])


@pytest.mark.parametrize("reduce", [profile_records.newest, profiles.without_repeats, the_newest])
def test_records_are_reduced(records: pa.Table, reduce: Callable[[pa.Table], pa.Table]) -> None:
    assert reduce(records).num_rows == ROWS


def test_records_are_packed_for_lanes(records: pa.Table) -> None:
    lanes = np.arange(ROWS) % 2
    rows = 0
    for parcel in executors.parcels(lanes, records):
        assert len(parcel.rows) < 1.1 * ROW_GROUP_BYTES
        rows += sum(of.num_rows for of in executors.unpacked([parcel.rows]).values())
    assert rows == ROWS


def test_records_are_written(records: pa.Table, tmp_path: Path) -> None:
    folder = Path(table_path(str(tmp_path), Table.PROFILE_CHANGES))
    folder.mkdir(parents=True)
    writer = FileWriter(str(tmp_path), Table.PROFILE_CHANGES)
    writer.write(profile_records.with_room(records).combine_chunks())
    file = writer.close()
    assert file is not None
    assert pq.ParquetFile(folder / file.path).metadata.num_rows == ROWS
