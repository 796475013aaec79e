"""What gold knows of the past, when silver's logs no longer tell all of it."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from customer_activity import delta
from customer_activity.catalog import Table, table_path
from customer_activity.datafiles import arrow_schema
from customer_activity.gold.state import GoldState
from customer_activity.settings import Settings

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
COMMITS = 6
LOG_BEGINS = 4


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return settings of a lake with a purchase and a profile in each of six commits; a checkpoint at the fourth."""
    settings = Settings(lake=str(tmp_path / "lake"))
    delta.ensure_tables(settings.lake)
    rows = {
        Table.PURCHASES: {"amount": Decimal("1.10"), "occurred_at": NOON},
        Table.PROFILE_CHANGES: {"name": "Ada", "updated_at": NOON, "is_tombstone": False, "partition": 0},
    }
    for number in range(1, COMMITS + 1):
        for table, fields in rows.items():
            row = {"customer_id": "C-1", "kafka_timestamp": NOON, **fields}
            row |= {"purchase_id": f"P-{number}"} if table is Table.PURCHASES else {"offset": number}
            path = table_path(settings.lake, table)
            write_deltalake(path, pa.Table.from_pylist([row], arrow_schema(table)), mode="append")
            if number == LOG_BEGINS:
                DeltaTable(path).create_checkpoint()
    return settings


@pytest.fixture
def state(settings: Settings) -> GoldState:
    logs = (Table.PURCHASES, Table.PROFILE_CHANGES, Table.ACTIVITY_CHANGES)
    return GoldState(settings, {table: delta.table_id(settings.lake, table) for table in logs})


def shorten(settings: Settings) -> None:
    """Take away what the logs have before their checkpoint."""
    for table in (Table.PURCHASES, Table.PROFILE_CHANGES):
        for version in range(LOG_BEGINS):
            Path(table_path(settings.lake, table), "_delta_log", f"{version:020}.json").unlink()


def both(version: int) -> dict[Table, int]:
    return {Table.PURCHASES: version, Table.PROFILE_CHANGES: version}


def purchases(state: GoldState) -> int:
    ((count,),) = state.index.connection.execute("SELECT purchase_count FROM summary WHERE customer_id = 'C-1'")
    return int(count)


@pytest.mark.parametrize("held", [None, 1, 2, LOG_BEGINS - 1, LOG_BEGINS, COMMITS])
def test_nothing_is_counted_twice_or_left_out(settings: Settings, state: GoldState, held: int | None) -> None:
    if held is not None:
        state.catch_up(both(held))
        assert purchases(state) == held
    shorten(settings)
    state.catch_up(both(COMMITS))
    assert purchases(state) == COMMITS
    assert state.positions == both(COMMITS)


def test_a_version_that_the_log_no_longer_has_is_the_first_that_it_has(settings: Settings, state: GoldState) -> None:
    shorten(settings)
    state.catch_up(both(2))
    assert purchases(state) == LOG_BEGINS
    assert state.positions == both(LOG_BEGINS)
    state.catch_up(both(COMMITS))
    assert purchases(state) == COMMITS
