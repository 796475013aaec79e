"""Current rows are merged in parts, each once, whatever ends a driver between two, and wherever they are merged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import changes, current_rows, executors, merge_spread, placement
from customer_activity.engine.current_rows import CurrentRows
from customer_activity.engine.failures import explain
from customer_activity.engine.stream import Context, Steps
from customer_activity.errors import LeaseLost, RowsLost, TerminalError, TransientError
from customer_activity.lake import commits, delta, deltalog, feeds, history, jvm
from customer_activity.lake.failpoints import FailPoint, nowhere
from customer_activity.lake.microbatch import MicroBatch, Place
from customer_activity.settings import Settings
from customer_activity.streams.current import activity, profiles, summaries
from support import tables
from support.streams import Query
from support.without_jvm import NoSpark, without_jvm

MOST = "9999999999999999.99"
NOBODY = NoSpark()
Rows = list[dict[str, Any]]


class Merging(NamedTuple):
    """A stream behind the hot path, and who writes what it reads."""

    stream: CurrentRows
    writer: Query


ON_EXECUTORS = pytest.mark.parametrize("settings", ["executors"], indirect=True)
ON_CLUSTER = pytest.mark.parametrize("settings", ["auto"], indirect=True)
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


@pytest.fixture(scope="module", autouse=True)
def _without_jvm() -> Iterator[None]:
    """Commit, and work as executors do, without a JVM."""
    with without_jvm():
        yield


@pytest.fixture(params=["driver", "executors"])
def settings(settings: Settings, request: pytest.FixtureRequest) -> Settings:
    """Return settings by which the one or the other merges, whatever is to be merged."""
    NOBODY.forget_logs()
    return settings.model_copy(update={"placement": request.param})


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
    opened(settings, stream)(None, batch)
    return batch


def placed(batch: MicroBatch) -> Place:
    assert batch.placement is not None
    return batch.placement.place


def opened(settings: Settings, stream: CurrentRows) -> Callable[..., None]:
    """Open a stream as a driver does; return what does its batches."""
    ids = {table: delta.table_id(settings.lake, table) for table in (stream.source, stream.target)}
    return stream.open(Context(NOBODY, settings, ids)).work  # type: ignore[arg-type]


def merged(lake: str, query: Query) -> dict[str, dict[str, Any]]:
    rows = tables.opened(lake, MERGING[query].stream.target).to_pyarrow_table().to_pylist()
    found = {row["customer_id"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def versions(lake: str, query: Query) -> int:
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
    assert versions(lake, query) == times - (place is FailPoint.STAGED)

    take(settings, query, -1)
    assert versions(lake, query) == 4
    take(settings, query, -1)

    assert versions(lake, query) == 4
    assert_right(lake, query)


@pytest.mark.parametrize("query", MERGING)
def test_a_batch_that_fits_is_one_commit(settings: Settings, lake: str, query: Query) -> None:
    fill(lake, query)
    batch = take(settings, query, -1)
    assert (versions(lake, query), batch.commits) == (1, 1)
    assert_right(lake, query)
    note = history.latest_metadata(lake, MERGING[query].stream.target, query)
    assert note["placement"]["place"] == settings.placement


@pytest.mark.parametrize("query", [Query.PROFILES, Query.ACTIVITY])
def test_changes_that_leave_no_trace_leave_a_commit(
    settings: Settings, lake: str, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A customer who came and went within one batch: without a commit the next start would miss it."""
    append(lake, query, [{"customer_id": "C-1"} | changed(query, 0, is_gone=True, existed=False)])
    settled: list[str] = []
    monkeypatch.setattr(deltalog, "settle", lambda _lake, _table, version: settled.append(f"{version:020}.json"))
    monkeypatch.setattr(commits, "settle", lambda path: settled.append(Path(path).name))
    batch = take(settings, query, -1)
    assert settled == [f"{1:020}.json"]
    assert (versions(lake, query), batch.commits) == (1, 1)
    assert merged(lake, query) == {}
    note = history.latest_metadata(lake, MERGING[query].stream.target, query)
    assert deltalog.noted(note)[MERGING[query].stream.source].version == 1

    take(settings, query, -1)
    assert versions(lake, query) == 1


