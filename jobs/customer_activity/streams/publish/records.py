"""Which rows of gold go out: what the topic has already does not, nor what it would refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.contracts.columns import TRACE, names
from customer_activity.contracts.trace import Headers, as_headers
from customer_activity.contracts.view import FIELDS, records, version_of
from customer_activity.engine.stream import Traced
from customer_activity.streams.publish import parts

COLUMNS = (*FIELDS.values(), "existed", "is_gone", *names(TRACE))  # of gold's changes, that are read
ESCAPED_BYTES = 6  # of JSON for one byte of text, at most
HEADER_BYTES = 4  # the lengths of a header's name and value: two bytes are enough for 8 kB
OTHER_BYTES = 1_000  # of the other fields and all names, at most


def traced(rows: pa.Table, max_bytes: int) -> Iterator[Traced]:
    """Return the records of rows, each with the trace of the record that its `as_of` names.

    A trace never keeps a row from the topic: it stays behind where both together are more than the topic takes.
    """
    contexts = rows.column("trace_context").to_pylist()
    for (key, value), context in zip(records(rows), contexts, strict=True):
        yield Traced(key, value, fitting(as_headers(context), max_bytes - len(key) - len(value or b"")))


def fitting(headers: Headers, room: int) -> Headers:
    """Return headers where there is room for them, in bytes."""
    return headers if sum(len(name) + len(value) + HEADER_BYTES for name, value in headers) <= room else []


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
