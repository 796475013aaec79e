"""Where a part of payments is worked on changes nothing: driver, executors, or batch by batch the one and the other.

What executors do is done here by their own tasks, one after the other; tests/spark/test_payments.py has Spark do it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from customer_activity.catalog import Table, table_path
from customer_activity.engine import executors, merge_tasks, placement
from customer_activity.engine.executors import ByLane, Reports
from customer_activity.errors import ChangeFeedLost, LeaseLost, RowsLost, TransientError
from customer_activity.lake import commits, feeds, history, pieces
from customer_activity.lake.failpoints import FailPoint
from customer_activity.lake.pieces import Piece
from customer_activity.streams.payments import ending, joining, spread, tasks
from support import tables
from support.paid_lives import Buy, Killed, Pay, Take, ending_at, found, land, live, living, placed, wanted
from support.quick_pipeline import QuickPipeline

TABLES = (Table.PAID, Table.UNPAID, Table.UNMATCHED_PAYMENTS)
nightly = pytest.mark.nightly
# Payments before, in time, late, twice, sent again, that differ, and for no purchase; one that is paid after all, and
# one when its time is over.
HISTORY: Sequence[Sequence[Buy | Pay]] = [
    [Pay(0, 3), Pay(9, 4), Buy(1, 0), Buy(2, 1), Pay(2, 2), Pay(2, 2), Pay(2, 3, payment_id=2)],
    [Buy(0, 5), Buy(3, 6), Pay(3, 7, "2.00"), Buy(4, 8), Pay(4, 9, customer="C-2"), Buy(5, 9)],
    [Buy(6, 80), Pay(6, 85), Pay(5, 60), *(Pay(2, 10 + n, payment_id=3) for n in range(12))],
    [Pay(1, 90), Pay(3, 91), Pay(0, 92), Buy(7, 30), Buy(8, 81)],
    [Buy(9, 2), Pay(7, 95), Buy(10, 200)],
]
IN_CI = (
    ("executors", "driver", 1),
    ("driver", "executors", 3),
)  # who ends behind the first commit, and behind the second
LAST = len(HISTORY) - 2  # the batch that a crash ends: rows of each table come and go with it


@pytest.fixture
def pipeline(paying: QuickPipeline) -> QuickPipeline:
    """Return the streams on an empty lake."""
    return paying


def lived(pipeline: QuickPipeline, places: Sequence[str], ends_at: int = 99, again: str = "driver") -> None:
    """Take the history in, one batch after the other, each at the next of some places; one of them may end."""
    for number, (steps, place) in enumerate(zip(HISTORY, cycle(places), strict=False)):
        land(pipeline, *steps)
        placed(pipeline, place)
        try:
            pipeline.hop("payments", ending_at(ends_at if number == LAST else 99))
        except Killed:
            placed(pipeline, again)
            pipeline.repeat("payments")


def rows(pipeline: QuickPipeline) -> dict[str, list[dict[str, Any]]]:
    return {table.label: pipeline.rows(table) for table in TABLES}


@pytest.fixture(scope="module")
def in_driver(empty_with_payments: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Return the rows that the driver comes to."""
    with living(empty_with_payments, tmp_path_factory.mktemp("driver")) as pipeline:
        lived(pipeline, ["driver"])
        assert found(pipeline) == wanted(pipeline)
        return rows(pipeline)


def test_the_history_has_something_of_everything(in_driver: dict[str, list[dict[str, Any]]]) -> None:
    of_paid, of_unpaid, of_unmatched = in_driver.values()
    assert {(row["is_early"], row["is_late"]) for row in of_paid} == {(True, False), (False, True), (False, False)}
    assert len(of_unpaid) > 1
    reasons = {row["reason"] for row in of_unmatched}
    assert reasons == {"repeated", "paid_twice", "differs", "no_purchase"} - ({"no_purchase"} - reasons)


