"""Landing: parts bounded by bytes, files that are not too large, and a number and a time for each batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import OffsetsLost
from customer_activity.lake import datafiles
from customer_activity.lake.datafiles import FileWriter, in_parts
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.lake.numbering import Numbering
from customer_activity.streams.bronze import landing as module
from customer_activity.streams.bronze.landing import Landing
from support.kafka_batches import LANDED, PROFILES, PURCHASES, kafka_batch, profile, purchase, raw_purchase
from support.streams import Query
from support.tables import append

TABLES = {PROFILES: Table.PROFILE_EVENTS, PURCHASES: Table.PURCHASE_EVENTS}


def land(lake: str, *batches: pa.RecordBatch) -> module.Landed:
    return module.land(batches, Landing(lake, TABLES, "EUR", 7, LANDED))


def rows(lake: str, table: Table, landed: module.Landed) -> list[dict[str, Any]]:
    files = landed.files.get(table, [])
    return [row for file in files for row in pq.read_table(f"{table_path(lake, table)}/{file.path}").to_pylist()]


def test_rows_carry_the_number_and_the_time_that_they_were_judged_by(lake: str) -> None:
    landed = land(lake, kafka_batch([purchase(), profile(), raw_purchase(b"{")]))

    (bought,), (person,), (bad,) = (rows(lake, table, landed) for table in topology.landing().tables)
    assert (bought["landing"], bought["ingested_at"]) == (person["landing"], person["ingested_at"]) == (7, LANDED)
    assert (bad["landing"], bad["quarantined_at"]) == (7, LANDED)
    assert landed.outcomes == {(PURCHASES, None): 1, (PROFILES, None): 1, (PURCHASES, "not_json"): 1}


def test_more_bytes_than_an_array_holds_land_whole(lake: str) -> None:
    """Over 2 GiB a column is in several chunks; the memory is shared between them here."""
    batch = kafka_batch([raw_purchase(b"\x01" * 300_000)] * 215)

    landed = land(lake, *[batch] * 40)

    assert landed.outcomes == {(PURCHASES, "not_json"): 8_600}
    assert sum(file.rows for file in landed.files[Table.QUARANTINE]) == 8_600


def test_files_end_when_they_are_large(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILE_BYTES", 1_000_000)
    monkeypatch.setattr(module, "PARSED_BYTES", 300_000)
    batch = kafka_batch([purchase(note=f'"{"x" * 100_000}"')] * 35)

    landed = land(lake, batch)

    files = landed.files[Table.PURCHASE_EVENTS]
    assert len(files) == 4
    assert [row["offset"] for row in rows(lake, Table.PURCHASE_EVENTS, landed)] == list(range(100, 135))
    bounds = [json.loads(file.stats) for file in files]
    assert (bounds[0]["minValues"]["offset"], bounds[-1]["maxValues"]["offset"]) == (100, 134)


def test_a_landing_that_ends_early_leaves_no_file(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILE_BYTES", 1_000_000)
    monkeypatch.setattr(module, "PARSED_BYTES", 300_000)

    def lost() -> Iterator[pa.RecordBatch]:
        yield kafka_batch([purchase(note=f'"{"x" * 100_000}"')] * 15)
        assert list(Path(table_path(lake, Table.PURCHASE_EVENTS)).glob("*.parquet"))
        raise OffsetsLost("gone")

    with pytest.raises(OffsetsLost):
        module.land(lost(), Landing(lake, TABLES, "EUR", 7, LANDED))
    assert list(Path(lake).rglob("*.parquet")) == []


def test_row_groups_are_bounded_by_bytes(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datafiles, "ROW_GROUP_BYTES", 500_000)
    landed = land(lake, kafka_batch([purchase(note=f'"{"x" * 100_000}"')] * 20))
    (file,) = landed.files[Table.PURCHASE_EVENTS]
    written = pq.ParquetFile(f"{table_path(lake, Table.PURCHASE_EVENTS)}/{file.path}")
    assert max(written.metadata.row_group(n).num_rows for n in range(written.num_row_groups)) <= 5
    assert written.metadata.num_rows == file.rows == 20


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        pytest.param([[10] * 3, [10] * 90, [10] * 9], [93, 9], id="by rows when they are small"),
        pytest.param([[400] * 4], [2, 2], id="by bytes when they are large"),
        pytest.param([[10, 10, 5_000, 10]], [2, 1, 1], id="one that is larger is alone"),
        pytest.param([[10], [10], [990], [10]], [2, 1, 1], id="over several batches"),
        pytest.param([[]], [], id="nothing"),
    ],
)
def test_parts_are_bounded_by_rows_and_bytes(sizes: list[list[int]], parts: list[int]) -> None:
    batches = [pa.record_batch({"value": pa.array([b"x" * n for n in of], pa.binary())}) for of in sizes]

    cut = list(in_parts(batches, 50, 1_000 if len(sizes) != 3 else 10_000))

    assert [part.num_rows for part in cut] == parts
    found = [value for part in cut for value in part.column("value").to_pylist()]
    assert [len(value) for value in found] == [size for of in sizes for size in of]


def batch_of(number: int, generation: str = "g-1") -> MicroBatch:
    return MicroBatch(Query.BRONZE, generation, number)


def landed_as(lake: str, number: int, **more: Any) -> tuple[int, dict[str, Any]]:
    """The number of a batch by a new driver, and what its commits note."""
    batch = batch_of(number, **more)
    return Numbering(lake, topology.landing()).of(batch).number, batch.extra


def test_landings_are_counted_over_drivers_and_replays(lake: str) -> None:
    numbers = Numbering(lake, topology.landing())
    assert [numbers.of(batch_of(n)).number for n in (0, 1, 1, 2)] == [1, 2, 2, 3]
    append(lake, Table.QUARANTINE, query="bronze", generation="g-1", batch_id=2, landing=3)
    append(lake, Table.QUARANTINE, query="silver", generation="g-9", batch_id=40)
    assert landed_as(lake, 3)[0] == 4
    append(lake, Table.PROFILE_EVENTS, query="replay", generation="r", batch_id=0, landing=9)
    assert landed_as(lake, 3)[0] == 10
    assert landed_as(lake, 0, generation="g-2")[0] == 10


def test_a_batch_that_was_interrupted_keeps_its_number_and_its_time(lake: str) -> None:
    number, extra = landed_as(lake, 5)
    append(lake, Table.QUARANTINE, query="bronze", generation="g-1", batch_id=5, **extra)
    append(lake, Table.PURCHASE_EVENTS, query="replay", generation="r", batch_id=0, landing=number + 1)

    again = batch_of(5)
    landing = Numbering(lake, topology.landing()).of(again)

    assert (landing.number, again.extra) == (number, extra)
    assert landing.landed_at == datetime.fromtimestamp(extra["landed_at"] / 1000, UTC)
    assert landed_as(lake, 6)[0] == number + 2


def test_numbers_are_not_given_twice_where_no_commit_tells(lake: str) -> None:
    writer = FileWriter(lake, Table.PROFILE_EVENTS)
    landed = pa.Table.from_pylist([{"landing": 41}], arrow_schema(Table.PROFILE_EVENTS))
    writer.write(landed)
    write_deltalake(table_path(lake, Table.PROFILE_EVENTS), landed, mode="append")

    assert landed_as(lake, 0)[0] == 42
