"""Current rows are merged in parts, each once, whatever ends a driver between two."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.current_rows import CurrentRows
from customer_activity.engine.stream import Context
from customer_activity.lake import delta, deltalog, feeds, history
from customer_activity.lake.failpoints import FailPoint, nowhere
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.settings import Settings
from customer_activity.streams.current import activity, profiles, summaries
from support import tables
from support.streams import Query

MOST = "9999999999999999.99"
Rows = list[dict[str, Any]]


class Merging(NamedTuple):
    """A stream behind the hot path, and who writes what it reads."""

    stream: CurrentRows
    writer: Query


MERGING = {
    Query.SUMMARIES: Merging(summaries.STREAM, Query.SILVER),
    Query.PROFILES: Merging(profiles.STREAM, Query.SILVER),
    Query.ACTIVITY: Merging(activity.STREAM, Query.GOLD),
}


class Crash(Exception):
    """Raised at a fail point, as if the process had ended there."""


def crash(at: FailPoint, times: int) -> Callable[[FailPoint], None]:
    """Return what ends a batch at the so-many-th time that it comes to a place."""
    left = times

    def failpoint(point: FailPoint) -> None:
        nonlocal left
        left -= point is at
        if not left:
            raise Crash

    return failpoint


@pytest.fixture
def a_version_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "PART_ROWS", 1)


def append(lake: str, query: Query, rows: Rows) -> None:
    """Append rows to what a query reads, as their writer does."""
    stream, writer = MERGING[query]
    tables.append(lake, stream.source, *rows, query=writer)


def take(
    settings: Settings,
    query: Query,
    after: int,
    failpoint: Callable[[FailPoint], None] = nowhere,
    generation: str = "generation-1",
    batch_id: int = 0,
) -> MicroBatch:
    """Let a query take what is there after a version as one batch."""
    stream = MERGING[query].stream
    newest = tables.newest(settings.lake, stream.source)
    batch = MicroBatch(query, generation, batch_id, versions={stream.source: (after, newest)}, failpoint=failpoint)
    ids = {table: delta.table_id(settings.lake, table) for table in (stream.source, stream.target)}
    stream.open(Context(None, settings, ids)).work(None, batch)  # type: ignore[arg-type]
    return batch


def merged(lake: str, query: Query) -> dict[str, dict[str, Any]]:
    rows = tables.opened(lake, MERGING[query].stream.target).to_pyarrow_table().to_pylist()
    found = {row["customer_id"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def commits(lake: str, query: Query) -> int:
    return tables.newest(lake, MERGING[query].stream.target)


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def bought(customer: str, amount: str, second: int) -> dict[str, Any]:
    times = {"occurred_at": at(second), "kafka_timestamp": at(second)}
    return {"customer_id": customer, "amount": Decimal(amount), **times}


def changed(query: Query, number: int, partition: int = 0, *, is_gone: bool, existed: bool = True) -> dict[str, Any]:
    """Return where a change is in the order of records, and whether it ends its customer's row."""
    if query == Query.PROFILES:
        return {"is_tombstone": is_gone, "landing": number, "partition": partition, "offset": 9 - number}
    return {"is_gone": is_gone, "existed": is_gone and existed, "view_version": number + 1}


def fill(lake: str, query: Query) -> None:
    """Append four versions; C-1 changes in each, D-0 comes with the first and goes with the third."""
    for number in range(4):
        if query == Query.SUMMARIES:
            append(lake, query, [bought("C-1", "1.10", number * 10 + n) for n in range(3)])
            continue
        rows = [(customer, False) for customer in ("C-1", f"D-{number}")] + [("D-0", True)] * (number == 2)
        append(
            lake,
            query,
            [
                {"customer_id": customer, "address": f"{number}"} | changed(query, number, n % 2, is_gone=is_gone)
                for n, (customer, is_gone) in enumerate(rows)
            ],
        )


def assert_right(lake: str, query: Query) -> None:
    rows = merged(lake, query)
    if query == Query.SUMMARIES:
        assert rows.keys() == {"C-1"}
        assert (rows["C-1"]["purchase_count"], rows["C-1"]["total_amount"]) == (12, Decimal("13.20"))
    else:
        assert rows.keys() == {"C-1", "D-1", "D-2", "D-3"}
        assert rows["C-1"]["address"] == "3"


@pytest.mark.usefixtures("a_version_a_part")
@pytest.mark.parametrize("query", MERGING)
@pytest.mark.parametrize("place", [FailPoint.STAGED, FailPoint.COMMITTED])
@pytest.mark.parametrize("times", [1, 3])
def test_a_batch_is_merged_part_by_part_each_once(
    settings: Settings, lake: str, query: Query, place: FailPoint, times: int
) -> None:
    fill(lake, query)
    with pytest.raises(Crash):
        take(settings, query, -1, crash(place, times))
    assert commits(lake, query) == times - (place is FailPoint.STAGED)

    take(settings, query, -1)
    assert commits(lake, query) == 4
    take(settings, query, -1)

    assert commits(lake, query) == 4
    assert_right(lake, query)


