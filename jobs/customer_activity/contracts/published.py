"""Records of the topics that publish a table's rows: JSON, named as the contracts name their fields.

A field is a column in camelCase; times are milliseconds since 1970 (`…EpochMillis`), days are ISO 8601, amounts are
exact. The record's key is the key column's text, or a JSON array of such texts where the table has several.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.contracts.columns import UTC_MICROS
from customer_activity.contracts.schema import MILLIS_SUFFIX

RECORDS_AT_A_TIME = 1_000
_encode = msgspec.json.Encoder(decimal_format="number").encode  # the cents as they are: 12.30, never 12.3000001


def field_name(column: pa.Field) -> str:
    """Return the name of the JSON field that a column becomes; `schema.column_name` is the way back."""
    first, *others = str(column.name).split("_")
    suffix = MILLIS_SUFFIX if pa.types.is_timestamp(column.type) else ""
    return first + "".join(word.capitalize() for word in others) + suffix


def values(rows: pa.Table) -> Iterator[bytes]:
    """Yield each row as JSON; every column is a field."""
    names = [field_name(column) for column in rows.schema]
    fields = pa.table([_plain(column) for column in rows.columns], names)
    for part in fields.to_batches(max_chunksize=RECORDS_AT_A_TIME):
        yield from map(_encode, part.to_pylist())


def row(value: bytes, schema: pa.Schema) -> pa.Table | None:
    """Return the row that a record was made of, the way back from `values`; None where it was made of none."""
    try:
        found = json.loads(value, parse_float=Decimal)
        made = pa.table([_column(found[field_name(column)], column.type) for column in schema], schema=schema)
        return made if next(values(made)) == value else None
    except (ValueError, KeyError, TypeError, RecursionError, ArithmeticError, pa.ArrowException):
        return None


def says_the_same(found: bytes | None, wanted: bytes | None) -> bool:
    """Whether a record says what another one does: an optional field that a release did not know is absent, or null."""
    if found == wanted:
        return True
    if found is None or wanted is None:
        return False
    try:
        ours, theirs = (json.loads(value, parse_float=Decimal) for value in (found, wanted))
    except (ValueError, RecursionError, ArithmeticError):  # nested too deeply; a number that no decimal holds
        return False
    return isinstance(ours, dict) and dict.fromkeys(theirs) | ours == theirs


def keys(rows: pa.Table, key: Sequence[str]) -> Iterator[bytes]:
    """Yield each row's key."""
    columns = [_plain(rows.column(name)).cast(pa.string()).to_pylist() for name in key]
    if len(columns) == 1:
        yield from (text.encode() for text in columns[0])
    else:
        yield from (msgspec.json.encode(texts) for texts in zip(*columns, strict=True))


def _column(value: Any, kind: pa.DataType) -> pa.Array:
    """Return a field's value as its column."""
    if not pa.types.is_timestamp(kind):
        return pa.array([value], kind)
    return pc.multiply(pa.array([value], pa.int64()), 1000).cast(UTC_MICROS).cast(kind)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return times as milliseconds since 1970."""
    if not pa.types.is_timestamp(column.type):
        return column
    return pc.divide(column.cast(UTC_MICROS).cast(pa.int64()), 1000)
