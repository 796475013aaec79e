"""Texts of a column that come to more than 2 GB, which is all that Arrow's `string` holds: nobody brings them together.

A profile may have texts of nearly a megabyte, and Parquet may have made little of them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import executors, merge_tasks
from customer_activity.lake import delta
from customer_activity.lake.datafiles import ROW_GROUP_BYTES, FileWriter
from customer_activity.lake.reducing import newest_of
from customer_activity.settings import Settings
from customer_activity.state import profile_records
from customer_activity.state.keyed import NEWEST
from customer_activity.state.local import LocalState
from customer_activity.streams.current import profiles as current_profiles
from customer_activity.streams.silver import profiles
from customer_activity.streams.silver import state as past
from support.tables import append_table

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


def test_records_come_into_local_state(records: pa.Table, tmp_path: Path) -> None:
    settings = Settings(lake=str(tmp_path / "lake"))
    delta.ensure_tables(settings.lake)
    ids = {table: delta.table_id(settings.lake, table) for table in topology.tables()}
    with closing(LocalState(settings, "silver", ids, past.NEEDS)) as state:
        state.bring({Table.PROFILE_CHANGES: NEWEST})
        version = append_table(settings.lake, Table.PROFILE_CHANGES, records)
        state.bring({Table.PROFILE_CHANGES: version})
        last = records.column("customer_id")[-1].as_py()
        assert past.current(state, [last])[last].offset == ROWS - 1


def test_a_lane_of_current_rows_is_folded(records: pa.Table, tmp_path: Path) -> None:
    Path(table_path(str(tmp_path), Table.PROFILES)).mkdir(parents=True)
    stream, schema = current_profiles.STREAM, arrow_schema(Table.PROFILES)
    nothing = pa.nulls(ROWS)
    there = {name: records.column(name) for name in records.column_names}
    held = pa.table([there.get(field.name, nothing).cast(field.type) for field in schema], schema=schema)
    changes = stream.marked(stream.reduce(records.select(stream.columns).slice(0, 3).to_batches()))
    packed = [parcel.rows for rows, kind in ((held, merge_tasks.HELD), (changes, merge_tasks.CHANGES))
              for parcel in executors.parcels(np.zeros(rows.num_rows, np.int64), rows, kind)]  # fmt: skip
    work = merge_tasks.Work(str(tmp_path), stream, [], 1, has_rows=False)
    (report,) = merge_tasks.fold(work, packed)
    assert report["file"][2] == report["held"] == ROWS


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
