"""What tables are declared of: columns of contracts, and groups of columns that several tables have.

All times are UTC, in microseconds; amounts are exact decimals.
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
    grain: str = ""  # what one row stands for


def _column_type(sql_type: str) -> pa.DataType:
    if digits := re.fullmatch(r"decimal\((\d+),(\d+)\)", sql_type):
        return pa.decimal128(int(digits[1]), int(digits[2]))
    return {"string": pa.string(), "bigint": pa.int64(), "timestamp": UTC_MICROS}[sql_type]


def columns_of(contract: Contract) -> list[pa.Field]:
    """Return the columns that hold a record's fields."""
    return [pa.field(field.column, _column_type(field.sql_type)) for field in contract.fields]


def columns(**types: pa.DataType) -> list[pa.Field]:
    """Return columns of these types."""
    return [pa.field(name, type_) for name, type_ in types.items()]


PURCHASE_FIELDS = columns_of(PURCHASE_EVENT)
PROFILE_FIELDS = columns_of(CUSTOMER_PROFILE)
ACTIVITY_FIELDS = columns_of(CUSTOMER_ACTIVITY)
# The row of a customer without what identifies a person: keyed hashes in its place, and what of it stays readable.
MASKED = {
    "name": columns(name_hash=pa.string()),
    "email": columns(email_hash=pa.string(), email_domain=pa.string()),
    "address": columns(address_hash=pa.string(), postcode=pa.string()),
}
MASKED_FIELDS = [masked for field in ACTIVITY_FIELDS for masked in MASKED.get(field.name, [field])]
PAYMENT_FIELDS = columns_of(PAYMENT_CONFIRMED)
# The tables of records that have landed, and the contract of each.
LANDED = {
    Table.PURCHASE_EVENTS: PURCHASE_EVENT,
    Table.PROFILE_EVENTS: CUSTOMER_PROFILE,
    Table.PAYMENT_EVENTS: PAYMENT_CONFIRMED,
}
# Of these records each counts for itself, whatever else has landed of its key; of others a later one is in its place.
EACH_FOR_ITSELF = frozenset({Table.PAYMENT_EVENTS})
COORDINATES = columns(topic=pa.string(), partition=pa.int32(), offset=pa.int64(), kafka_timestamp=UTC_MICROS)
HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
RAW = columns(key=pa.binary(), value=pa.binary(), headers=HEADERS)
# Records are in the order of (landing, partition, offset). A landing is a batch of bronze, or a replay, numbered over
# the life of the lake; null: landed before they were numbered, and so before all others.
LANDING = columns(landing=pa.int64())
POSITION = columns(partition=pa.int32(), offset=pa.int64(), kafka_timestamp=UTC_MICROS, landing=pa.int64())
IS_TOMBSTONE = columns(is_tombstone=pa.bool_())
# The W3C trace context that a record's headers name (`trace.py`): of a change of gold, that of the record which its
# `as_of` names; of one that is gone, the tombstone's. Null: there is none, or the record landed before it was kept.
TRACE = columns(trace_context=pa.string())
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
        pa.struct(columns(partition=pa.int32(), offset=pa.int64(), event_time=UTC_MICROS, is_idle=pa.bool_())),
    )
)

# What the catalogue says of a product, besides its id.
PRODUCT_FIELDS = columns(
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
    *columns(profile_partition=pa.int32(), profile_offset=pa.int64(), profile_landing=pa.int64()),
]

# What a routed purchase says: neither name nor addresses, which nobody needs to route or to handle it.
ROUTED_FIELDS = [
    *PURCHASE_FIELDS,
    *(field for field in OF_PROFILE if field.name == "loyalty_status"),
    *PRODUCT_FIELDS,
    *columns(catalogue_version=pa.int64()),
]


def names(fields: Iterable[pa.Field]) -> list[str]:
    """Return the names of some columns."""
    return [column.name for column in fields]