def test_a_part_that_comes_to_no_row_leaves_a_commit(settings: Settings, lake: str) -> None:
    """A stream may leave rows out: without a commit the next start would miss what it has read."""
    append(lake, Query.SUMMARIES, [bought("C-1", "1.10", 1)])
    stream = replace(summaries.STREAM, reduce=lambda _: arrow_schema(Table.SUMMARIES).empty_table())
    work = opened(settings, stream)
    for _ in range(2):
        work(None, MicroBatch(Query.SUMMARIES, "generation-1", 0, versions={stream.source: (-1, 1)}))
    assert versions(lake, Query.SUMMARIES) == 1
    note = history.latest_metadata(lake, stream.target, Query.SUMMARIES)
    assert deltalog.noted(note)[stream.source].version == 1


def test_a_part_of_which_a_step_writes_nothing_leaves_a_commit(settings: Settings, lake: str) -> None:
    """So does a step that yields nothing: the engine commits for it, and once."""
    append(lake, Query.SUMMARIES, [bought("C-1", "1.10", 1)])
    spec = summaries.STREAM.spec
    ids = {table: delta.table_id(lake, table) for table in (Table.PURCHASES, Table.SUMMARIES)}
    silent = changes.ChangeStream(spec, {Table.PURCHASES: ["customer_id"]}, lambda _: lambda *_: nothing())
    work = silent.open(Context(NOBODY, settings, ids)).work  # type: ignore[arg-type]
    for _ in range(2):
        work(None, MicroBatch(Query.SUMMARIES, "generation-1", 0, versions={Table.PURCHASES: (-1, 1)}))  # type: ignore[arg-type]
    assert versions(lake, Query.SUMMARIES) == 1
    note = history.latest_metadata(lake, Table.SUMMARIES, Query.SUMMARIES)
    assert deltalog.noted(note)[Table.PURCHASES].version == 1


def nothing() -> Steps:
    """Write nothing."""
    yield from ()


def test_a_key_without_a_value_is_refused_before_it_is_added_with_each_batch(settings: Settings, lake: str) -> None:
    append(lake, Query.SUMMARIES, [bought("C-1", "1.10", 1)])

    def unnamed(batches: Iterable[pa.RecordBatch]) -> pa.Table:
        rows = summaries.STREAM.reduce(batches)
        return rows.set_column(0, rows.schema.field(0), pa.nulls(rows.num_rows, pa.string()))

    stream = replace(summaries.STREAM, reduce=unnamed)
    with pytest.raises(TerminalError, match=r"silver\.purchase_summaries: .* no value in a column of the key"):
        opened(settings, stream)(
            None, MicroBatch(Query.SUMMARIES, "generation-1", 0, versions={stream.source: (-1, 1)})
        )
    assert versions(lake, Query.SUMMARIES) == 0


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


def taken_in_turn(settings: Settings, lake: str, query: Query) -> list[int]:
    """Return how many rows are counted as written for an empty table, an update, and one more that is no news."""
    target, counted = MERGING[query].stream.target, []
    first: Rows = [bought("C-1", "1.10", 0), bought("C-2", "1.10", 0)]
    if query != Query.SUMMARIES:
        first = [{"customer_id": name} | changed(query, 0, n, is_gone=False) for n, name in enumerate(("C-1", "C-2"))]
    for number, rows in enumerate((first, first[:1], [*first[:1], *first[:1]])):
        append(lake, query, rows)
        counted.append(take(settings, query, number, batch_id=number).tally.written[target.label])
    return counted


@pytest.mark.parametrize("query", MERGING)
def test_what_is_counted_as_written_is_each_change_once_wherever_it_is_merged(
    settings: Settings, lake: str, query: Query
) -> None:
    """Change files have none of an empty table, and two rows of an update."""
    assert taken_in_turn(settings, lake, query) == [2, 1, 1]


def on_disk(lake: str, table: Table) -> set[str]:
    folder = Path(table_path(lake, table))
    return {str(file.relative_to(folder)) for file in folder.rglob("*.parquet")}


def test_rows_that_are_there_already_are_not_written_again(settings: Settings, lake: str) -> None:
    """Readers of the change feed would see each row of the table go and come."""
    for number in range(2):
        append(lake, Query.ACTIVITY, [{"customer_id": "C-1"} | changed(Query.ACTIVITY, 0, is_gone=False)])
        batch = take(settings, Query.ACTIVITY, number, batch_id=number)
        assert batch.rows == 1
    feed = tables.opened(lake, Table.ACTIVITY).load_cdf(starting_version=1)
    told = {(row["_change_type"], row["customer_id"]) for row in pa.table(feed).to_pylist()}
    if settings.placement == "executors":
        assert told == {("insert", "C-1")}
        assert len(on_disk(lake, Table.ACTIVITY)) == 1
    assert versions(lake, Query.ACTIVITY) == 2
    assert merged(lake, Query.ACTIVITY).keys() == {"C-1"}


