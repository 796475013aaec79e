"""Appends are made once, by whose turn it is, beside other writers."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import LeaseLost
from customer_activity.lake import commits, deltalog
from customer_activity.lake.failpoints import FailPoint, nowhere
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.maintenance import maintenance
from customer_activity.settings import Settings
from support.streams import Query

TABLE = Table.QUARANTINE
APPENDERS = (Query.BRONZE, Query.SILVER, Query.GOLD, Query.PUBLISH)  # of quarantine
Append = Callable[..., int | None]


@pytest.fixture
def lake(settings: Settings) -> str:
    return settings.lake


@pytest.fixture
def append(spark: SparkSession, lake: str) -> Append:
    """Return what appends a row as a batch of a query does, and does something between its look and its commit."""

    def as_batch(
        number: int,
        query: Query = Query.SILVER,
        generation: str = "g",
        epoch: int | None = 1,
        meanwhile: Callable[[], object] | None = None,
    ) -> int | None:
        def failpoint(point: FailPoint) -> None:
            if point is FailPoint.STAGED and meanwhile is not None:
                meanwhile()

        batch = MicroBatch(
            query, generation, number, fencing_epoch=lambda: epoch, failpoint=failpoint if meanwhile else nowhere
        )
        row = {"topic": "purchases", "offset": number, "reason": query.value}
        return commits.append(spark, lake, TABLE, pa.Table.from_pylist([row], arrow_schema(TABLE)), batch)

    return as_batch


def entry(lake: str, version: int) -> list[dict[str, Any]]:
    found = deltalog.entry(lake, TABLE, version)
    assert found is not None
    return [dict(action) for action in found.actions]


def rows(lake: str) -> list[tuple[int, str]]:
    found = DeltaTable(table_path(lake, TABLE)).to_pyarrow_dataset().to_table(columns=["offset", "reason"])
    return sorted((row["offset"], row["reason"]) for row in found.to_pylist())


def version(lake: str) -> int:
    return DeltaTable(table_path(lake, TABLE)).version()


@pytest.mark.parametrize("text", ["\U00020000", "\U0010ffff", "\uffff", "é", '"\\', "\x00"], ids=ascii)
def test_a_row_is_found_by_its_text_whatever_that_is(spark: SparkSession, lake: str, text: str) -> None:
    """Readers leave files out by the least and greatest text that the log tells."""
    table, row = Table.SUMMARIES, {"customer_id": text, "purchase_count": 1}
    batch = MicroBatch(Query.SUMMARIES, "g", 0, fencing_epoch=lambda: 1)
    commits.append(spark, lake, table, pa.Table.from_pylist([row], arrow_schema(table)), batch)
    opened = DeltaTable(table_path(lake, table))
    (told,) = pa.table(opened.get_add_actions(flatten=True)).to_pylist()
    assert (told["min.customer_id"], told["max.customer_id"]) == (text, text)
    assert opened.to_pyarrow_dataset().to_table(filter=pc.field("customer_id") == text).num_rows == 1


def test_a_batch_is_in_the_table_once(lake: str, append: Append) -> None:
    assert append(0) == 1
    assert append(1) == 2
    assert [append(1), append(0)] == [None, None]
    assert append(0, generation="h") == 3
    assert rows(lake) == [(0, "silver"), (0, "silver"), (1, "silver")]


def test_an_entry_says_what_its_readers_look_for(lake: str, append: Append) -> None:
    append(7, epoch=3)
    found = {name: value for action in entry(lake, 1) for name, value in action.items() if name != "txn"}
    assert (found["add"]["dataChange"], json.loads(found["add"]["stats"])["numRecords"]) == (True, 1)
    info = found["commitInfo"]
    assert (info["operation"], info["isBlindAppend"]) == ("WRITE", True)
    note = json.loads(info["userMetadata"])
    assert [note[name] for name in ("query", "generation", "batch_id")] == ["silver", "g", 7]
    numbers = {action["txn"]["appId"]: action["txn"]["version"] for action in entry(lake, 1) if "txn" in action}
    assert numbers == {f"silver:{TABLE.label}:g": 7, "lease:silver": 3}


def test_a_driver_that_was_replaced_commits_nothing(lake: str, append: Append) -> None:
    append(0, epoch=5)
    with pytest.raises(LeaseLost):
        append(1, epoch=4)
    assert version(lake) == 1


@pytest.mark.parametrize("others", [0, 2], ids=["at once", "behind others' appends"])
def test_a_commit_is_refused_when_its_successor_commits_between_look_and_commit(
    lake: str, append: Append, others: int
) -> None:
    def successor() -> None:
        append(0, generation="h", epoch=5)  # nothing but the lease is in both commits
        for other in range(others):
            append(other, query=Query.BRONZE)

    append(0)
    with pytest.raises(Py4JJavaError, match="CONCURRENT_TRANSACTION"):
        append(1, epoch=4, meanwhile=successor)
    assert version(lake) == 2 + others


def test_a_commit_is_refused_when_the_same_batch_comes_from_a_driver_without_a_lease(append: Append) -> None:
    append(0)
    with pytest.raises(Py4JJavaError, match="CONCURRENT_TRANSACTION"):
        append(1, meanwhile=lambda: append(1, epoch=None))
    assert append(1) is None, "what is repeated finds it done"


def test_appends_of_others_are_no_conflict(lake: str, append: Append) -> None:
    append(0)
    own = append(1, meanwhile=lambda: [append(0, query=query) for query in APPENDERS[2:]])
    assert (own, version(lake)) == (4, 4)
    assert rows(lake) == [(0, "gold"), (0, "publish"), (0, "silver"), (1, "silver")]


def test_maintenance_is_no_conflict(lake: str, append: Append, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "SMALL_FILES", 2)
    for number in range(3):
        append(number)
    assert append(3, meanwhile=lambda: maintenance.compact(lake, TABLE)) == 5
    assert DeltaTable(table_path(lake, TABLE)).version() == 5
    assert len(rows(lake)) == 4


def test_four_appenders_at_once_lose_nothing(lake: str, append: Append) -> None:
    batches = 8

    def run(query: Query) -> list[int | None]:
        return [append(number, query=query) for number in range(batches)]

    with ThreadPoolExecutor(len(APPENDERS)) as pool:
        versions = {version for of_one in pool.map(run, APPENDERS) for version in of_one}
    assert versions == set(range(1, 1 + batches * len(APPENDERS)))
    assert rows(lake) == sorted((number, query.value) for query in APPENDERS for number in range(batches))
