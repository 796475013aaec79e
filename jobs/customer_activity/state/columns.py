"""How an index has a table's columns: times as microseconds since 1970, everything else as it is."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from customer_activity.contracts.tables import UTC_MICROS


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return a column as an index has it."""
    return column.cast(UTC_MICROS).cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def plain_sql(column: pa.Field) -> str:
    """Say the same in DuckDB's words."""
    name = f'"{column.name}"'
    return f"epoch_us({name})" if pa.types.is_timestamp(column.type) else name


def sqlite_type(column: pa.Field) -> str:
    """Return the type that the column has in SQLite."""
    return "TEXT" if column.type == pa.string() else "INTEGER"


def listed(names: Iterable[str], of: str) -> str:
    """Return columns of a relation as SQL lists them."""
    return ", ".join(f'{of}."{name}"' for name in names)
