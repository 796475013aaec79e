"""Where tables end: a driver that looks at its own every few seconds lists their logs, and opens each once."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from customer_activity.catalog import Table
from customer_activity.inspection import tables
from customer_activity.inspection.tables import Position
from customer_activity.settings import Settings
from support.inspected import write_times

TABLE = Table.PURCHASE_EVENTS


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Table]:
    """Note which tables are opened."""
    noted: list[Table] = []
    open_table = tables.open_table

    def note(lake: str, table: Table) -> DeltaTable | None:
        noted.append(table)
        return open_table(lake, table)

    monkeypatch.setattr(tables, "open_table", note)
    return noted


def test_a_table_that_is_known_is_not_opened_again(settings: Settings, opened: list[Table]) -> None:
    known: dict[Table, Position] = {}
    assert tables.position(settings.lake, TABLE, known) is None  # and is looked for the next time
    write_times(settings, TABLE, 0)
    first = tables.position(settings.lake, TABLE, known)
    opened.clear()
    write_times(settings, TABLE, 1)
    write_times(settings, TABLE, 2)
    second = tables.position(settings.lake, TABLE, known)
    assert opened == []
    assert first is not None
    assert second == tables.position(settings.lake, TABLE) == Position(first.table_id, first.version + 2)
    assert opened == [TABLE]
