"""Whether a version is a table's newest is asked without listing the log."""

from __future__ import annotations

import pytest

from customer_activity.catalog import Table
from customer_activity.lake import deltalog
from customer_activity.settings import Settings
from support.inspected import write_times

TABLE = Table.PURCHASE_EVENTS


@pytest.mark.parametrize(
    ("version", "expected"),
    [(1, False), (2, True), (3, False), (7, False)],
    ids=["written to since", "the newest", "put back to the version before", "put back further"],
)
def test_only_the_newest_version_is_the_newest(settings: Settings, version: int, expected: bool) -> None:
    for second in range(3):
        write_times(settings, TABLE, second)
    assert deltalog.is_newest(settings.lake, TABLE, version) is expected
    assert deltalog.newest_version(settings.lake, TABLE) == 2


def test_a_version_whose_entry_is_gone_is_not_the_newest(settings: Settings) -> None:
    assert not deltalog.is_newest(settings.lake, TABLE, 0)
