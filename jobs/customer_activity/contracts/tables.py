"""The Delta tables: the columns of each, which of them have statistics, and how much of its history is kept.

The columns that come from a record are the contract's (`contracts/`): a field that is added there is a column here, in
every table that carries the record's fields. Everything else is derived: Parquet files, Delta's schema, the streams'
columns. All times are UTC, in microseconds; amounts are exact decimals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from customer_activity.catalog import Table
from customer_activity.contracts.schema import (
    CUSTOMER_ACTIVITY,
    CUSTOMER_PROFILE,
    FRAUD_ALERT,
    PAYMENT_CONFIRMED,
    PURCHASE_EVENT,
    Contract,
)

UTC_MICROS = pa.timestamp("us", tz="UTC")


class Kept(NamedTuple):
    """How much of a table's past is kept at least, once every reader of its change feed is past it."""

    commits: int  # in its log. Whoever looks for news lists all of it, so it is part of the time to the view.
    files_hours: int  # data files that were replaced, for those who still read an older version


# The tables of the hot path get a commit a second; those of current rows one in ten seconds, and people look back in
# them.
HOT, LOOKED_BACK_IN = Kept(100, 1), Kept(8_640, 7 * 24)


class Declaration(NamedTuple):
    """How a table is declared."""

    columns: pa.Schema  # as Arrow has them
    # The columns whose least and greatest value in each file somebody reads: lookups by key, continuity by offset,
    # freshness by time.
    statistics: tuple[str, ...]
    kept: Kept = HOT
    is_current: bool = False  # whether it has current rows, which a stream behind the hot path merges


def _column_type(sql_type: str) -> pa.DataType:
    if digits := re.fullmatch(r"decimal\((\d+),(\d+)\)", sql_type):
        return pa.decimal128(int(digits[1]), int(digits[2]))
    return {"string": pa.string(), "bigint": pa.int64(), "timestamp": UTC_MICROS}[sql_type]


def columns_of(contract: Contract) -> list[pa.Field]:
    """Return the columns that hold a record's fields."""
    return [pa.field(field.column, _column_type(field.sql_type)) for field in contract.fields]


def _columns(**types: pa.DataType) -> list[pa.Field]:
    return [pa.field(name, type_) for name, type_ in types.items()]


PURCHASE_FIELDS = columns_of(PURCHASE_EVENT)
PROFILE_FIELDS = columns_of(CUSTOMER_PROFILE)
ACTIVITY_FIELDS = columns_of(CUSTOMER_ACTIVITY)
PAYMENT_FIELDS = columns_of(PAYMENT_CONFIRMED)
# The tables of records that have landed, and the contract of each.
LANDED = {
    Table.PURCHASE_EVENTS: PURCHASE_EVENT,
    Table.PROFILE_EVENTS: CUSTOMER_PROFILE,
    Table.PAYMENT_EVENTS: PAYMENT_CONFIRMED,
}
COORDINATES = _columns(topic=pa.string(), partition=pa.int32(), offset=pa.int64(), kafka_timestamp=UTC_MICROS)
HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
RAW = _columns(key=pa.binary(), value=pa.binary(), headers=HEADERS)
# Records are in the order of (landing, partition, offset). A landing is a batch of bronze, or a replay, numbered over
# the life of the lake; null: landed before they were numbered, and so before all others.
LANDING = _columns(landing=pa.int64())
POSITION = _columns(partition=pa.int32(), offset=pa.int64(), kafka_timestamp=UTC_MICROS, landing=pa.int64())
IS_TOMBSTONE = _columns(is_tombstone=pa.bool_())
# What a summary has of a customer's purchases besides their number and total: a column's least or greatest value.
EXTREMES = {
    "first_purchase_at": ("occurred_at", "min"),
    "last_purchase_at": ("occurred_at", "max"),
    "last_kafka_timestamp": ("kafka_timestamp", "max"),
}
COUNTED = pa.schema([*PURCHASE_FIELDS, *POSITION])
# What tables of payments have of a purchase.
OWED = [COUNTED.field(name) for name in ("purchase_id", "customer_id", "amount", "currency", "occurred_at")]
SUMMED = ["customer_id", "amount", *dict.fromkeys(column for column, _ in EXTREMES.values())]  # a purchase's columns
BY_PLACE = ("partition", "offset", "kafka_timestamp")

# Of each partition that purchases have come from: the last offset, the latest event time, and whether it is idle.
POSITIONS = pa.list_(
    pa.field(
        "element",
        pa.struct(_columns(partition=pa.int32(), offset=pa.int64(), event_time=UTC_MICROS, is_idle=pa.bool_())),
    )
)

# What the catalogue says of a product, besides its id.
PRODUCT_FIELDS = _columns(
    manufacturer_id=pa.string(),
    department=pa.string(),
    brand=pa.string(),
    product_category=pa.string(),
    product_type=pa.string(),
    package_size=pa.string(),
)
# The profile that a purchase was enriched with: what it says, and the coordinates of the record that said it.
OF_PROFILE = [
    *(
        pa.field("profile_updated_at" if field.name == "updated_at" else field.name, field.type)
        for field in PROFILE_FIELDS
        if field.name != "customer_id"
    ),
    *_columns(profile_partition=pa.int32(), profile_offset=pa.int64(), profile_landing=pa.int64()),
]

