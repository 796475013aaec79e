"""Versions of a table of days, as its stream makes them, without Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake.merging import merge
from customer_activity.lake.microbatch import MicroBatch

KEY = ("customer_id", "day")
MIDNIGHT = datetime(2026, 3, 1, tzinfo=UTC)
States = dict[str, tuple[int, bool] | None]  # by customer: how many purchases, and whether that is final; None: gone


def row(customer: str, count: int, *, is_final: bool = False) -> dict[str, Any]:
    return {
        "customer_id": customer,
        "day": date(2026, 3, 1),
        "window_start": MIDNIGHT,
        "window_end": MIDNIGHT + timedelta(days=1),
        "purchase_count": count,
        "total_amount": Decimal(f"{count}.50"),
        "first_purchase_at": MIDNIGHT,
        "last_purchase_at": MIDNIGHT + timedelta(milliseconds=count),
        "is_final": is_final,
    }


def write(lake: str, number: int, states: States) -> None:
    """Make one version of the table: rows that come or change, and rows that go."""
    rows = [
        row(name, *([1] if state is None else [state[0]]), is_final=bool(state and state[1]))
        for name, state in states.items()
    ]
    source = pa.Table.from_pylist(rows, arrow_schema(Table.DAILY))
    is_gone = pa.array([state is None for state in states.values()], pa.bool_())
    batch = MicroBatch("daily", "generation", number, ids={Table.TIMED_PURCHASES: "x"})
    merge(
        source.append_column("is_gone", is_gone),
        lake,
        Table.DAILY,
        batch,
        key=KEY,
        update={name: f"s.{name}" for name in source.column_names},
        delete_when="s.is_gone",
    )
