"""The tables of optional streams, as `tables.py` declares those of the others."""

from __future__ import annotations

import pyarrow as pa

from customer_activity.catalog import Table
from customer_activity.contracts.columns import (
    BY_PLACE,
    COORDINATES,
    COUNTED,
    LANDING,
    LOOKED_BACK_IN,
    MASKED_FIELDS,
    OF_PROFILE,
    OWED,
    PAYMENT_FIELDS,
    POSITION,
    POSITIONS,
    PRODUCT_FIELDS,
    RAW,
    ROUTED_FIELDS,
    UTC_MICROS,
    Declaration,
    columns,
    columns_of,
)
from customer_activity.contracts.schema import FRAUD_ALERT


def _windows(first_day: str, grain: str) -> Declaration:
    """Declare a table of a customer's purchases by windows of whole days, which are named by their first one."""
    fields = columns(
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
    statistics = ("customer_id", first_day, "window_end")
    return Declaration(pa.schema(fields), statistics, LOOKED_BACK_IN, is_current=True, grain=grain)


OPTIONAL_TABLES: dict[Table, Declaration] = {
    Table.ACTIVITY_MASKED: Declaration(
        pa.schema(MASKED_FIELDS),
        ("customer_id", "view_version", "as_of"),
        LOOKED_BACK_IN,
        is_current=True,
        grain="one row per customer with a profile, as in `gold.customer_activity`, without name, e-mail and address",
    ),
    Table.WATERMARKS: Declaration(
        pa.schema(columns(landing=pa.int64(), watermark=UTC_MICROS, decided_at=UTC_MICROS, positions=POSITIONS)),
        ("landing", "watermark"),
        LOOKED_BACK_IN,
        grain="one row per landing that moved the watermark",
    ),
    Table.TIMED_PURCHASES: Declaration(
        pa.schema(
            [
                *COUNTED,
                *columns(partition_time=UTC_MICROS, watermark=UTC_MICROS, next_watermark=UTC_MICROS),
            ]
        ),
        ("kafka_timestamp", "occurred_at"),
        grain="one row per purchase that counts",
    ),
    Table.LATE_EVENTS: Declaration(
        pa.schema(
            columns(
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
        grain="one row per late purchase and table of windows that leaves it out; one alone where all of them do",
    ),
    Table.REPROCESSED: Declaration(
        pa.schema(
            columns(purchase_id=pa.string(), day=pa.date32(), reprocessed_at=UTC_MICROS, reason=pa.string()),
        ),
        ("day",),
        LOOKED_BACK_IN,
        grain="one row per late purchase that `activity reprocess` has included: windows count it, however late it is",
    ),
    Table.DAILY: _windows("day", "one row per customer and day, in the configured time zone, with a purchase"),
    Table.WEEKLY: _windows("first_day", "one row per customer and seven days, of which one begins each day"),
    Table.SESSIONS: Declaration(
        pa.schema(
            columns(
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
        grain="one row per customer and session: purchases that follow each other within the session gap",
    ),
    Table.FRAUD_ALERTS: Declaration(
        pa.schema([*columns_of(FRAUD_ALERT), *POSITION]),
        ("occurred_at", "kafka_timestamp"),
        grain="one row per rule and window or session whose limit was exceeded, with the coordinates of the purchase "
        "that first exceeded it",
    ),
    Table.OUTDATED_ALERTS: Declaration(
        pa.schema([*columns_of(FRAUD_ALERT), *columns(noted_at=UTC_MICROS)]),
        ("occurred_at",),
        LOOKED_BACK_IN,
        grain="one row per published alert whose row in `gold.fraud_alerts` has since been changed or removed, as it "
        "was published",
    ),
    Table.PRODUCTS: Declaration(
        pa.schema(
            [
                *columns(product_id=pa.string()),
                *PRODUCT_FIELDS,
                *columns(is_gone=pa.bool_(), version=pa.int64(), loaded_at=UTC_MICROS),
            ]
        ),
        ("version",),
        LOOKED_BACK_IN,
        grain="one row per product and version of the catalogue that changed it",
    ),
    Table.CATALOGUE_VERSIONS: Declaration(
        pa.schema(columns(landing=pa.int64(), catalogue_version=pa.int64(), decided_at=UTC_MICROS)),
        ("landing",),
        LOOKED_BACK_IN,
        grain="one row per range of landings, up to this one, and the version of the catalogue that applied to them",
    ),
    Table.ENRICHED: Declaration(
        pa.schema([*COUNTED, *OF_PROFILE, *PRODUCT_FIELDS, *columns(catalogue_version=pa.int64())]),
        ("kafka_timestamp", "occurred_at"),
        grain="one row per purchase that counts, with profile and product as they were known when it landed",
    ),
    Table.ROUTING_RULES: Declaration(
        pa.schema(
            columns(landing=pa.int64(), rules_version=pa.string(), rules=pa.string(), decided_at=UTC_MICROS),
        ),
        ("landing",),
        LOOKED_BACK_IN,
        grain="one row per range of landings, up to this one, and the routing rules that applied to them",
    ),
    Table.ROUTED: Declaration(
        pa.schema(
            [
                *ROUTED_FIELDS,
                *POSITION,
                *columns(rule=pa.string(), route=pa.string(), rules_version=pa.string()),
            ]
        ),
        ("kafka_timestamp", "occurred_at"),
        grain="one row per purchase that counts, with its route and the rule that chose it: an outbox",
    ),
    Table.PAYMENT_EVENTS: Declaration(
        pa.schema([*PAYMENT_FIELDS, *RAW, *COORDINATES, *columns(ingested_at=UTC_MICROS), *LANDING]),
        BY_PLACE,
        grain="one row per record of the payment topic that keeps the contract, as it landed",
    ),
    Table.PAID: Declaration(
        pa.schema(
            [
                *OWED,
                *columns(
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
        grain="one row per purchase that is paid, with the payment that counts",
    ),
    Table.UNPAID: Declaration(
        pa.schema([*OWED, *columns(due_at=UTC_MICROS)]),
        ("purchase_id", "occurred_at", "due_at"),
        LOOKED_BACK_IN,
        is_current=True,
        grain="one row per purchase that was not paid in time; removed when a payment comes after all",
    ),
    Table.UNMATCHED_PAYMENTS: Declaration(
        pa.schema([*PAYMENT_FIELDS, *POSITION, *columns(reason=pa.string(), differs_in=pa.string())]),
        ("purchase_id", "confirmed_at", "landing"),
        LOOKED_BACK_IN,
        is_current=True,
        grain="one row per payment that makes no purchase paid, with the reason",
    ),
}