@pytest.mark.parametrize("query", MERGING)
def test_a_batch_that_fits_is_one_commit(settings: Settings, lake: str, query: Query) -> None:
    fill(lake, query)
    batch = take(settings, query, -1)
    assert (commits(lake, query), batch.commits) == (1, 1)
    assert_right(lake, query)


@pytest.mark.parametrize("query", [Query.PROFILES, Query.ACTIVITY])
def test_changes_that_leave_no_trace_leave_a_commit(
    settings: Settings, lake: str, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A customer who came and went within one batch: without a commit the next start would miss it."""
    append(lake, query, [{"customer_id": "C-1"} | changed(query, 0, is_gone=True, existed=False)])
    settled: list[int] = []
    monkeypatch.setattr(deltalog, "settle", lambda _lake, _table, version: settled.append(version))
    batch = take(settings, query, -1)
    assert settled == [1]
    assert (commits(lake, query), batch.commits) == (1, 1)
    assert merged(lake, query) == {}
    note = history.latest_metadata(lake, MERGING[query].stream.target, query)
    assert deltalog.noted(note)[MERGING[query].stream.source].version == 1

    take(settings, query, -1)
    assert commits(lake, query) == 1


def test_a_part_that_comes_to_no_row_leaves_a_commit(settings: Settings, lake: str) -> None:
    """A stream may leave rows out: without a commit the next start would miss what it has read."""
    append(lake, Query.SUMMARIES, [bought("C-1", "1.10", 1)])
    stream = replace(summaries.STREAM, reduce=lambda _: arrow_schema(Table.SUMMARIES).empty_table())
    ids = {table: delta.table_id(lake, table) for table in (stream.source, stream.target)}
    work = stream.open(Context(None, settings, ids)).work  # type: ignore[arg-type]
    for _ in range(2):
        work(None, MicroBatch(Query.SUMMARIES, "generation-1", 0, versions={stream.source: (-1, 1)}))  # type: ignore[arg-type]
    assert commits(lake, Query.SUMMARIES) == 1
    note = history.latest_metadata(lake, stream.target, Query.SUMMARIES)
    assert deltalog.noted(note)[stream.source].version == 1


@pytest.mark.usefixtures("a_version_a_part")
@pytest.mark.parametrize("reached", [1, 2, 4])
def test_a_checkpoint_that_is_made_anew_adds_nothing_twice(settings: Settings, lake: str, reached: int) -> None:
    fill(lake, Query.SUMMARIES)
    with pytest.raises(Crash):
        take(settings, Query.SUMMARIES, -1, crash(FailPoint.COMMITTED, reached))
    take(settings, Query.SUMMARIES, -1, generation="generation-2")
    assert_right(lake, Query.SUMMARIES)


def test_what_the_release_before_has_added_is_not_added_again(settings: Settings, lake: str) -> None:
    fill(lake, Query.SUMMARIES)
    take(settings, Query.SUMMARIES, -1)
    table_id = delta.table_id(lake, Table.PURCHASES)
    end = json.dumps({"reservoirId": table_id, "reservoirVersion": 5, "index": -1})
    note = {"query": "summaries", "generation": "before", "batch_id": 7, "cut": {"begin": None, "end": [end]}}
    tables.commit(lake, Table.SUMMARIES, note)
    take(settings, Query.SUMMARIES, -1, generation="before", batch_id=7)
    assert_right(lake, Query.SUMMARIES)


@pytest.mark.parametrize(
    ("amounts", "total"),
    [
        pytest.param([["0.10", "0.20"]], Decimal("0.30"), id="cents"),
        pytest.param([[MOST]], Decimal(MOST), id="the most"),
        pytest.param([[MOST, "0.01"]], None, id="a cent more in one batch"),
        pytest.param([[MOST], ["0.01"]], None, id="a cent more in two batches"),
        pytest.param([[MOST] * 2], None, id="twice the most"),
        pytest.param([[MOST] * 19], None, id="more than 64 bits hold"),
        pytest.param([[MOST], [MOST], ["0.00"]], None, id="it stays out of range"),
    ],
)
def test_a_total_that_the_table_cannot_hold_is_null_and_count_and_times_go_on(
    settings: Settings, lake: str, amounts: Sequence[Sequence[str]], total: Decimal | None
) -> None:
    second = 0
    for number, batch in enumerate(amounts):
        rows = [bought("C-2", "1.00", number)]
        for amount in batch:
            second += 1
            rows.append(bought("C-1", amount, second))
        append(lake, Query.SUMMARIES, rows)
        take(settings, Query.SUMMARIES, number, batch_id=number)

    rows_by_id = merged(lake, Query.SUMMARIES)

    row = rows_by_id["C-1"]
    assert (row["purchase_count"], row["total_amount"], row["last_purchase_at"]) == (second, total, at(second))
    assert rows_by_id["C-2"]["total_amount"] == len(amounts)