@pytest.mark.parametrize(
    "places",
    [
        pytest.param(["executors"], id="executors", marks=nightly),
        pytest.param(["driver", "executors"], id="in turn"),
        pytest.param(["executors", "executors", "driver"], id="executors twice, then the driver", marks=nightly),
    ],
)
def test_rows_are_the_same_wherever_a_part_is_worked_on(
    pipeline: QuickPipeline, in_driver: dict[str, list[dict[str, Any]]], places: Sequence[str]
) -> None:
    lived(pipeline, places)
    assert rows(pipeline) == in_driver


@pytest.mark.parametrize(
    ("place", "again", "ends_at"),
    [
        pytest.param(place, again, number, marks=() if (place, again, number) in IN_CI else nightly)
        for place, again in (("executors", "driver"), ("driver", "executors"), ("executors", "executors"))
        for number in range(6)
    ],
)
def test_a_driver_that_ends_at_any_commit_leaves_the_rest_to_whoever_repeats_it(
    pipeline: QuickPipeline, in_driver: dict[str, list[dict[str, Any]]], place: str, again: str, ends_at: int
) -> None:
    """Before and behind each of its three commits."""
    lived(pipeline, [place], ends_at, again)
    assert rows(pipeline) == in_driver
    assert found(pipeline) == wanted(pipeline)


def unnamed(pipeline: QuickPipeline, table: Table) -> set[str]:
    """Return the files of a table's folder that no version of it names."""
    folder = Path(table_path(pipeline.settings.lake, table))
    named: set[str] = set()
    for version in range(tables.newest(pipeline.settings.lake, table) + 1):
        entry = tables.entry(pipeline.settings.lake, table, version).read_text(encoding="utf-8")
        named |= {file.name for file in folder.rglob("*.parquet") if file.name in entry}
    return {file.name for file in folder.rglob("*.parquet")} - named


