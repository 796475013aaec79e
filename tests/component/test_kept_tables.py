"""Tables that a driver looks at again and again: each is opened once, and its new commits are read from then on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import cast

import pytest
from deltalake import DeltaTable

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.inspection import tables
from customer_activity.metrics.looks import Looking
from customer_activity.settings import Settings
from support.inspected import write_times

TABLE = Table.PURCHASE_EVENTS


def append(settings: Settings) -> None:
    write_times(settings, TABLE, 10)
    write_times(settings, TABLE, 11, 12)


def compact(settings: Settings) -> None:
    table = write_times(settings, TABLE, 10)
    table.optimize.compact()


def delete(settings: Settings) -> None:
    DeltaTable(table_path(settings.lake, TABLE)).delete()


def clean_up(settings: Settings) -> None:
    table = write_times(settings, TABLE, 10)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    table.create_checkpoint()
    write_times(settings, TABLE, 11).cleanup_metadata()


@pytest.mark.parametrize("change", [append, compact, delete, clean_up])
def test_a_table_that_is_kept_tells_what_one_opened_anew_does(
    settings: Settings, change: Callable[[Settings], None]
) -> None:
    kept: tables.Kept = {}
    assert tables.position(settings.lake, TABLE, kept) is None  # and is looked for the next time
    write_times(settings, TABLE, 0, 1)
    write_times(settings, TABLE, 2)
    first = tables.contents(settings.lake, TABLE, kept)
    opened = kept[TABLE]
    change(settings)
    second = tables.contents(settings.lake, TABLE, kept)
    assert kept[TABLE] is opened
    assert first is not None
    assert second is not None
    assert second.version > first.version
    assert second == tables.contents(settings.lake, TABLE)
    assert tables.position(settings.lake, TABLE, kept) == tables.position(settings.lake, TABLE)
    assert kept[TABLE] is opened


def test_a_table_that_could_not_be_read_is_opened_anew(settings: Settings) -> None:
    class Torn:
        def update_incremental(self) -> None:
            raise OSError("a torn entry")

    kept = cast("tables.Kept", {TABLE: Torn()})
    write_times(settings, TABLE, 0)
    with pytest.raises(OSError, match="torn"):
        tables.position(settings.lake, TABLE, kept)
    found = tables.position(settings.lake, TABLE, kept)
    assert found is not None
    assert found == tables.position(settings.lake, TABLE)


def test_a_table_of_many_files_does_not_stay_open(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MOST_KEPT_FILES", 1)
    kept: tables.Kept = {}
    for number in range(3):
        table = write_times(settings, TABLE, number)
        assert tables.contents(settings.lake, TABLE, kept) == tables.contents(settings.lake, TABLE)
        assert (TABLE in kept) == (len(table.file_uris()) == 1)
    table.optimize.compact()
    assert tables.contents(settings.lake, TABLE, kept) == tables.contents(settings.lake, TABLE)
    assert TABLE in kept


def test_only_tables_that_a_driver_alone_writes_stay_open(settings: Settings) -> None:
    """Another driver's may be put back from a backup meanwhile: an open table would go on telling what it was."""
    for table in (Table.PURCHASE_EVENTS, Table.PURCHASES):
        write_times(settings, table, 0)
    looking = Looking(settings, dict.fromkeys(topology.writers(Table.PURCHASE_EVENTS), 1))
    looking.take()
    assert set(looking.kept) == {Table.PURCHASE_EVENTS}
    shutil.rmtree(table_path(settings.lake, Table.PURCHASES))
    write_times(settings, Table.PURCHASES, 1, 2, 3)
    held = {each.table: each.rows for each in looking.take().report.tables}
    assert held == {Table.PURCHASE_EVENTS: 1, Table.PURCHASES: 3}
