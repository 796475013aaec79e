"""Publishing on real tables: in bounded transactions, each change once, and what the topic cannot take is kept."""

from __future__ import annotations

import json

import pytest

from customer_activity.catalog import Table
from customer_activity.lake.failpoints import FailPoint
from customer_activity.streams.publish import parts
from support.dying import Died, dies
from support.pipeline import Pipeline
from support.records import profile, tombstone
from support.streams import Query


def to_gold(pipeline: Pipeline) -> None:
    for query in (Query.BRONZE, Query.SILVER, Query.GOLD):
        pipeline.hop(query)


def sent(pipeline: Pipeline) -> list[tuple[int, int]]:
    """Records and the marker's rows of each transaction."""
    return [(count, 0 if marker is None else marker.rows) for count, marker in pipeline.view.transactions]


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_RECORDS", 3)


@pytest.mark.usefixtures("small_parts")
def test_a_version_larger_than_a_transaction_goes_out_in_several(pipeline: Pipeline) -> None:
    pipeline.send(*[profile(f"C-{number}") for number in range(10)])
    to_gold(pipeline)

    pipeline.hop(Query.PUBLISH)

    assert sent(pipeline) == [(3, 3), (3, 6), (3, 9), (1, 0)]
    assert pipeline.view.latest().keys() == {f"C-{number}" for number in range(10)}


@pytest.mark.usefixtures("small_parts")
def test_many_versions_go_out_with_markers_of_whole_ones(pipeline: Pipeline) -> None:
    for number in range(7):
        pipeline.send(profile("C-1", updated=number + 1, address=f"{number}"), profile(f"D-{number}"))
        to_gold(pipeline)

    pipeline.hop(Query.PUBLISH)

    assert all(rows == 0 for _, rows in sent(pipeline))
    assert len(pipeline.view.transactions) == 7
    assert pipeline.view.latest()["C-1"]["address"] == "6"
    assert len(pipeline.view.latest()) == 8


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("place", [FailPoint.SENDING, FailPoint.PUBLISHED])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_after_a_crash_between_parts_the_rest_goes_out_once(pipeline: Pipeline, place: FailPoint, times: int) -> None:
    pipeline.send(*[profile(f"C-{number}") for number in range(7)])
    to_gold(pipeline)
    pipeline.send(tombstone("C-1"), *[profile(f"D-{number}") for number in range(4)])
    to_gold(pipeline)
    with pytest.raises(Died):
        pipeline.hop(Query.PUBLISH, dies(place, times=times))

    pipeline.repeat(Query.PUBLISH)

    keys = [key for key, _ in pipeline.view.records]
    assert sorted(keys) == sorted([*(f"C-{n}" for n in range(7)), "C-1", *(f"D-{n}" for n in range(4))])
    assert "C-1" not in pipeline.view.latest()
    pipeline.repeat(Query.PUBLISH)
    assert len(pipeline.view.records) == len(keys)


def test_what_came_and_went_within_a_part_is_not_sent(pipeline: Pipeline) -> None:
    pipeline.send(profile("C-1"), profile("C-2"))
    to_gold(pipeline)
    pipeline.send(tombstone("C-1"))
    to_gold(pipeline)
    pipeline.hop(Query.PUBLISH)
    assert [key for key, _ in pipeline.view.records] == ["C-2"]


def test_a_row_that_is_too_large_is_in_quarantine_once_and_the_others_go_out(pipeline: Pipeline) -> None:
    pipeline.view.max_bytes = 600
    pipeline.send(profile("C-1"), profile("C-2", address="x" * 1_000), profile("C-3"))
    to_gold(pipeline)
    with pytest.raises(Died):
        pipeline.hop(Query.PUBLISH, dies(FailPoint.COMMITTED))
    assert pipeline.view.records == []

    pipeline.repeat(Query.PUBLISH)

    assert pipeline.view.latest().keys() == {"C-1", "C-3"}
    (kept,) = pipeline.rows(Table.QUARANTINE)
    assert (kept["reason"], kept["key"]) == ("too_large_to_publish", b"C-2")
    assert json.loads(kept["value"])["address"] == "x" * 1_000

    pipeline.send(profile("C-2", updated=9_000, address="short"))
    pipeline.run()
    assert pipeline.view.latest()["C-2"]["address"] == "short"
    assert len(pipeline.rows(Table.QUARANTINE)) == 1


PLACES = (FailPoint.STAGED, FailPoint.COMMITTED, FailPoint.SENDING, FailPoint.PUBLISHED)


@pytest.mark.parametrize(
    ("place", "times", "before", "after"),
    [
        *(pytest.param(place, times, 3, 3, id=f"{place} {times}") for place in PLACES for times in (1, 2)),
        pytest.param(FailPoint.COMMITTED, 1, 3, 100, id="in larger parts"),
        pytest.param(FailPoint.COMMITTED, 1, 100, 3, id="in smaller parts"),
    ],
)
def test_rows_too_large_are_in_quarantine_once_however_parts_are_cut_after_a_crash(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, place: FailPoint, times: int, before: int, after: int
) -> None:
    pipeline.view.max_bytes = 600
    large = {f"L-{number}" for number in range(5)}
    for key in sorted(large):
        pipeline.send(profile(key, address="x" * 1_000), profile(f"C{key}"))
    to_gold(pipeline)
    monkeypatch.setattr(parts, "PART_RECORDS", before)
    with pytest.raises(Died):
        pipeline.hop(Query.PUBLISH, dies(place, times=times))

    monkeypatch.setattr(parts, "PART_RECORDS", after)
    pipeline.repeat(Query.PUBLISH)

    kept = [row["key"].decode() for row in pipeline.rows(Table.QUARANTINE, "key")]
    assert sorted(kept) == sorted(large)
    assert sorted(key for key, _ in pipeline.view.records) == sorted(f"C{key}" for key in large)


def test_a_batch_of_nothing_but_what_is_too_large_is_through(pipeline: Pipeline) -> None:
    pipeline.view.max_bytes = 100
    pipeline.send(profile("C-1"))
    pipeline.run()
    marker = pipeline.view.marker
    assert marker is not None
    assert pipeline.view.records == []

    pipeline.repeat(Query.PUBLISH)
    assert len(pipeline.rows(Table.QUARANTINE)) == 1
