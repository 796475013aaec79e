"""How an index has a table's columns: times as microseconds since 1970, decimals as text, everything else as it is."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from customer_activity.contracts.columns import UTC_MICROS

UNNUMBERED = -1  # the landing of what landed before they were numbered


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return a column as an index has it."""
    if pa.types.is_timestamp(column.type):
        return column.cast(UTC_MICROS).cast(pa.int64())
    return column.cast(pa.string()) if pa.types.is_decimal(column.type) else column


def plain_sql(column: pa.Field) -> str:
    """Say the same in DuckDB's words."""
    name = f'"{column.name}"'
    if pa.types.is_timestamp(column.type):
        return f"epoch_us({name})"
    return f"{name}::VARCHAR" if pa.types.is_decimal(column.type) else name


def is_text(column: pa.Field) -> bool:
    """Whether an index has text in the column, and otherwise numbers."""
    return bool(pa.types.is_string(column.type) or pa.types.is_decimal(column.type))


def typed(columns: Iterable[pa.Field]) -> str:
    """Return columns with their types, as SQLite declares them."""
    return ", ".join(f'"{column.name}" {"TEXT" if is_text(column) else "INTEGER"}' for column in columns)


def listed(names: Iterable[str], of: str) -> str:
    """Return columns of a relation as SQL lists them."""
    return ", ".join(f'{of}."{name}"' for name in names)
