"""The Delta tables: the columns of each, which of them have statistics, and how much of its history is kept.

The columns that come from a record are the contract's (`contracts/`): a field that is added there is a column here, in
every table that carries the record's fields. Everything else is derived: Parquet files, Delta's schema, the streams'
columns. All times are UTC, in microseconds; amounts are exact decimals.
"""

from __future__ import annotations

import pyarrow as pa

from customer_activity.catalog import Table
from customer_activity.contracts.columns import (
    ACTIVITY_FIELDS,
    BY_PLACE,
    COORDINATES,
    COUNTED,
    EXTREMES,
    IS_TOMBSTONE,
    LANDING,
    LOOKED_BACK_IN,
    POSITION,
    PROFILE_FIELDS,
    PURCHASE_FIELDS,
    RAW,
    TRACE,
    UTC_MICROS,
    Declaration,
    columns,
)
from customer_activity.contracts.optional_tables import OPTIONAL_TABLES

TABLES: dict[Table, Declaration] = {
    Table.PURCHASE_EVENTS: Declaration(
        pa.schema([*PURCHASE_FIELDS, *RAW, *COORDINATES, *columns(ingested_at=UTC_MICROS), *LANDING, *TRACE]),
        BY_PLACE,
        grain="one row per record of the purchase topic that keeps the contract, as it landed",
    ),
    Table.PROFILE_EVENTS: Declaration(
        pa.schema(
            [*PROFILE_FIELDS, *IS_TOMBSTONE, *RAW, *COORDINATES, *columns(ingested_at=UTC_MICROS), *LANDING, *TRACE]
        ),
        BY_PLACE,
        grain="one row per record of the profile topic that keeps the contract, as it landed; tombstones, too",
    ),
    Table.QUARANTINE: Declaration(
        pa.schema(
            [
                *columns(reason=pa.string(), detail=pa.string()),
                *RAW,
                *COORDINATES,
                *columns(quarantined_at=UTC_MICROS),
                *LANDING,
            ]
        ),
        BY_PLACE,
        LOOKED_BACK_IN,
        grain="one row per record that was refused, or row that could not be published, with the reason",
    ),
    Table.PURCHASES: Declaration(
        pa.schema([*COUNTED, *TRACE]),
        ("kafka_timestamp",),
        grain="one row per purchase: the first valid record of its id",
    ),
    Table.PROFILE_CHANGES: Declaration(
        pa.schema([*PROFILE_FIELDS, *POSITION, *IS_TOMBSTONE, *TRACE]),
        ("kafka_timestamp",),
        grain="one row per change of a customer's profile, in the order of records; a tombstone ends the profile",
    ),
    Table.SUMMARIES: Declaration(
        pa.schema(
            columns(
                customer_id=pa.string(),
                purchase_count=pa.int64(),
                total_amount=pa.decimal128(18, 2),
                **{name: COUNTED.field(column).type for name, (column, _) in EXTREMES.items()},
            )
        ),
        ("customer_id", "last_kafka_timestamp"),
        LOOKED_BACK_IN,
        is_current=True,
        grain="one row per customer who has bought",
    ),
    Table.PROFILES: Declaration(
        pa.schema([*PROFILE_FIELDS, *POSITION]),
        ("customer_id", "kafka_timestamp"),
        LOOKED_BACK_IN,
        is_current=True,
        grain="one row per customer with a profile",
    ),
    Table.ACTIVITY_CHANGES: Declaration(
        pa.schema([*ACTIVITY_FIELDS, *columns(existed=pa.bool_(), is_gone=pa.bool_()), *TRACE]),
        ("view_version", "as_of"),
        grain="one row per change of a customer's row, in the order of commits",
    ),
    Table.ACTIVITY: Declaration(
        pa.schema(ACTIVITY_FIELDS),
        ("customer_id", "view_version", "as_of"),
        LOOKED_BACK_IN,
        is_current=True,
        grain="one row per customer with a profile",
    ),
    **OPTIONAL_TABLES,
}


def arrow_schema(table: Table) -> pa.Schema:
    """Return a table's columns."""
    return TABLES[table].columns
