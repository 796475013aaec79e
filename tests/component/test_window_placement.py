"""Where rows of windows are merged changes nothing: driver, executors, or batch by batch the one and the other.

What executors do is done here by their own tasks, one after the other; tests/spark/test_windows.py has Spark do it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.engine import changes, current_rows, placement
from customer_activity.lake import delta
from customer_activity.lake.microbatch import Place
from customer_activity.settings import Settings
from support.proof import proofs
from support.quick_pipeline import QuickPipeline
from support.windowed import BERLIN, CHAIN, DAY, HOUR, assert_right, bought, land, world
from support.without_jvm import NoSpark

MERGED = {"daily": Table.DAILY, "weekly": Table.WEEKLY, "sessions": Table.SESSIONS}
FEW = 5  # rows that a small batch has
MANY = 3 * FEW


@pytest.fixture
def windowed(
    nobody: NoSpark, lake: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[QuickPipeline]:
    """Return the streams of windows in the driver of a cluster that has given two executors."""
    monkeypatch.setattr(placement, "executors_of", lambda _: 2)
    for module in (changes, current_rows):
        monkeypatch.setattr(module, "SMALL_BATCH_ROWS", FEW)
    topology.switch_on([*CHAIN[1:], "sessions"])
    delta.ensure_tables(lake)
    own = {"time_zone": BERLIN, "grace_hours": 3.0, "spark_master": "spark://master:7077"}
    yield QuickPipeline(nobody, settings.model_copy(update=own))  # type: ignore[arg-type]
    topology.switch_on([])


def placed(pipeline: QuickPipeline, place: str) -> None:
    """Have batches be worked on at a place from now on."""
    pipeline.settings = pipeline.settings.model_copy(update={"placement": place})
    pipeline.restart()


def follow(pipeline: QuickPipeline) -> None:
    for hop in (*CHAIN, "sessions"):
        pipeline.hop(hop)


def where(pipeline: QuickPipeline, stream: str) -> tuple[Place, str]:
    """Return where the last batch of a stream was worked on, and why."""
    found = pipeline.batches[stream][-1].placement
    assert found is not None
    return found


def all_rows(pipeline: QuickPipeline) -> dict[str, list[dict[str, Any]]]:
    return {table.label: pipeline.rows(table) for table in MERGED.values()}


def assert_all_right(pipeline: QuickPipeline) -> None:
    assert_right(pipeline)
    for check in proofs(pipeline, Table.SESSIONS):
        assert check.ok, check


def buy_and_close(pipeline: QuickPipeline, customers: int) -> None:
    """Have some customers buy on a day, a few in a batch, and then one of them on a day on which that one is closed."""
    for begin in range(0, customers, FEW):
        land(
            pipeline, [bought(number, 12 * HOUR, f"C-{number}") for number in range(begin, min(begin + FEW, customers))]
        )
        follow(pipeline)
    pipeline.log.partitions = 1
    land(pipeline, [bought(customers, 9 * DAY, "C-0")])
    follow(pipeline)


@pytest.mark.parametrize("stream", MERGED)
def test_a_small_part_that_closes_many_windows_is_merged_on_executors(windowed: QuickPipeline, stream: str) -> None:
    """The first purchase after midnight closes a day of each customer: the driver would hold them all."""
    buy_and_close(windowed, MANY)
    assert where(windowed, stream) == (Place.EXECUTORS, "many rows of the table close or may be joined")
    final = [row["is_final"] for row in windowed.rows(MERGED[stream], "is_final")]
    assert sum(final) >= MANY
    assert_all_right(windowed)


@pytest.mark.parametrize(
    ("most", "place"), [pytest.param(100, Place.DRIVER, id="few"), pytest.param(10, Place.EXECUTORS, id="very many")]
)
def test_sessions_near_a_part_do_not_take_it_to_executors_unless_they_are_very_many(
    windowed: QuickPipeline, monkeypatch: pytest.MonkeyPatch, most: int, place: Place
) -> None:
    """One late purchase has all open sessions of a part's customers looked at; none of them closes or is joined."""
    monkeypatch.setattr(current_rows, "MOST_NEAR", most)
    windowed.settings = windowed.settings.model_copy(update={"grace_hours": 24.0})
    windowed.restart()
    for hour in (2, 4, 6):
        land(windowed, [bought(10 * hour + each, hour * HOUR, f"C-{each}") for each in range(4)])
        follow(windowed)
    land(windowed, [bought(100 + each, (9 if each else 1) * HOUR, f"C-{each}") for each in range(4)])
    follow(windowed)
    assert where(windowed, "sessions")[0] is place
    assert {row["purchase_count"] for row in windowed.rows(Table.SESSIONS)} == {1}
    assert_all_right(windowed)


def test_a_few_windows_are_merged_in_the_driver_however_large_their_table_is(
    windowed: QuickPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors would rewrite years of windows for those of today."""
    monkeypatch.setattr(current_rows, "LARGE_TABLE", 0)
    for day in range(3):
        land(windowed, [bought(day, day * DAY)])
        follow(windowed)
    assert [where(windowed, stream)[0] for stream in MERGED] == [Place.DRIVER] * len(MERGED)
    assert_all_right(windowed)


@pytest.mark.parametrize("stream", MERGED)
def test_a_small_part_that_closes_a_few_windows_is_merged_in_the_driver(windowed: QuickPipeline, stream: str) -> None:
    windowed.settings = windowed.settings.model_copy(update={"grace_hours": 3.0})
    land(windowed, [bought(1, 12 * HOUR)])
    follow(windowed)
    windowed.log.partitions = 1
    land(windowed, [bought(2, 2 * DAY)])
    follow(windowed)
    assert where(windowed, stream) == (Place.DRIVER, "1 rows are few")
    assert_all_right(windowed)


@pytest.mark.parametrize(
    ("place", "executors", "why"),
    [
        pytest.param("auto", 0, "1 rows are few", id="no executor"),
        pytest.param("driver", 2, "ACTIVITY_PLACEMENT is driver", id="on demand"),
    ],
)
def test_the_driver_closes_as_many_as_there_are_where_it_has_no_choice(
    windowed: QuickPipeline, monkeypatch: pytest.MonkeyPatch, place: str, executors: int, why: str
) -> None:
    monkeypatch.setattr(placement, "executors_of", lambda _: executors)
    placed(windowed, place)
    buy_and_close(windowed, MANY)
    assert [where(windowed, stream) for stream in MERGED] == [(Place.DRIVER, why)] * len(MERGED)
    assert_all_right(windowed)


def test_rows_are_the_same_whatever_the_places_in_turn(windowed: QuickPipeline) -> None:
    """Sizes change, too, so that `auto` has both."""
    records, begin, met = world(13), 0, set()
    for size, place in zip(cycle([1, 30, 3, 12]), cycle(["driver", "auto", "executors", "auto", "auto"]), strict=False):
        placed(windowed, place)
        land(windowed, records[begin : begin + size])
        follow(windowed)
        met |= {(place, where(windowed, stream)[0]) for stream in MERGED}
        begin += size
        if begin >= len(records):
            break
    assert {("auto", Place.DRIVER), ("auto", Place.EXECUTORS)} <= met
    assert_all_right(windowed)
