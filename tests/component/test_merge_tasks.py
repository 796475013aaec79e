"""What executors do of a merge, as functions of files: the rows of the driver's merge, however it is cut."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.columns import SUMMED
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import executors, merge_tasks
from customer_activity.engine.current_rows import CurrentRows
from customer_activity.engine.merge_tasks import Work
from customer_activity.lake import folding
from customer_activity.lake.datafiles import ROW_GROUP_BYTES, DataFile, FileWriter
from customer_activity.lake.pieces import Piece
from customer_activity.settings import Settings
from customer_activity.streams.current import activity, masked, profiles, summaries
from support.masks import key_file

CUSTOMERS = st.sampled_from([f"C-{number}" for number in range(8)])
TIMES = st.integers(0, 9).map(lambda second: datetime.fromtimestamp(second, UTC))
AMOUNTS = st.sampled_from([Decimal("0.01"), Decimal("1.10"), Decimal("9999999999999999.99")])
PURCHASE = st.fixed_dictionaries(
    {"customer_id": CUSTOMERS, "amount": AMOUNTS, "occurred_at": TIMES, "kafka_timestamp": TIMES}
)
CHANGE = st.fixed_dictionaries(
    {"customer_id": CUSTOMERS, "address": st.sampled_from([None, "a", "b"]), "is_gone": st.booleans()}
)
Rows = list[dict[str, Any]]
Batch = list[Rows]  # files of rows


def batches(row: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[list[Batch]]:
    return st.lists(st.lists(st.lists(row, min_size=1, max_size=5), min_size=1, max_size=3), min_size=1, max_size=3)


def written(lake: str, table: Table, rows: Rows) -> DataFile:
    """Write rows as a file of a table that has two row groups."""
    writer = FileWriter(lake, table)
    half = len(rows) // 2 or 1
    for part in (rows[:half], rows[half:]):
        writer.write(pa.Table.from_pylist(part, arrow_schema(table)))
        writer._flush()
    file = writer.close()
    assert file is not None
    return file


def spread(
    lake: str, stream: CurrentRows, batch: Batch, held: Sequence[DataFile], lanes: int
) -> tuple[list[DataFile], list[DataFile]]:
    """Do what Spark does of a merge: tasks that read, a shuffle by lane, tasks that fold; return the files."""
    for table in (stream.source, stream.target):
        Path(table_path(lake, table)).mkdir(parents=True, exist_ok=True)
    new = [
        [Piece(stream.source, written(lake, stream.source, rows).path, share, 2) for share in (0, 1)] for rows in batch
    ]
    known = [[Piece(stream.target, file.path, share, 2, is_past=True)] for file in held for share in (0, 1)]
    work = Work(lake, stream, [*new, *known], lanes, bool(held))
    parcels = list(merge_tasks.pack(work, range(len(work.shares))))
    reports = [
        report
        for lane in range(lanes)
        for report in merge_tasks.fold(work, [parcel.rows for parcel in parcels if parcel.lane == lane])
    ]
    files, changed = (
        [DataFile(*report[name]) for report in reports if report[name] is not None] for name in ("file", "changed")
    )
    return files, changed


def read(lake: str, table: Table, files: Sequence[DataFile]) -> Counter[str]:
    return Counter(
        str(sorted(row.items(), key=str))
        for file in files
        for row in pq.ParquetFile(f"{table_path(lake, table)}/{file.path}").read().to_pylist()
    )


def counted(rows: pa.Table) -> Counter[str]:
    return Counter(str(sorted(row.items(), key=str)) for row in rows.to_pylist())


def assert_right(lake: str, stream: CurrentRows, history: list[Batch], lanes: int) -> None:
    """Merge batch by batch, as executors and as the driver does."""
    schema = pa.schema([arrow_schema(stream.source).field(name) for name in stream.columns])
    held, expected = list[DataFile](), arrow_schema(stream.target).empty_table()
    for batch in history:
        rows = pa.Table.from_pylist([row for file in batch for row in file], schema)
        folded = folding.folded(expected, stream.reduce(rows.to_batches()), stream.key, stream.aggregates, stream.gone)
        files, changed = spread(lake, stream, batch, held, lanes)
        assert read(lake, stream.target, files) == counted(folded.rows)
        assert read(lake, stream.target, changed) == (counted(folded.differing) if held else Counter())
        held, expected = files, folded.rows


@settings(max_examples=25, deadline=None)
@given(batches(PURCHASE), st.integers(1, 5))
def test_executors_add_as_the_driver_does(
    tmp_path_factory: pytest.TempPathFactory, history: list[Batch], lanes: int
) -> None:
    assert_right(str(tmp_path_factory.mktemp("lake")), summaries.STREAM, history, lanes)


@settings(max_examples=25, deadline=None)
@given(history=batches(CHANGE), lanes=st.integers(1, 5), is_masked=st.booleans())
def test_executors_replace_and_remove_as_the_driver_does(
    tmp_path_factory: pytest.TempPathFactory, history: list[Batch], lanes: int, *, is_masked: bool
) -> None:
    rows = (row for batch in history for file in batch for row in file)
    for version, row in enumerate(rows):
        row["view_version"] = version
    folder = tmp_path_factory.mktemp("lake")
    with_key = Settings(mask_key_file=key_file(folder))
    stream = masked.STREAM.as_set(with_key) if is_masked else activity.STREAM
    assert_right(str(folder), stream, history, lanes)


def bought(count: int) -> Rows:
    return [
        {
            "customer_id": f"C-{n}",
            "amount": Decimal("1.00"),
            **dict.fromkeys(SUMMED[2:], datetime(2026, 1, 1, tzinfo=UTC)),
        }
        for n in range(count)
    ]


def test_a_task_that_runs_twice_names_its_own_files_alone(tmp_path: Path) -> None:
    lake = str(tmp_path)
    held, _ = spread(lake, summaries.STREAM, [bought(4)], [], 2)
    once, twice = (spread(lake, summaries.STREAM, [bought(8)], held, 2) for _ in range(2))
    for first, second in zip(once, twice, strict=True):
        assert len(first) == len(second) == 2
        assert not {file.path for file in first} & {file.path for file in second}
        assert read(lake, Table.SUMMARIES, first) == read(lake, Table.SUMMARIES, second)


def test_rows_are_shared_evenly_whatever_number_of_tasks_there_is(tmp_path: Path) -> None:
    """A bucket has a sixty-fourth of all keys, and a table of some hundred million more rows than a task can hold."""
    lanes = 100
    files, _ = spread(str(tmp_path), summaries.STREAM, [bought(20_000)], [], lanes)
    assert len(files) == lanes
    assert max(file.rows for file in files) < 1.4 * 20_000 / lanes


def test_a_customer_with_most_purchases_is_one_row_of_each_share(tmp_path: Path) -> None:
    lake = str(tmp_path)
    Path(table_path(lake, Table.PURCHASES)).mkdir(parents=True)
    hot = [{**bought(1)[0], "amount": Decimal("0.01")} for _ in range(1_000)]
    share = [Piece(Table.PURCHASES, written(lake, Table.PURCHASES, hot).path)]
    work = Work(lake, summaries.STREAM, [share], 1, has_rows=False)
    found = executors.unpacked(parcel.rows for parcel in merge_tasks.pack(work, [0]))
    (row,) = found[merge_tasks.CHANGES].to_pylist()
    assert (row["purchase_count"], row["total_amount"]) == (1_000, Decimal("10.00"))


def test_rows_are_packed_by_bytes_however_large_a_row_group_is(tmp_path: Path) -> None:
    """Of a row group of some gigabytes, as other writers make them, Arrow could not hold the parcels."""
    lake = str(tmp_path)
    folder = Path(table_path(lake, Table.PROFILES))
    folder.mkdir(parents=True)
    large = [{"customer_id": f"C-{n}", "address": "x" * (ROW_GROUP_BYTES // 3)} for n in range(5)]
    pq.write_table(pa.Table.from_pylist(large, arrow_schema(Table.PROFILES)), folder / "one.parquet")
    work = Work(lake, profiles.STREAM, [[Piece(Table.PROFILES, "one.parquet", is_past=True)]], 1, has_rows=True)
    packed = [parcel.rows for parcel in merge_tasks.pack(work, [0])]
    assert max(map(len, packed)) < 1.1 * ROW_GROUP_BYTES
    assert executors.unpacked(packed)[merge_tasks.HELD].num_rows == 5


def test_the_folder_of_change_files_is_open_to_whom_the_tables_is(tmp_path: Path) -> None:
    lake = str(tmp_path)
    folder = Path(table_path(lake, Table.SUMMARIES))
    folder.mkdir(parents=True)
    folder.chmod(0o2770)
    held, _ = spread(lake, summaries.STREAM, [bought(4)], [], 2)
    spread(lake, summaries.STREAM, [bought(4)], held, 2)
    assert stat.S_IMODE((folder / "_change_data").stat().st_mode) == 0o2770
