"""Bytes to typed columns: one pure function over Arrow batches, run by Spark's Python workers. No Spark in here.

A good record costs a compiled decoder call and its share of a few whole-column checks; whatever does not pass them is
examined alone, which says why. Refused records keep key, value, headers and coordinates, and no contract field.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Reason
from customer_activity.contracts import (
    LATEST_MILLIS,
    MAX_NESTING,
    NO_CONTROL_CHARACTERS,
    NO_TIMESTAMP,
    PURCHASE_EVENT,
    Contract,
    Field,
    Kind,
    Refusal,
    decoder,
    examine,
    is_nested_too_deeply,
    record_type,
)
from customer_activity.contracts.columns import columns_of
from customer_activity.contracts.refusals import Refusals, as_text, rows_unlike, rows_where
from customer_activity.contracts.trace import trace_contexts

CLOCK_TOLERANCE = timedelta(minutes=5)  # what a producer's clock may be ahead of the broker's
MAX_DETAIL = 200  # characters
CHUNK = 512  # records decoded before their fields are collected: they are still in the processor's cache then

EMPTY = msgspec.Raw(b"")  # stands for the number of a record that has none
TIMESTAMP = pa.timestamp("us", tz="UTC")
KAFKA_TIMESTAMP = pa.timestamp("ms", tz="UTC")  # holds every value that Kafka allows; microseconds do not
UNHELD = "Kafka timestamp"  # what is said of one that no column holds
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

_CARRIED = {  # output column: (input column, type)
    "key": ("key", pa.binary()),
    "value": ("value", pa.binary()),
    "headers": ("headers", HEADERS),
    "topic": ("topic", pa.string()),
    "partition": ("partition", pa.int32()),
    "offset": ("offset", pa.int64()),
}


@cache
def parsed_schema(*contracts: Contract) -> pa.Schema:
    """Return the columns of records that were parsed by one of these contracts."""
    fields = {column.name: column.type for contract in contracts for column in columns_of(contract)}
    return pa.schema(
        {
            **{column: data_type for column, (_, data_type) in _CARRIED.items()},
            "kafka_timestamp": TIMESTAMP,
            "reason": pa.string(),
            "detail": pa.string(),
            **fields,
            "is_tombstone": pa.bool_(),
            "trace_context": pa.string(),
        }
    )


def parse_batch(
    batch: pa.RecordBatch, *, contracts: Mapping[str, Contract], currency: str, landed_at: datetime
) -> pa.RecordBatch:
    """Parse records of some topics by their contracts.

    Args:
        batch: columns key, value, topic, partition, offset, timestamp, headers as Spark's Kafka source gives them; the
            timestamp in microseconds or milliseconds, null where it is none that a table can hold.
        contracts: by topic.
        currency: the deployment's currency, ISO 4217.
        landed_at: when the records land: what `ingested_at` says of them.

    Returns:
        `parsed_schema` of the contracts, one row a record, in the same order. `reason` and `detail` are null where it
        is accepted, the contract's fields where it is refused; fields of other contracts are null. `kafka_timestamp` is
        null where Kafka's is out of range.

    Raises:
        ValueError: a record is of another topic.
    """
    schema = parsed_schema(*contracts.values())
    topics = pc.unique(batch.column("topic")).to_pylist() or list(contracts)[:1]
    for topic in topics:
        if topic not in contracts:
            raise ValueError(f"topic {topic} is none of {', '.join(contracts)}")
    if len(topics) == 1:
        return _parse_records(batch, contracts[topics[0]], currency, landed_at, schema)
    rows_by_topic = [pc.indices_nonzero(pc.equal(batch.column("topic"), topic)) for topic in topics]
    parts = [
        _parse_records(batch.take(rows), contracts[topic], currency, landed_at, schema)
        for topic, rows in zip(topics, rows_by_topic, strict=True)
    ]
    return pa.concat_batches(parts).take(pc.array_sort_indices(pa.concat_arrays(rows_by_topic)))


def _parse_records(
    batch: pa.RecordBatch, contract: Contract, currency: str, landed_at: datetime, schema: pa.Schema
) -> pa.RecordBatch:
    """Parse records of one contract. The stages stand in the order in which their reasons count."""
    carried = {column: batch.column(source).cast(data_type) for column, (source, data_type) in _CARRIED.items()}
    key, value, stamped = carried["key"], carried["value"], _millis(batch.column("timestamp"))
    is_stamped = pc.fill_null(
        pc.and_(pc.greater_equal(stamped, NO_TIMESTAMP), pc.less_equal(stamped, LATEST_MILLIS)), fill_value=False
    )
    stamped_in_range = pc.if_else(is_stamped, stamped, None)
    carried["kafka_timestamp"] = pc.multiply(stamped_in_range, 1000).cast(TIMESTAMP)
    carried["trace_context"] = trace_contexts(carried["headers"])
    refusals = Refusals()
    refusals.add_where(
        pc.fill_null(pc.equal(pc.binary_length(key), 0), fill_value=True), Reason.MISSING_KEY, "key: missing or empty"
    )
    if not contract.null_deletes:
        refusals.add_where(
            value.is_null(), Reason.MISSING_VALUE, "value: missing, and a null value has no meaning on this topic"
        )
    key_text = as_text("key", key, refusals)
    as_text("value", value, refusals)
    values = value.to_pylist()
    for row in rows_where(pc.greater(pc.binary_length(value), 2 * MAX_NESTING)):  # a shorter one cannot be
        if is_nested_too_deeply(values[row]):
            refusals.add(row, Refusal(Reason.NOT_JSON, f"value: nested deeper than {MAX_NESTING} levels"))
    for row in refusals:
        values[row] = None
    fields = _decode(values, contract, refusals)

    for row in rows_unlike(key_text, NO_CONTROL_CHARACTERS):
        refusals.add(row, Refusal(Reason.OUT_OF_RANGE, "key: expected no control characters"))
    refusals.add_where(
        pc.invert(is_stamped), Reason.OUT_OF_RANGE, f"{UNHELD}: expected none or one of the years 1970 to 9999"
    )
    refusals.add_where(
        pc.not_equal(key_text, fields[contract.field(contract.key).column]),
        Reason.KEY_MISMATCH,
        f"key: differs from $.{contract.key}",
    )
    if contract is PURCHASE_EVENT:
        refusals.add_where(
            pc.not_equal(fields["currency"], currency), Reason.CURRENCY_MISMATCH, f"$.currency: expected {currency}"
        )
    # A producer may be ahead of the time with both its clocks, the event's and the record's.
    landed = _epoch_millis(landed_at)
    is_dated = pc.and_(is_stamped, pc.not_equal(stamped, NO_TIMESTAMP))
    latest = pc.min_element_wise(pc.if_else(is_dated, stamped, landed), landed)
    refusals.add_where(
        pc.greater(
            fields[contract.field(contract.event_time).column],
            pc.multiply(pc.add(latest, CLOCK_TOLERANCE // timedelta(milliseconds=1)), 1000).cast(TIMESTAMP),
        ),
        Reason.TIMESTAMP_IN_FUTURE,
        f"$.{contract.event_time}: more than 5 minutes after the record's Kafka timestamp or its landing",
    )
    if contract.null_deletes:
        fields["is_tombstone"] = value.is_null()
        column = contract.field(contract.key).column
        fields[column] = pc.if_else(value.is_null(), key_text, fields[column])
    _tell_lost_timestamps(refusals, stamped, is_stamped)
    return _assemble(carried, fields, refusals, schema)


def _millis(column: pa.Array) -> pa.Array:
    """Return timestamps as milliseconds since 1970."""
    numbers = column.cast(pa.timestamp(column.type.unit)).cast(pa.int64())
    # Kafka's are whole milliseconds: nothing is cut off.
    return numbers if column.type.unit == "ms" else pc.divide(numbers, 1000)


def _epoch_millis(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _tell_lost_timestamps(refusals: Refusals, stamped: pa.Array, is_stamped: pa.Array) -> None:
    """Keep in words what no column of a table holds."""
    for row in rows_where(pc.invert(is_stamped)):
        refusal, millis = refusals[row], stamped[row].as_py()
        if millis is not None:
            words = f" ({millis} ms)" if refusal.detail.startswith(UNHELD) else f" ({UNHELD}: {millis} ms)"
            refusals[row] = Refusal(refusal.reason, refusal.detail[: MAX_DETAIL - len(words)] + words)


def _decode(values: list[bytes | None], contract: Contract, refusals: Refusals) -> dict[str, pa.Array]:
    """Decode the values into the contract's columns; null where a value is None or refused."""
    blank = record_type(contract)(
        **{field.column: EMPTY if field.kind is Kind.NUMBER else None for field in contract.fields}
    )
    decode = decoder(contract).decode
    collected: list[list[Any]] = [[] for _ in contract.fields]
    for start in range(0, len(values), CHUNK):
        records = []
        for row, value in enumerate(values[start : start + CHUNK], start):
            try:
                records.append(blank if value is None else decode(value))
            except msgspec.DecodeError:
                records.append(_examined(contract, row, values, refusals) or blank)
        for cells, chunk in zip(collected, zip(*map(msgspec.structs.astuple, records), strict=True), strict=True):
            cells.extend(chunk)

    columns: dict[str, pa.Array] = {}
    for field, cells in zip(contract.fields, collected, strict=True):
        if field.is_timestamp:
            columns[field.column] = pc.multiply(pa.array(cells, pa.int64()), 1000).cast(TIMESTAMP)
        elif field.kind is Kind.NUMBER:
            columns[field.column] = _decimals(field, cells, contract, values, refusals)
        else:
            columns[field.column] = pa.array(cells, pa.string() if field.kind is Kind.STRING else pa.int64())
        for row in rows_unlike(columns[field.column], field.pattern):
            _examined(contract, row, values, refusals)
    return columns


