"""Batches as Spark's Kafka source gives them, of records that a case changes a little."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa

from customer_activity.catalog import Reason
from customer_activity.contracts import CUSTOMER_PROFILE, PURCHASE_EVENT
from customer_activity.contracts.parsing import parse_batch

PURCHASES = "purchase-events"
PROFILES = "customer-profile-state"
KAFKA_TIME = datetime(2017, 7, 14, 2, 40, tzinfo=UTC)
KAFKA_MILLIS = 1_500_000_000_000
LANDED = datetime(2017, 7, 14, 2, 50, tzinfo=UTC)  # ten minutes later
FIVE_MINUTES = 300_000
PURCHASE_COLUMNS = ("purchase_id", "customer_id", "product_id", "amount", "currency", "occurred_at", "risk_score")
PROFILE_COLUMNS = ("customer_id", "name", "email", "address", "loyalty_status", "updated_at", "is_tombstone")

KAFKA_SCHEMA = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    }
)

# Known by silver and by publish, not by the record alone.
LATER_REASONS = {Reason.CONFLICTING_DUPLICATE, Reason.TOO_LARGE_TO_PUBLISH, Reason.TOTAL_OUT_OF_RANGE}


class Record(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None


def kafka_batch(records: Sequence[Record]) -> pa.RecordBatch:
    """Build a batch as Spark's Kafka source gives it, from offset 100 on."""
    rows = [
        {
            "key": record.key,
            "value": record.value,
            "topic": record.topic,
            "partition": 3,
            "offset": 100 + row,
            "timestamp": KAFKA_TIME,
            "timestampType": 0,
            "headers": [{"key": "traceparent", "value": b"00-\xff"}] if row % 2 == 0 else None,
        }
        for row, record in enumerate(records)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=KAFKA_SCHEMA)


def at(batch: pa.RecordBatch, millis: int | None) -> pa.RecordBatch:
    """Give all records of a batch a Kafka timestamp, as the fetcher does: milliseconds hold whatever it may be."""
    stamped = pa.array([millis] * batch.num_rows, pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    return batch.set_column(5, "timestamp", stamped)


CONTRACTS = {PURCHASES: PURCHASE_EVENT, PROFILES: CUSTOMER_PROFILE}


def parse(batch: pa.RecordBatch, landed_at: datetime = LANDED) -> pa.RecordBatch:
    return parse_batch(batch, contracts=CONTRACTS, currency="EUR", landed_at=landed_at)


def parse_one(record: Record) -> dict[str, Any]:
    (row,) = parse(kafka_batch([record])).to_pylist()
    parsed: dict[str, Any] = row
    return parsed


GOOD_PURCHASE: dict[str, str | None] = {
    "purchaseId": '"P-1"',
    "customerId": '"C-1"',
    "productId": '"A-1"',
    "amount": "12.34",
    "currency": '"EUR"',
    "occurredAtEpochMillis": str(KAFKA_MILLIS),
}
GOOD_PROFILE: dict[str, str | None] = {
    "customerId": '"C-1"',
    "name": '"Ada"',
    "email": '"ada@example.org"',
    "address": '"Main Street 1"',
    "loyaltyStatus": '"gold"',
    "updatedAtEpochMillis": str(KAFKA_MILLIS),
}


def text_of(fields: dict[str, str | None]) -> bytes:
    """Build an object from raw JSON texts; a field given as None is left out."""
    return ("{" + ",".join(f'"{name}":{value}' for name, value in fields.items() if value is not None) + "}").encode()


def purchase(key: bytes | None = b"P-1", **changes: str | None) -> Record:
    return Record(PURCHASES, key, text_of(GOOD_PURCHASE | changes))


def profile(key: bytes | None = b"C-1", **changes: str | None) -> Record:
    return Record(PROFILES, key, text_of(GOOD_PROFILE | changes))


def raw_purchase(value: bytes | None, key: bytes | None = b"P-1") -> Record:
    return Record(PURCHASES, key, value)


def raw_profile(value: bytes | None, key: bytes | None = b"C-1") -> Record:
    return Record(PROFILES, key, value)


GOOD = text_of(GOOD_PURCHASE)
OBJECT, NUMBER, INTEGER = "expected an object", "expected a number", "expected an integer"
