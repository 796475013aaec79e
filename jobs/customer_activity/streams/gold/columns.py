"""Gold's rows as the table of its changes has them. Executors import this module, too."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.state.columns import is_text
from customer_activity.streams.gold.state import ROW, Row

SCHEMA = arrow_schema(Table.ACTIVITY_CHANGES)
TYPES = {column.name: pa.string() if is_text(column) else pa.int64() for column in SCHEMA}  # of the state's rows
TYPES["total_amount"] = pa.int64()  # cents
CENT = pa.scalar("0.01").cast(pa.decimal128(3, 2))


def as_columns(rows: Sequence[Row], currency: str, view_version: int) -> pa.Table:
    """Gold rows as gold.activity_changes has them."""
    values = zip(*rows, strict=True)
    columns = {name: pa.array(cells, TYPES[name]) for name, cells in zip(ROW, values, strict=True)}
    columns["total_amount"] = pc.multiply(columns["total_amount"].cast(pa.decimal128(19, 0)), CENT)
    columns |= {"currency": pa.repeat(currency, len(rows)), "view_version": pa.repeat(view_version, len(rows))}
    return pa.table([columns[name] for name in SCHEMA.names], SCHEMA.names).cast(SCHEMA)