def _decimals(
    field: Field, raw: list[msgspec.Raw], contract: Contract, values: list[bytes | None], refusals: Refusals
) -> pa.Array:
    """Turn number texts into exact decimals; null where the value is None or refused."""
    texts = _raw_texts(raw)
    if field.nullable:
        texts = pc.if_else(pc.equal(texts, "null"), None, texts)
    # Up to so many digits before and after the point, a text fits its decimal type as it stands.
    plain = f"^-?[0-9]{{1,{field.precision - field.scale}}}(?:\\.[0-9]{{1,{field.scale}}})?$"
    is_odd = pc.invert(pc.match_substring_regex(texts, plain))  # rare: 1e2, 1.500, a text in quotes, or a blank
    examined = [_examined(contract, row, values, refusals) for row in rows_where(is_odd)]
    if examined:
        rewritten = [record and bytes(getattr(record, field.column)).decode() for record in examined]
        texts = pc.replace_with_mask(texts, is_odd, pa.array(rewritten, pa.string()))
    decimals = texts.cast(pa.decimal128(field.precision, field.scale))
    for limit, beyond in ((field.minimum, pc.less), (field.maximum, pc.greater)):
        if limit is not None:
            for row in rows_where(beyond(decimals, pa.scalar(limit, decimals.type))):
                _examined(contract, row, values, refusals)
    return decimals


