"""Which rows of gold go out: what the topic has already does not, nor what it would refuse."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.contracts.view import FIELDS, records, version_of
from customer_activity.streams.publish import parts

COLUMNS = (*FIELDS.values(), "existed", "is_gone")  # of gold's changes, that are read
ESCAPED_BYTES = 6  # of JSON for one byte of text, at most
OTHER_BYTES = 1_000  # of the other fields and all names, at most


def unlike(rows: pa.Table, on_topic: Mapping[bytes, bytes | None]) -> pa.Table:
    """Keep the rows that the topic has not, or has otherwise and not newer: those went out before a crash."""
    versions = rows.column("view_version").to_pylist()
    return rows.filter(
        pa.array(
            [
                on_topic.get(key) != value and version_of(on_topic.get(key)) <= version
                for (key, value), version in zip(records(rows), versions, strict=True)
            ],
            pa.bool_(),
        )
    )


def oversized(rows: pa.Table, max_bytes: int) -> dict[int, tuple[bytes, bytes]]:
    """Find the rows whose records the topic would refuse: row number to key and value."""
    at_most = pc.add(pc.multiply(pa.array(parts.sizes(rows)), ESCAPED_BYTES), OTHER_BYTES)
    suspects = pc.indices_nonzero(pc.greater(at_most, max_bytes))  # the others need not be encoded to know it
    return {
        number: (key, value)
        for number, (key, value) in zip(suspects.to_pylist(), records(rows.take(suspects)), strict=True)
        if value is not None and len(key) + len(value) > max_bytes
    }
