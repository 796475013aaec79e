"""Which purchases near others are looked up: all of them, of as few files as may have them, however these lie."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.streams.alerts import nearby
from customer_activity.streams.alerts.nearby import Nearby
from customer_activity.streams.alerts.spans import Spans
from support import tables

START = datetime(2026, 3, 1, tzinfo=UTC)
REACH = timedelta(minutes=15)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


@pytest.fixture
def lake(tmp_path: Any) -> str:
    """Return a lake with an empty table of timed purchases."""
    path = table_path(str(tmp_path), Table.TIMED_PURCHASES)
    DeltaTable.create(
        path,
        arrow_schema(Table.TIMED_PURCHASES),
        configuration={"delta.dataSkippingStatsColumns": "kafka_timestamp,occurred_at"},
    )
    return str(tmp_path)


def bought(number: int, minute: float, customer: str = "C-1") -> Row:
    at = START + timedelta(minutes=minute)
    return {
        "purchase_id": f"P-{number}",
        "customer_id": customer,
        "amount": Decimal("1.00"),
        "currency": "EUR",
        "occurred_at": at,
        "kafka_timestamp": at,
        "partition": 0,
        "offset": number,
        "landing": number,
    }


def world(seed: int, files: int = 30) -> list[list[Row]]:
    """Return the rows of files in the order of landing: event time goes on, and some are hours behind."""
    chance = random.Random(seed)
    return [
        [
            bought(
                20 * file + number,
                5 * file + chance.random() * 5 - (chance.random() * 100 if chance.random() < 0.1 else 0),
                f"C-{chance.randrange(5)}",
            )
            for number in range(20)
        ]
        for file in range(files)
    ]


def near(rows: Iterable[Row], wanted: list[Row]) -> set[str]:
    """Return what must be found, one row after the other."""
    customers = {row["customer_id"] for row in wanted}
    return {
        row["purchase_id"]
        for row in rows
        if row["customer_id"] in customers and any(abs(row["occurred_at"] - w["occurred_at"]) <= REACH for w in wanted)
    }


def look(lookup: Nearby, wanted: Iterable[Row]) -> pa.Table:
    times = [(row["occurred_at"] - EPOCH) // timedelta(microseconds=1) for row in wanted]
    at, reach = np.array(times, np.int64), REACH // timedelta(microseconds=1)
    customers = pa.array(sorted({row["customer_id"] for row in wanted}), pa.string())
    return lookup.of(customers, Spans.of(at - reach, at + reach))


def found(lookup: Nearby, wanted: list[Row]) -> set[str]:
    ids = look(lookup, wanted).column("purchase_id").to_pylist()
    assert len(ids) == len(set(ids))
    return set(ids)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("small", [0, 50_000], ids=["large files", "small files"])
def test_all_that_is_near_is_found_batch_after_batch(
    lake: str, seed: int, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearby, "SMALL_ROWS", small)
    monkeypatch.setattr(nearby, "KEPT_ROWS", 100)
    lookup, there = Nearby(lake), []
    for rows in world(seed):
        tables.append(lake, Table.TIMED_PURCHASES, *rows)
        there += rows
        assert found(lookup, rows) == near(there, rows)
    assert lookup.kept_rows == sum(rows.num_rows for rows in lookup.kept.values()) <= 100
    assert found(Nearby(lake), there[:7]) == near(there, there[:7])


def test_it_makes_no_difference_how_the_table_lies(lake: str) -> None:
    there = [row for rows in world(5) for row in rows]
    lookup = Nearby(lake)
    for begin in range(0, len(there), 40):
        tables.append(lake, Table.TIMED_PURCHASES, *there[begin : begin + 40])
    before = found(lookup, there[300:310])
    DeltaTable(table_path(lake, Table.TIMED_PURCHASES)).optimize.compact()
    assert found(lookup, there[300:310]) == before == near(there, there[300:310])


def test_files_whose_purchases_are_not_near_are_not_read(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def reading(path: str, **how: Any) -> pa.Table:
        read.append(path)
        return original(path, **how)

    original = pq.read_table
    monkeypatch.setattr(pq, "read_table", reading)
    lookup = Nearby(lake)
    per_batch = []
    for file in range(40):
        rows = [bought(file, 5 * file)]
        tables.append(lake, Table.TIMED_PURCHASES, *rows)
        read.clear()
        look(lookup, rows)
        per_batch.append(len(read))
    assert set(per_batch) == {1}  # what is new; the rest is in memory or too old
    look(Nearby(lake), [bought(0, 195)])
    assert len(read) == 1 + 4  # the last one, and those that are within reach of it


def test_nothing_is_near_nothing(lake: str) -> None:
    assert look(Nearby(lake), []).num_rows == 0


def test_a_file_without_statistics_is_read(lake: str) -> None:
    tables.append(lake, Table.TIMED_PURCHASES, bought(1, 0))
    log = DeltaTable(table_path(lake, Table.TIMED_PURCHASES))
    log.alter.set_table_properties({"delta.dataSkippingStatsColumns": "kafka_timestamp"})
    tables.append(lake, Table.TIMED_PURCHASES, bought(2, 1))
    assert found(Nearby(lake), [bought(1, 0)]) == {"P-1", "P-2"}
