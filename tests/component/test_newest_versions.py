"""Whether a version is a table's newest is asked without listing the log."""

from __future__ import annotations

import pytest

from customer_activity.catalog import Table, table_path
from customer_activity.lake import deltalog
from customer_activity.settings import Settings
from customer_activity.storage import s3
from customer_activity.storage.filesystem import write_whole
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


@pytest.mark.usefixtures("s3_server")
def test_on_s3_it_is_the_same() -> None:
    lake = "s3a://lake/prefix"
    s3.client().create_bucket(Bucket="lake")
    assert not deltalog.is_newest(lake, TABLE, 0)
    for version in range(2):
        write_whole(f"{table_path(lake, TABLE)}/_delta_log/{version:020}.json", b"{}")
    assert [deltalog.is_newest(lake, TABLE, version) for version in range(3)] == [False, True, False]