# What a routed purchase says: neither name nor addresses, which nobody needs to route or to handle it.
ROUTED_FIELDS = [
    *PURCHASE_FIELDS,
    *(field for field in OF_PROFILE if field.name == "loyalty_status"),
    *PRODUCT_FIELDS,
    *_columns(catalogue_version=pa.int64()),
]


def _windows(first_day: str) -> Declaration:
    """Declare a table of a customer's purchases by windows of whole days, which are named by their first one."""
    columns = _columns(
        customer_id=pa.string(),
        **{first_day: pa.date32()},
        window_start=UTC_MICROS,
        window_end=UTC_MICROS,
        purchase_count=pa.int64(),
        total_amount=pa.decimal128(38, 2),
        first_purchase_at=UTC_MICROS,
        last_purchase_at=UTC_MICROS,
        is_final=pa.bool_(),
    )
    return Declaration(pa.schema(columns), ("customer_id", first_day, "window_end"), LOOKED_BACK_IN, is_current=True)


TABLES: dict[Table, Declaration] = {
    Table.PURCHASE_EVENTS: Declaration(
        pa.schema([*PURCHASE_FIELDS, *RAW, *COORDINATES, *_columns(ingested_at=UTC_MICROS), *LANDING]), BY_PLACE
    ),
    Table.PROFILE_EVENTS: Declaration(
        pa.schema([*PROFILE_FIELDS, *IS_TOMBSTONE, *RAW, *COORDINATES, *_columns(ingested_at=UTC_MICROS), *LANDING]),
        BY_PLACE,
    ),
    Table.QUARANTINE: Declaration(
        pa.schema(
            [
                *_columns(reason=pa.string(), detail=pa.string()),
                *RAW,
                *COORDINATES,
                *_columns(quarantined_at=UTC_MICROS),
                *LANDING,
            ]
        ),
        BY_PLACE,
        LOOKED_BACK_IN,
    ),
    Table.PURCHASES: Declaration(COUNTED, ("kafka_timestamp",)),
    # One row a change, in the order of records; a tombstone ends the profile.
    Table.PROFILE_CHANGES: Declaration(pa.schema([*PROFILE_FIELDS, *POSITION, *IS_TOMBSTONE]), ("kafka_timestamp",)),
    Table.SUMMARIES: Declaration(
        pa.schema(
            _columns(
                customer_id=pa.string(),
                purchase_count=pa.int64(),
                total_amount=pa.decimal128(18, 2),
                **{name: COUNTED.field(column).type for name, (column, _) in EXTREMES.items()},
            )
        ),
        ("customer_id", "last_kafka_timestamp"),
        LOOKED_BACK_IN,
        is_current=True,
    ),
    Table.PROFILES: Declaration(
        pa.schema([*PROFILE_FIELDS, *POSITION]), ("customer_id", "kafka_timestamp"), LOOKED_BACK_IN, is_current=True
    ),
    # One row a change, in the order of commits; `existed`: the row was there before, `is_gone`: it is not there after.
    Table.ACTIVITY_CHANGES: Declaration(
        pa.schema([*ACTIVITY_FIELDS, *_columns(existed=pa.bool_(), is_gone=pa.bool_())]), ("view_version", "as_of")
    ),
    Table.ACTIVITY: Declaration(
        pa.schema(ACTIVITY_FIELDS), ("customer_id", "view_version", "as_of"), LOOKED_BACK_IN, is_current=True
    ),
    # One row a landing that moved the watermark: where each partition had come, and which held nothing back.
    Table.WATERMARKS: Declaration(
        pa.schema(_columns(landing=pa.int64(), watermark=UTC_MICROS, decided_at=UTC_MICROS, positions=POSITIONS)),
        ("landing", "watermark"),
        LOOKED_BACK_IN,
    ),
    # One row a purchase that counts. `partition_time`: the latest event time before it in its partition; `watermark`
    # and `next_watermark`: before and after its landing.
    Table.TIMED_PURCHASES: Declaration(
        pa.schema(
            [
                *COUNTED,
                *_columns(partition_time=UTC_MICROS, watermark=UTC_MICROS, next_watermark=UTC_MICROS),
            ]
        ),
        ("kafka_timestamp", "occurred_at"),
    ),
    # One row a purchase and table of windows that leaves it out; without a table all of them do.
    Table.LATE_EVENTS: Declaration(
        pa.schema(
            _columns(
                purchase_id=pa.string(),
                customer_id=pa.string(),
                amount=COUNTED.field("amount").type,
                occurred_at=UTC_MICROS,
                partition=pa.int32(),
                offset=pa.int64(),
                landing=pa.int64(),
                reason=pa.string(),
                late_by_ms=pa.int64(),
                excluded_from=pa.string(),
                window_start=UTC_MICROS,
                window_end=UTC_MICROS,
            )
        ),
        ("occurred_at",),
        LOOKED_BACK_IN,
    ),
    # One row a late purchase that was taken in afterwards, on purpose: windows count it whatever its stamps.
    Table.REPROCESSED: Declaration(
        pa.schema(
            _columns(purchase_id=pa.string(), day=pa.date32(), reprocessed_at=UTC_MICROS, reason=pa.string()),
        ),
        ("day",),
        LOOKED_BACK_IN,
    ),
    Table.DAILY: _windows("day"),
    Table.WEEKLY: _windows("first_day"),
    # One row a customer's session. `window_end`: the gap after its last purchase, when it can close.
    Table.SESSIONS: Declaration(
        pa.schema(
            _columns(
                customer_id=pa.string(),
                session_start=UTC_MICROS,
                session_end=UTC_MICROS,
                window_end=UTC_MICROS,
                purchase_count=pa.int64(),
                total_amount=pa.decimal128(38, 2),
                is_final=pa.bool_(),
            )
        ),
        ("customer_id", "session_start", "window_end"),
        LOOKED_BACK_IN,
        is_current=True,
    ),
    # One row an alert, with the place of the purchase that made it.
    Table.FRAUD_ALERTS: Declaration(
        pa.schema([*columns_of(FRAUD_ALERT), *POSITION]), ("occurred_at", "kafka_timestamp")
    ),
    # One row a product and version of the catalogue that changed it; `is_gone`: from that version on it is not in it.
    Table.PRODUCTS: Declaration(
        pa.schema(
            [
                *_columns(product_id=pa.string()),
                *PRODUCT_FIELDS,
                *_columns(is_gone=pa.bool_(), version=pa.int64(), loaded_at=UTC_MICROS),
            ]
        ),
        ("version",),
        LOOKED_BACK_IN,
    ),
    # Which version of the catalogue was in force for the landings after those of the row before, up to this one.
    Table.CATALOGUE_VERSIONS: Declaration(
        pa.schema(_columns(landing=pa.int64(), catalogue_version=pa.int64(), decided_at=UTC_MICROS)),
        ("landing",),
        LOOKED_BACK_IN,
    ),
    # One row a purchase that counts, with the profile and the product as they were known when it landed.
    Table.ENRICHED: Declaration(
        pa.schema([*COUNTED, *OF_PROFILE, *PRODUCT_FIELDS, *_columns(catalogue_version=pa.int64())]),
        ("kafka_timestamp", "occurred_at"),
    ),
    # Which routing rules were in force for the landings after those of the row before, up to this one.
    Table.ROUTING_RULES: Declaration(
        pa.schema(
            _columns(landing=pa.int64(), rules_version=pa.string(), rules=pa.string(), decided_at=UTC_MICROS),
        ),
        ("landing",),
        LOOKED_BACK_IN,
    ),
    # An outbox: one row a purchase, with the route that it takes and the rule that chose it.
    Table.ROUTED: Declaration(
        pa.schema(
            [
                *ROUTED_FIELDS,
                *POSITION,
                *_columns(rule=pa.string(), route=pa.string(), rules_version=pa.string()),
            ]
        ),
        ("kafka_timestamp", "occurred_at"),
    ),
    Table.PAYMENT_EVENTS: Declaration(
        pa.schema([*PAYMENT_FIELDS, *RAW, *COORDINATES, *_columns(ingested_at=UTC_MICROS), *LANDING]), BY_PLACE
    ),
    # One row a purchase that is paid, with the payment that counts.
    Table.PAID: Declaration(
        pa.schema(
            [
                *OWED,
                *_columns(
                    payment_id=pa.string(),
                    confirmed_at=UTC_MICROS,
                    paid_after_ms=pa.int64(),
                    is_early=pa.bool_(),
                    is_late=pa.bool_(),
                ),
                *POSITION,
            ]
        ),
        ("purchase_id", "occurred_at", "kafka_timestamp"),
        LOOKED_BACK_IN,
    ),
    # One row a purchase that is not; it goes when a payment comes after all.
    Table.UNPAID: Declaration(
        pa.schema([*OWED, *_columns(due_at=UTC_MICROS)]),
        ("purchase_id", "occurred_at", "due_at"),
        LOOKED_BACK_IN,
        is_current=True,
    ),
    # One row a payment that makes no purchase paid. `differs_in`: the columns in which it is not as its purchase is.
    Table.UNMATCHED_PAYMENTS: Declaration(
        pa.schema([*PAYMENT_FIELDS, *POSITION, *_columns(reason=pa.string(), differs_in=pa.string())]),
        ("purchase_id", "confirmed_at", "landing"),
        LOOKED_BACK_IN,
        is_current=True,
    ),
}


def arrow_schema(table: Table) -> pa.Schema:
    """Return a table's columns."""
    return TABLES[table].columns


def names(columns: Iterable[pa.Field]) -> list[str]:
    """Return the names of some columns."""
    return [column.name for column in columns]