def remove_files(lake: str, table: Table) -> None:
    for file in Path(table_path(lake, table)).glob("*.parquet"):
        file.unlink()


def filled_twice(settings: Settings, lake: str) -> partial[None]:
    """Merge a batch into the table and bring another one; return what takes it."""
    fill(lake, Query.PROFILES)
    take(settings, Query.PROFILES, 0)
    append(lake, Query.PROFILES, [{"customer_id": "C-1"} | changed(Query.PROFILES, 9, is_gone=False)])
    batch = MicroBatch(Query.PROFILES, "generation-1", 1, versions={Table.PROFILE_CHANGES: (4, 5)})
    return partial(opened(settings, profiles.STREAM), None, batch)


def test_files_that_the_table_has_lost_are_named(settings: Settings, lake: str) -> None:
    """No retry brings them back, and of whom they were neither delta-rs nor Arrow says."""
    work = filled_twice(settings, lake)
    remove_files(lake, Table.PROFILES)
    with pytest.raises((RowsLost, DeltaError)) as died:
        work()
    told = explain(Query.PROFILES, RuntimeError("a batch failed"), died.value, settings, int)
    assert type(told) is RowsLost
    assert "`activity rebuild --stream profiles" in told.remedy
    assert "silver.customer_profiles: files of version 1, the newest, are gone" in str(told)
    assert versions(lake, Query.PROFILES) == 1