def _raw_texts(raw: list[msgspec.Raw]) -> pa.Array:
    """Copy raw JSON texts into a string array."""
    # One join and one split are 2 to 3 times as fast as making an object of each. No number holds a line break;
    # an object or array in its place may, and then there are more pieces than texts.
    texts = pc.split_pattern(pa.array([b"\n".join(raw)]).cast(pa.string()), "\n").flatten()
    return texts if len(texts) == len(raw) else pa.array([bytes(text).decode() for text in raw], pa.string())


def _examined(contract: Contract, row: int, values: list[bytes | None], refusals: Refusals) -> msgspec.Struct | None:
    """Judge one record by itself: the record, or None after its refusal was added."""
    value = values[row]
    if value is None or row in refusals:
        return None
    judged = examine(contract, value)
    if isinstance(judged, Refusal):
        refusals.add(row, judged)
        return None
    return judged


def _assemble(
    carried: dict[str, pa.Array], fields: dict[str, pa.Array], refusals: Refusals, schema: pa.Schema
) -> pa.RecordBatch:
    """Put the output columns together; a refused record keeps no field."""
    rows = len(carried["key"])
    if refusals:
        found = [refusals.get(row) for row in range(rows)]
        accepted = pa.array([refusal is None for refusal in found])
        fields = {column: pc.if_else(accepted, cells, None) for column, cells in fields.items()}
        fields["reason"] = pa.array([refusal and refusal.reason.value for refusal in found], pa.string())
        fields["detail"] = pa.array([refusal and refusal.detail[:MAX_DETAIL] for refusal in found], pa.string())
    columns = carried | fields
    return pa.RecordBatch.from_arrays(
        [columns[column.name] if column.name in columns else pa.nulls(rows, column.type) for column in schema],
        schema=schema,
    )