@pytest.mark.parametrize("again", ["executors", "driver"])
def test_a_part_that_is_cut_otherwise_when_it_is_repeated_pays_nothing_twice(
    pipeline: QuickPipeline, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    """As another release does it: then no transaction id tells what was committed."""
    land(pipeline, Pay(0, 3), Pay(1, 4))
    pipeline.hop("payments")
    land(pipeline, Buy(0, 5))
    land(pipeline, Buy(1, 6))
    placed(pipeline, "executors")
    whole = feeds.PART_FILES
    monkeypatch.setattr(feeds, "PART_FILES", 1)
    with pytest.raises(Killed):
        pipeline.hop("payments", ending_at(1))
    monkeypatch.setattr(feeds, "PART_FILES", whole)
    assert [row["purchase_id"] for row in pipeline.rows(Table.PAID)] == ["P-0"]
    placed(pipeline, again)
    pipeline.repeat("payments")
    assert [row["purchase_id"] for row in pipeline.rows(Table.PAID)] == ["P-0", "P-1"]
    assert found(pipeline) == wanted(pipeline)


def test_a_table_that_changes_meanwhile_is_written_anew_from_what_it_has_then(pipeline: QuickPipeline) -> None:
    land(pipeline, Buy(0, 0), Buy(1, 80), Pay(2, 5))
    pipeline.hop("payments")
    land(pipeline, Pay(0, 85), Buy(2, 90))
    placed(pipeline, "executors")

    def somebody_commits(point: FailPoint) -> None:
        if point is FailPoint.STAGED:
            tables.commit(pipeline.settings.lake, Table.UNPAID, {"query": "maintenance"})

    with pytest.raises(TransientError, match="is at version"):
        pipeline.hop("payments", somebody_commits)
    assert unnamed(pipeline, Table.UNPAID) == set()
    pipeline.repeat("payments")
    assert found(pipeline) == wanted(pipeline)


def changing_all(pipeline: QuickPipeline) -> None:
    """Let a part come, for executors, with which rows of each table come or go."""
    land(pipeline, Buy(0, 0), Buy(1, 80), Pay(2, 5), Buy(3, 1), Pay(3, 2))
    pipeline.hop("payments")
    land(pipeline, Pay(0, 85), Buy(2, 90))
    placed(pipeline, "executors")


@pytest.mark.parametrize(
    ("error", "is_left"),
    [
        pytest.param(LeaseLost("another driver has taken over"), False, id="before anything is committed"),
        pytest.param(DeltaError("the answer is lost"), True, id="where nobody knows whether it was committed"),
    ],
)
def test_files_whose_commit_has_not_begun_are_removed(
    pipeline: QuickPipeline, monkeypatch: pytest.MonkeyPatch, error: Exception, is_left: bool
) -> None:
    """Of all three tables, where the first commit fails; only its own file may be in the log all the same."""
    changing_all(pipeline)
    monkeypatch.setattr(commits, "commit", Mock(side_effect=error))
    with pytest.raises(type(error)):
        pipeline.hop("payments")
    monkeypatch.undo()
    assert [bool(unnamed(pipeline, table)) for table in TABLES] == [is_left, False, False]
    pipeline.repeat("payments")
    assert found(pipeline) == wanted(pipeline)


def test_files_of_all_tables_are_removed_where_one_was_not_read_whole(
    pipeline: QuickPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    changing_all(pipeline)
    whole = pieces.divided

    def divided(table: Table, files: Any, *, is_past: bool = False) -> list[list[Piece]]:
        return [] if table is Table.UNMATCHED_PAYMENTS else whole(table, files, is_past=is_past)

    monkeypatch.setattr(pieces, "divided", divided)
    with pytest.raises(AssertionError, match=f"{Table.UNMATCHED_PAYMENTS.label}: version"):
        pipeline.hop("payments")
    assert [unnamed(pipeline, table) for table in TABLES] == [set(), set(), set()]


@pytest.mark.parametrize(
    ("table", "is_past"),
    [pytest.param(table, is_past, id=f"{table} {'before' if is_past else 'new'}") for table, is_past in tasks.COUNTED],
)
def test_nothing_is_committed_where_rows_were_not_read(
    pipeline: QuickPipeline, monkeypatch: pytest.MonkeyPatch, table: Table, is_past: bool
) -> None:
    changing_all(pipeline)
    before, whole = rows(pipeline), pieces.divided

    def divided(of: Table, files: Any, *, is_past: bool = False) -> list[list[Piece]]:
        shares = whole(of, files, is_past=is_past)
        return shares[1:] if (of, is_past) == lost else shares

    lost = (table, is_past)
    monkeypatch.setattr(pieces, "divided", divided)
    with pytest.raises(AssertionError, match=rf"^{table.label}: executors have read 0 rows .* are [1-9]"):
        pipeline.hop("payments")
    assert rows(pipeline) == before
    assert [unnamed(pipeline, table) for table in TABLES] == [set(), set(), set()]


def test_rows_are_counted_where_the_log_does_not_tell_them(pipeline: QuickPipeline) -> None:
    changing_all(pipeline)
    lake = pipeline.settings.lake
    entry = tables.entry(lake, Table.PAYMENT_EVENTS, tables.newest(lake, Table.PAYMENT_EVENTS))
    actions = [json.loads(line) for line in entry.read_text(encoding="utf-8").splitlines()]
    assert any(action.get("add", {}).pop("stats", None) for action in actions)
    entry.write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
    assert pipeline.hop("payments").rows == 2
    assert found(pipeline) == wanted(pipeline)


@nightly
def test_tasks_that_spark_runs_twice_change_nothing(
    pipeline: QuickPipeline, in_driver: dict[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    once = executors.run_by_lane

    def twice(spark: Any, shares: int, work: ByLane, progress: Any) -> Reports:
        once(spark, shares, work, progress)
        return once(spark, shares, work, progress)

    monkeypatch.setattr(executors, "run_by_lane", twice)
    lived(pipeline, ["executors"])
    assert rows(pipeline) == in_driver


def test_a_purchase_that_most_payments_name_is_as_others(pipeline: QuickPipeline) -> None:
    many = [Pay(0, 1 + number % 50, "1.00" if number % 3 else "2.00", number % 4) for number in range(300)]
    live(pipeline, [*many[:100], Take("both", place="executors"), Buy(0, 0), *many[100:200]])
    live(pipeline, [Take("both", place="executors"), *many[200:], Buy(1, 1)])
    assert len(found(pipeline).others) == 299
    assert found(pipeline) == wanted(pipeline)


def test_a_lane_has_no_more_than_the_part_calls_for(pipeline: QuickPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much the tables hold."""
    for first in (0, 40):
        land(pipeline, *(step for number in range(first, first + 40) for step in (Buy(number, 10), Pay(number, 12))))
        pipeline.hop("payments")
    seen: dict[Table, int] = dict.fromkeys((Table.TIMED_PURCHASES, Table.PAID), 0)
    join = joining.join

    def spied(bought: Any, payments: Any, past: Any, due: Any) -> joining.Joined:
        (held,) = past.read.args
        for table in seen:
            seen[table] += held[table].num_rows
        return join(bought, payments, past, due)

    monkeypatch.setattr(tasks, "join", spied)
    placed(pipeline, "executors")
    land(pipeline, Pay(3, 14), Pay(77, 14), Buy(100, 20))
    pipeline.hop("payments")
    assert seen == {Table.TIMED_PURCHASES: 2, Table.PAID: 2}
    assert found(pipeline) == wanted(pipeline)
    land(pipeline, Buy(101, 46))  # with which the time of those at 10 minutes is over
    pipeline.hop("payments")
    assert seen == {Table.TIMED_PURCHASES: 2 + 80, Table.PAID: 2 + 80}
    assert found(pipeline) == wanted(pipeline)


def test_purchases_that_share_the_checksum_of_one_that_is_asked_for_change_nothing(
    pipeline: QuickPipeline, in_driver: dict[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if all ids shared one: lanes get all that there is."""
    monkeypatch.setattr(merge_tasks, "checksums", lambda keys: np.zeros(keys.num_rows, np.uint32))
    lived(pipeline, ["executors"])
    assert rows(pipeline) == in_driver


def test_a_task_holds_four_bytes_of_each_id_of_the_part(
    pipeline: QuickPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    asked_for = tasks.asked_for

    def spied(work: tasks.Work, table: Table) -> tasks.Checksums:
        asked = asked_for(work, table)
        held.append(asked.nbytes)
        return asked

    land(pipeline, Buy(0, 10))
    pipeline.hop("payments")
    monkeypatch.setattr(tasks, "asked_for", spied)
    placed(pipeline, "executors")
    land(pipeline, *(Pay(number % 50, 14, payment_id=number) for number in range(100)))
    pipeline.hop("payments")
    assert held == [4 * 50]
    assert found(pipeline) == wanted(pipeline)


def test_a_task_looks_into_few_rows_however_many_a_table_has(
    pipeline: QuickPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job is not taken for stalled while its tasks end."""
    for number in range(6):
        land(pipeline, Buy(2 * number, 10), Buy(2 * number + 1, 10))
        pipeline.hop("payments")
    monkeypatch.setattr(spread, "LOOKED_UP_ROWS", 4)
    monkeypatch.setattr(pieces, "TASK_ROWS", 2)
    looked_into: list[int] = []
    parcel = executors.parcel

    def spied(lane: int, told: Any, kind: int = 0) -> Any:
        if kind == tasks.READ:
            looked_into.extend(told.column("rows").to_pylist())
        return parcel(lane, told, kind)

    monkeypatch.setattr(executors, "parcel", spied)
    placed(pipeline, "executors")
    land(pipeline, Pay(3, 14))
    pipeline.hop("payments")
    assert looked_into == [4, 4, 4]
    assert found(pipeline) == wanted(pipeline)


@pytest.mark.parametrize(
    ("table", "error"),
    [
        pytest.param(Table.PAYMENT_EVENTS, ChangeFeedLost, id="of the part"),
        pytest.param(Table.PAID, RowsLost, id="of a table that is looked into"),
        pytest.param(Table.UNMATCHED_PAYMENTS, RowsLost, id="of a table that is rewritten", marks=nightly),
    ],
)
def test_a_file_that_is_gone_is_told_by_its_table(
    pipeline: QuickPipeline, table: Table, error: type[Exception]
) -> None:
    land(pipeline, Buy(0, 0), Pay(0, 1), Pay(9, 1))
    pipeline.hop("payments")
    placed(pipeline, "executors")
    land(pipeline, Pay(0, 2))
    pipeline.work("payments")  # which looks at the files that there are
    opened = DeltaTable(table_path(pipeline.settings.lake, table))
    for file in opened.file_uris():
        Path(file).unlink()
    with pytest.raises(error, match=f"{table.label}: files"):
        pipeline.hop("payments")


def test_a_commit_tells_where_its_part_was_worked_on_and_why(
    pipeline: QuickPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> set[tuple[str, str]]:
        notes = (history.latest_metadata(pipeline.settings.lake, table, "payments") for table in TABLES)
        return {(note["placement"]["place"], note["placement"]["why"]) for note in notes}

    land(pipeline, Buy(0, 0))
    pipeline.hop("payments")
    assert told() == {("driver", "1 rows are few")}
    placed(pipeline, "executors")
    land(pipeline, Pay(0, 1), Buy(1, 2))
    pipeline.hop("payments")
    assert told() == {("executors", "ACTIVITY_PLACEMENT is executors")}
    placed(pipeline, "auto")
    monkeypatch.setattr("customer_activity.engine.changes.SMALL_BATCH_ROWS", 1)
    land(pipeline, Pay(1, 3), Buy(2, 4))
    pipeline.hop("payments")
    assert told() == {("driver", "local[*] has no executors but threads of the driver")}
    assert found(pipeline) == wanted(pipeline)


MANY_END = [Buy(number, 0) for number in range(8)]
FEW_END = [Buy(0, 0), *(Buy(number, 30) for number in range(1, 8))]
ON_CLUSTER = {"spark_master": "spark://master:7077"}
IN_DRIVER = {**ON_CLUSTER, "placement": "driver"}


@pytest.mark.parametrize(
    ("bought", "choice", "there", "told"),
    [
        pytest.param(MANY_END, ON_CLUSTER, 1, ("executors", "the time to be paid of 8 purchases ends"), id="many"),
        pytest.param(FEW_END, ON_CLUSTER, 1, ("driver", "1 rows are few"), id="few in a large file"),
        pytest.param(MANY_END, ON_CLUSTER, 0, ("driver", "1 rows are few"), id="without executors"),
        pytest.param(MANY_END, IN_DRIVER, 1, ("driver", "ACTIVITY_PLACEMENT is driver"), id="as settings say"),
        pytest.param(MANY_END, {}, 1, ("driver", "1 rows are few"), id="threads", marks=nightly),
    ],
)
def test_a_small_part_that_ends_the_time_of_many_purchases_is_for_executors(
    pipeline: QuickPipeline,
    monkeypatch: pytest.MonkeyPatch,
    bought: Sequence[Buy],
    choice: Mapping[str, str],
    there: int,
    told: tuple[str, str],
) -> None:
    """The driver would hold them all: one partition that was hours behind moves the watermark by hours."""
    land(pipeline, *bought)
    pipeline.hop("payments")
    land(pipeline, Buy(50, 60))
    monkeypatch.setattr(ending, "SMALL_BATCH_ROWS", 5)
    monkeypatch.setattr(placement, "executors_of", lambda _: there)
    pipeline.settings = pipeline.settings.model_copy(update=choice)
    pipeline.opened.pop("payments")
    pipeline.hop("payments")
    noted = history.latest_metadata(pipeline.settings.lake, Table.UNPAID, "payments")["placement"]
    assert (noted["place"], noted["why"]) == told
    assert found(pipeline) == wanted(pipeline)


def test_a_backlog_in_parts_ends_in_the_same_rows(
    pipeline: QuickPipeline, in_driver: dict[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "PART_FILES", 1)
    placed(pipeline, "executors")
    for steps in HISTORY:
        land(pipeline, *steps)
    pipeline.hop("payments")
    assert rows(pipeline) == in_driver
