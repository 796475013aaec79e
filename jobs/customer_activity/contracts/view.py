"""Records of the view topic: made of gold's changes, and how they are known again on the topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.contracts.columns import UTC_MICROS
from customer_activity.contracts.schema import CUSTOMER_ACTIVITY

FIELDS = {field.name: field.column for field in CUSTOMER_ACTIVITY.fields}  # gold has times, the topic milliseconds
RECORDS_AT_A_TIME = 1_000
LAST_VERSION = 2**63 - 2  # that a column can hold, and one more
Record = tuple[bytes, bytes | None]


def as_on_topic(rows: pa.Table, on_topic: Mapping[bytes, bytes | None]) -> pa.Table:
    """Give rows that the topic has already, but for the version, the version that they have there."""
    own = rows.column("view_version").to_pylist()
    keys = (customer.encode() for customer in rows.column("customer_id").to_pylist())
    there = [version_of(on_topic.get(key)) or version for key, version in zip(keys, own, strict=True)]
    at = rows.column_names.index("view_version")
    alike = rows.set_column(at, "view_version", pa.array(there, pa.int64()))
    unlike_ones = [on_topic.get(key) != value for key, value in records(alike)]
    versions = [mine if differs else known for mine, known, differs in zip(own, there, unlike_ones, strict=True)]
    return rows.set_column(at, "view_version", pa.array(versions, pa.int64()))


def version_of(value: bytes | None) -> int:
    """Return a record's version; 0 for one that is none of ours, so that every row of gold is newer."""
    try:
        version = msgspec.json.decode(value or b"null")["viewVersion"]
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError):  # the last one: it is nested too deeply
        return 0
    return version if type(version) is int and 0 <= version <= LAST_VERSION else 0


def records(rows: pa.Table) -> Iterator[Record]:
    """Key and value of each customer's record; the value is null when the row is gone."""
    encode = msgspec.json.Encoder(decimal_format="number").encode  # the cents as they are: 12.30, never 12.3000001
    fields = rows.select(list(FIELDS.values())).rename_columns(list(FIELDS))
    fields = pa.table({name: _plain(fields.column(name)) for name in FIELDS})
    is_gone = rows.column("is_gone").to_pylist()
    start = 0
    for part in fields.to_batches(max_chunksize=RECORDS_AT_A_TIME):
        for gone, row in zip(is_gone[start : start + part.num_rows], part.to_pylist(), strict=True):
            yield row["customerId"].encode(), None if gone else encode(row)
        start += part.num_rows


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return times as milliseconds since 1970."""
    if not pa.types.is_timestamp(column.type):
        return column
    return pc.divide(column.cast(UTC_MICROS).cast(pa.int64()), 1000)
