"""Which versions a batch reads, as its checkpoint says it: always whole ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import pairwise

import pytest

from customer_activity.catalog import Table
from customer_activity.checkpoints import checkpoint
from customer_activity.checkpoints.offsets import OffsetRange
from customer_activity.errors import StorageUnavailable
from customer_activity.lake import delta
from customer_activity.storage import s3
from support import addresses
from support.streams import Query
from support.tables import entry

FIRST, SECOND = Table.PURCHASE_EVENTS, Table.PROFILE_EVENTS
WHOLE_LOG: Mapping[Table, int | None] = {FIRST: 0, SECOND: 0}
SHORTENED: Mapping[Table, int | None] = {FIRST: None, SECOND: None}


def at(version: int, index: int = -1, *, is_start: bool = False) -> str:
    """An offset: this version is the next one to read, or partly read."""
    return json.dumps({"reservoirId": "t", "reservoirVersion": version, "index": index, "isStartingVersion": is_start})


@pytest.mark.parametrize(
    ("cut", "begins", "expected"),
    [
        (OffsetRange([at(5), at(2)], [at(7), at(2)]), WHOLE_LOG, {FIRST: (4, 6), SECOND: (1, 1)}),
        (OffsetRange([at(5), at(2)], [at(7), at(2)]), SHORTENED, {FIRST: (4, 6), SECOND: (1, 1)}),
        (OffsetRange(None, [at(3), at(1)]), WHOLE_LOG, {FIRST: (-1, 2), SECOND: (-1, 0)}),
        (OffsetRange(None, [at(3), at(1)]), SHORTENED, {FIRST: (-1, 2), SECOND: (-1, 0)}),
        (OffsetRange(None, [at(9), None]), {FIRST: 7, SECOND: 4}, {FIRST: (6, 8), SECOND: (3, 3)}),
        (OffsetRange(None, [at(3), None]), {FIRST: 7, SECOND: 0}, {FIRST: (6, 6), SECOND: (-1, -1)}),
        (OffsetRange([at(5), None], [at(6), None]), WHOLE_LOG, {FIRST: (4, 5), SECOND: (-1, -1)}),
        (OffsetRange([at(5), None], [at(6), at(1)]), SHORTENED, {FIRST: (4, 5), SECOND: (-1, 0)}),
        (OffsetRange([at(5), at(2)], [at(7, 12), at(2)]), WHOLE_LOG, {FIRST: (4, 7), SECOND: (1, 1)}),
        (OffsetRange([at(7, 12), at(2)], [at(9), at(2)]), WHOLE_LOG, {FIRST: (7, 8), SECOND: (1, 1)}),
        (OffsetRange([at(7, 12), at(2)], [at(7, 20), at(2)]), WHOLE_LOG, {FIRST: (7, 7), SECOND: (1, 1)}),
        (OffsetRange([at(7, 12), at(2)], [at(8), at(2)]), WHOLE_LOG, {FIRST: (7, 7), SECOND: (1, 1)}),
        (OffsetRange(None, [at(5, 3, is_start=True), None]), SHORTENED, {FIRST: (-1, 5), SECOND: (-1, -1)}),
        (OffsetRange([at(5, 3, is_start=True), at(2)], [at(7), at(2)]), WHOLE_LOG, {FIRST: (5, 6), SECOND: (1, 1)}),
        (OffsetRange([at(5, is_start=True), at(2)], [at(7), at(2)]), WHOLE_LOG, {FIRST: (-1, 6), SECOND: (1, 1)}),
    ],
    ids=[
        "two versions of one, none of the other",
        "the same, after the logs were shortened",
        "a first batch from the beginning",
        "a first batch that begins with the tables as they are",
        "a first batch that begins at some version",
        "a first batch of a query whose table had been read beyond its end",
        "a table that has had nothing yet",
        "the same, and now it begins as it is",
        "an end inside a version",
        "a begin inside a version",
        "both inside the same one",
        "the rest of a version and nothing more",
        "an end inside the table as it was",
        "a begin inside the table as it was",
        "a begin before the table as it was",
    ],
)
def test_the_versions_of_a_batch(
    cut: OffsetRange, begins: Mapping[Table, int | None], expected: dict[Table, tuple[int, int]]
) -> None:
    assert cut.versions(begins) == expected


PLACES = [at(3), at(4, 0), at(4, 2), at(5), at(5, 1), at(6, 9), at(8)]


@pytest.mark.parametrize("first", [0, 2], ids=["whole versions first", "the first batch ends inside one"])
def test_what_one_batch_ends_with_the_next_begins_behind(first: int) -> None:
    """Wherever Spark's limits cut: no version is read twice, and none is left out."""
    ends = PLACES[first:]
    cuts = [OffsetRange(None, [ends[0]]), *(OffsetRange([begin], [end]) for begin, end in pairwise(ends))]
    found = [cut.versions({FIRST: 0})[FIRST] for cut in cuts]
    assert [version for after, upto in found for version in range(after + 1, upto + 1)] == list(range(8))
    assert all(upto == after for (_, upto), (after, _) in pairwise(found))


def test_a_query_begins_with_the_table_as_it_is_where_its_log_was_shortened(lake: str) -> None:
    assert delta.begins(lake, [FIRST, SECOND]) == WHOLE_LOG
    entry(lake, FIRST, 0).unlink()
    assert delta.begins(lake, [FIRST, SECOND]) == {FIRST: None, SECOND: 0}


@pytest.mark.parametrize(
    "reads",
    [
        pytest.param(lambda lake: checkpoint.cut(lake, Query.GOLD, 3), id="what a batch reads"),
        pytest.param(lambda lake: checkpoint.generation(lake, Query.GOLD), id="whose it is"),
        pytest.param(lambda lake: checkpoint.first(lake, Query.BRONZE), id="where the first batch begins"),
    ],
)
def test_a_checkpoint_is_not_damaged_where_its_storage_does_not_answer(
    reads: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "us", "AWS_SECRET_ACCESS_KEY": "ours"}
    for name, value in {**s3.environment(f"http://{addresses.free()}", None, "lake", path_style=True), **keys}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StorageUnavailable, match="cannot be read now"):
        reads("s3://lake/activity")
