"""What executors do of silver's purchases, as functions of files: the rows of the driver's rules, however it is cut."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake.datafiles import DataFile, FileWriter
from customer_activity.lake.microbatch import ACCEPTED, QUARANTINED
from customer_activity.lake.pieces import Piece
from customer_activity.state.sorted_runs import Run
from customer_activity.streams.silver import purchases, tasks
from customer_activity.streams.silver.order import in_order
from customer_activity.streams.silver.tasks import Work

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = arrow_schema(Table.PURCHASE_EVENTS)

Batch = list[list[dict[str, Any]]]  # files of rows

IDS = st.sampled_from([f"P-{number}" for number in range(6)])
LANDINGS = st.sampled_from([None, 0, 1, 2])
ROW = st.fixed_dictionaries({"purchase_id": IDS, "amount": st.sampled_from(["1.00", "2.00"]), "landing": LANDINGS})
FILES = st.lists(st.lists(ROW, min_size=1, max_size=6), min_size=1, max_size=4)


def landed(batches: Sequence[Batch]) -> list[Batch]:
    """Give rows what a landing gives them: coordinates that no other row has, each file a partition."""
    offset = 0
    for batch in batches:
        for partition, rows in enumerate(batch):
            for row in rows:
                row |= {"partition": partition, "offset": offset, "customer_id": "C-1", "currency": "EUR"}
                row |= {"amount": Decimal(row["amount"]), "occurred_at": NOW, "kafka_timestamp": NOW}
                row |= {"key": b"C-1", "value": f"{offset}".encode(), "topic": "purchases", "ingested_at": NOW}
                offset += 1
    return list(batches)


def written(lake: str, table: Table, rows: Sequence[dict[str, Any]]) -> DataFile:
    """Write rows as a file of a table that has two row groups."""
    writer = FileWriter(lake, table)
    half = len(rows) // 2 or 1
    for part in (rows[:half], rows[half:]):
        writer.write(pa.Table.from_pylist(list(part), arrow_schema(table)))
        writer._flush()
    file = writer.close()
    assert file is not None
    return file


def reports(told: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return reports as the driver has them."""
    return [json.loads(json.dumps(report)) for report in told]


def spread(lake: str, batch: Batch, past: Sequence[DataFile], runs: dict[int, list[Run]], lanes: int) -> Any:
    """Do what Spark does of a batch: tasks that read, a shuffle by lane, tasks that judge, tasks that write."""
    for table in (Table.PURCHASE_EVENTS, Table.PURCHASES, Table.QUARANTINE):
        Path(table_path(lake, table)).mkdir(parents=True, exist_ok=True)
    files = [written(lake, Table.PURCHASE_EVENTS, rows) for rows in batch]
    new = [[Piece(Table.PURCHASE_EVENTS, file.path, share, 2, n)] for n, file in enumerate(files) for share in (0, 1)]
    known = [[Piece(Table.PURCHASES, file.path, is_past=True)] for file in past]
    work = Work(lake, f"{lake}/_state", [*new, *known], lanes, runs)
    parcels = list(tasks.pack(work, range(len(work.shares))))
    judged = [
        report
        for lane in range(lanes)
        for report in reports(tasks.judge(work, [parcel.rows for parcel in parcels if parcel.lane == lane]))
    ]
    refused = [report["refused"] for report in judged if report["refused"]]
    files_of: dict[Table, list[DataFile]] = {Table.PURCHASES: [], Table.QUARANTINE: []}
    for report in reports(tasks.write(work, refused, range(len(new)))):
        files_of[Table(report["table"])].append(DataFile(*report["file"]))
    changed = {int(bucket): [Run(*run) for run in of] for report in judged for bucket, of in report["runs"].items()}
    return files_of, {**runs, **changed}, sum((Counter(report["verdicts"]) for report in judged), Counter())


def offsets(lake: str, table: Table, files: Sequence[DataFile]) -> list[int]:
    return sorted(
        offset
        for file in files
        for offset in pq.read_table(f"{table_path(lake, table)}/{file.path}").column("offset").to_pylist()
    )


@settings(max_examples=40)
@given(st.lists(FILES, min_size=1, max_size=4).map(landed), st.integers(1, 5), st.lists(st.booleans(), min_size=4))
def test_executors_judge_as_the_driver_does(
    tmp_path_factory: pytest.TempPathFactory, batches: list[Batch], lanes: int, noted: list[bool]
) -> None:
    """Batch after batch; of some the runs are not noted, so that the next one takes their rows from the table."""
    lake = str(tmp_path_factory.mktemp("lake"))
    counted: dict[str, purchases.First] = {}
    runs: dict[int, list[Run]] = {}
    unnoted: list[DataFile] = []
    for number, batch in enumerate(batches):
        rows = in_order(pa.Table.from_pylist([row for file in batch for row in file], SCHEMA))
        verdicts = purchases.judge(purchases.firsts(rows), counted)
        verdict_of = dict(zip(rows.column("offset").to_pylist(), verdicts, strict=True))
        accepted = rows.filter(pa.array([verdict == ACCEPTED for verdict in verdicts]))
        counted |= dict(purchases.firsts(accepted))

        files, since, counts = spread(lake, batch, unnoted, runs, lanes)

        assert counts == Counter(verdicts)
        for table, verdict in ((Table.PURCHASES, ACCEPTED), (Table.QUARANTINE, QUARANTINED)):
            wanted = sorted(offset for offset, found in verdict_of.items() if found == verdict)
            assert offsets(lake, table, files[table]) == wanted
        if noted[number]:
            runs, unnoted = since, []
        else:
            unnoted = [*unnoted, *files[Table.PURCHASES]]


def test_a_conflict_is_in_quarantine_as_it_landed(tmp_path: Path) -> None:
    lake = str(tmp_path)
    (batch,) = landed([[[{"purchase_id": "P-1", "amount": amount, "landing": 0} for amount in ("1.00", "2.00")]]])
    files, _, _ = spread(lake, batch, [], {}, 1)
    (file,) = files[Table.QUARANTINE]
    (row,) = pq.read_table(f"{table_path(lake, Table.QUARANTINE)}/{file.path}").to_pylist()
    assert abs(row.pop("quarantined_at") - datetime.now(UTC)) < timedelta(minutes=1)
    assert row == {
        "reason": "conflicting_duplicate",
        "detail": "$.purchaseId: counted before with other content",
        "key": b"C-1",
        "value": b"1",
        "headers": None,
        "topic": "purchases",
        "partition": 0,
        "offset": 1,
        "kafka_timestamp": NOW,
        "landing": 0,
    }


def test_a_task_that_runs_twice_names_its_own_files_alone(tmp_path: Path) -> None:
    """Spark repeats a task whose executor was lost, and runs a slow one twice: one report of them counts."""
    lake = str(tmp_path)
    (batch,) = landed([[[{"purchase_id": f"P-{n % 3}", "amount": "1.00", "landing": 0} for n in range(6)]]])
    once, twice = (spread(lake, batch, [], {}, 2) for _ in range(2))
    assert once[2] == twice[2]
    named = [{file.path for file in result[0][Table.PURCHASES]} for result in (once, twice)]
    assert not named[0] & named[1]
    held = [{run.path for of in result[1].values() for run in of} for result in (once, twice)]
    assert not held[0] & held[1]
