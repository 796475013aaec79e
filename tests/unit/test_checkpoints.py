"""Which versions a batch reads, as its checkpoint says it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from customer_activity import delta
from customer_activity.catalog import Table, table_path
from customer_activity.checkpoints import Cut
from customer_activity.settings import Settings

FIRST, SECOND = Table.PURCHASE_EVENTS, Table.PROFILE_EVENTS
WHOLE_LOG: Mapping[Table, int | None] = {FIRST: 0, SECOND: 0}
SHORTENED: Mapping[Table, int | None] = {FIRST: None, SECOND: None}


def at(version: int, index: int = -1, *, is_start: bool = False) -> str:
    """An offset: this version is the next one to read, or partly read."""
    return json.dumps({"reservoirId": "t", "reservoirVersion": version, "index": index, "isStartingVersion": is_start})


@pytest.mark.parametrize(
    ("cut", "begins", "expected"),
    [
        (Cut([at(5), at(2)], [at(7), at(2)]), WHOLE_LOG, {FIRST: (4, 6), SECOND: (1, 1)}),
        (Cut([at(5), at(2)], [at(7), at(2)]), SHORTENED, {FIRST: (4, 6), SECOND: (1, 1)}),
        (Cut(None, [at(3), at(1)]), WHOLE_LOG, {FIRST: (-1, 2), SECOND: (-1, 0)}),
        (Cut(None, [at(3), at(1)]), SHORTENED, {}),
        (Cut([at(5), None], [at(6), None]), WHOLE_LOG, {FIRST: (4, 5), SECOND: (-1, -1)}),
        (Cut([at(5), None], [at(6), at(1)]), SHORTENED, {}),
        (Cut([at(5), at(2)], [at(7, 12), at(2)]), WHOLE_LOG, {}),
        (Cut([at(5, is_start=True), at(2)], [at(7), at(2)]), WHOLE_LOG, {}),
    ],
    ids=[
        "two versions of one, none of the other",
        "the same, after the logs were shortened",
        "a first batch from the beginning",
        "a first batch that begins with the tables as they are",
        "a table that has had nothing yet",
        "the same, and now it begins as it is",
        "an end inside a version",
        "a begin inside the table as it was",
    ],
)
def test_the_versions_of_a_batch(
    cut: Cut, begins: Mapping[Table, int | None], expected: dict[Table, tuple[int, int]]
) -> None:
    assert cut.versions(begins) == expected


def test_a_query_begins_with_the_table_as_it_is_where_its_log_was_shortened(tmp_path: Path) -> None:
    settings = Settings(lake=str(tmp_path))
    delta.ensure_tables(settings.lake)
    assert delta.begins(settings.lake, [FIRST, SECOND]) == WHOLE_LOG
    Path(table_path(settings.lake, FIRST), "_delta_log", f"{0:020}.json").unlink()
    assert delta.begins(settings.lake, [FIRST, SECOND]) == {FIRST: None, SECOND: 0}