@ON_EXECUTORS
def test_files_that_are_replaced_while_executors_read_them_are_read_anew_by_the_next_start(
    settings: Settings, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = filled_twice(settings, lake)
    run = executors.run_by_lane

    def late(*asked: Any) -> Any:
        rows = tables.opened(lake, Table.PROFILES).to_pyarrow_table()
        remove_files(lake, Table.PROFILES)
        write_deltalake(table_path(lake, Table.PROFILES), rows, mode="overwrite")
        return run(*asked)

    monkeypatch.setattr(executors, "run_by_lane", late)
    with pytest.raises(TransientError, match=r"silver\.customer_profiles: files of version 1 were gone"):
        work()


@ON_EXECUTORS
def test_executors_read_nothing_for_a_batch_that_is_in_the_table(
    settings: Settings, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that does not know of its commit repeats the batch: what that writes anew would lie there for a week."""
    fill(lake, Query.SUMMARIES)
    work = opened(settings, summaries.STREAM)
    repeated = partial(MicroBatch, Query.SUMMARIES, "generation-1", 0, versions={Table.PURCHASES: (-1, 4)})
    with pytest.raises(Crash):
        work(None, repeated(failpoint=crash(FailPoint.COMMITTED, 1)))
    before = on_disk(lake, Table.SUMMARIES)
    monkeypatch.setattr(executors, "run_by_lane", lambda *_: pytest.fail("a job"))
    work(None, repeated())
    assert versions(lake, Query.SUMMARIES) == 1
    assert on_disk(lake, Table.SUMMARIES) == before
    assert_right(lake, Query.SUMMARIES)


@ON_EXECUTORS
def test_a_merge_that_has_not_all_rows_of_the_table_is_not_committed(settings: Settings, lake: str) -> None:
    fill(lake, Query.PROFILES)
    take(settings, Query.PROFILES, 0)
    (first, *_) = sorted(Path(table_path(lake, Table.PROFILES)).glob("*.parquet"))
    pq.write_table(pq.read_table(first).slice(1), first)
    append(lake, Query.PROFILES, [{"customer_id": "C-1"} | changed(Query.PROFILES, 9, is_gone=False)])
    before = on_disk(lake, Table.PROFILES)
    with pytest.raises(AssertionError, match=r"version 1 has 4 rows by its log, and executors have folded 3"):
        take(settings, Query.PROFILES, 4, batch_id=1)
    assert versions(lake, Query.PROFILES) == 1
    assert on_disk(lake, Table.PROFILES) == before


@ON_EXECUTORS
def test_a_small_table_gets_one_file_however_many_cores_there_are(
    settings: Settings, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_spread, "LEAST_ROWS", 10)
    monkeypatch.setattr(executors, "parallelism", lambda _: 64)
    append(lake, Query.SUMMARIES, [bought(f"C-{n}", "1.00", n) for n in range(19)])
    take(settings, Query.SUMMARIES, 0)
    assert len(on_disk(lake, Table.SUMMARIES)) == 1


@ON_EXECUTORS
@pytest.mark.parametrize("lost", ["the version", "the lease"])
def test_what_was_written_in_vain_is_removed(
    settings: Settings, lake: str, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Each is a copy of the whole table, and VACUUM leaves it for a week."""
    fill(lake, Query.PROFILES)
    take(settings, Query.PROFILES, 0)
    append(lake, Query.PROFILES, [{"customer_id": "C-1"} | changed(Query.PROFILES, 9, is_gone=False)])
    before = on_disk(lake, Table.PROFILES)
    if lost == "the version":
        monkeypatch.setattr(jvm, "read_all", lambda _: 7)
    else:
        begin = jvm.last_version
        monkeypatch.setattr(jvm, "last_version", lambda *asked: 9 if asked[1] == "lease" else begin(*asked))
        monkeypatch.setattr(MicroBatch, "lease_id", "lease")
    batch = MicroBatch(
        Query.PROFILES, "generation-1", 1, versions={Table.PROFILE_CHANGES: (4, 5)}, fencing_epoch=lambda: 4
    )
    with pytest.raises(TransientError if lost == "the version" else LeaseLost):
        opened(settings, profiles.STREAM)(None, batch)
    assert on_disk(lake, Table.PROFILES) == before


@ON_EXECUTORS
def test_what_may_have_been_committed_is_kept(settings: Settings, lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(lake, Query.PROFILES)
    commit = jvm.commit

    def late(*given: Any, **named: Any) -> int:
        commit(*given, **named)
        raise OSError("no answer")

    monkeypatch.setattr(jvm, "commit", late)
    with pytest.raises(OSError, match="no answer"):
        take(settings, Query.PROFILES, -1)
    assert_right(lake, Query.PROFILES)


@ON_CLUSTER
def test_many_files_of_a_few_rows_are_merged_in_the_driver_of_a_cluster(
    settings: Settings, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors would write the whole table for them."""
    on_cluster = settings.model_copy(update={"spark_master": "spark://master:7077"})
    monkeypatch.setattr(placement, "executors_of", lambda _: 2)
    monkeypatch.setattr(feeds, "SMALL_BATCH_FILES", 2)
    fill(lake, Query.SUMMARIES)
    batch = take(on_cluster, Query.SUMMARIES, -1)
    assert batch.placement is not None
    assert batch.placement.place is Place.DRIVER
    assert_right(lake, Query.SUMMARIES)


@pytest.mark.parametrize("settings", ["auto"], indirect=True)
@pytest.mark.parametrize(
    ("master", "there", "place"),
    [
        pytest.param("local[*]", 0, Place.EXECUTORS, id="threads"),
        pytest.param("spark://master:7077", 2, Place.EXECUTORS, id="cluster"),
        pytest.param("spark://master:7077", 0, Place.DRIVER, id="no executor"),
    ],
)
def test_a_few_rows_are_merged_into_a_large_table_on_executors(
    settings: Settings, lake: str, monkeypatch: pytest.MonkeyPatch, master: str, there: int, place: Place
) -> None:
    """The driver might hold all of the table for them."""
    monkeypatch.setattr(placement, "executors_of", lambda _: there)
    monkeypatch.setattr(current_rows, "LARGE_TABLE", 0)
    own = settings.model_copy(update={"spark_master": master})
    fill(lake, Query.SUMMARIES)
    assert placed(take(own, Query.SUMMARIES, 0)) is Place.DRIVER  # into an empty table
    assert_right(lake, Query.SUMMARIES)
    before, newest = merged(lake, Query.SUMMARIES), tables.newest(lake, Table.PURCHASES)
    append(lake, Query.SUMMARIES, [bought("C-1", "1.00", 9)])
    assert placed(take(own, Query.SUMMARIES, newest, batch_id=1)) is place
    after = merged(lake, Query.SUMMARIES)
    assert after["C-1"]["purchase_count"] == before["C-1"]["purchase_count"] + 1
    assert {**after, "C-1": None} == {**before, "C-1": None}


@ON_CLUSTER
def test_a_few_rows_of_many_bytes_are_merged_on_executors(
    settings: Settings, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cluster = settings.model_copy(update={"spark_master": "spark://master:7077"})
    monkeypatch.setattr(placement, "executors_of", lambda _: 2)
    monkeypatch.setattr(changes, "SMALL_BATCH_BYTES", 100)
    fill(lake, Query.SUMMARIES)
    batch = take(on_cluster, Query.SUMMARIES, -1)
    assert batch.placement is not None
    assert batch.placement.place is Place.EXECUTORS
