"""What columns mean that no contract of records describes; those of a contract say it themselves (`*.schema.json`)."""

from __future__ import annotations

from customer_activity.catalog import Table
from customer_activity.contracts.schema import (
    CUSTOMER_ACTIVITY,
    CUSTOMER_PROFILE,
    FRAUD_ALERT,
    PAYMENT_CONFIRMED,
    PURCHASE_EVENT,
    Contract,
)

# Whose fields a table's columns are, besides those that mean the same everywhere; the first one with a column counts.
OF_CONTRACT: dict[Table, tuple[Contract, ...]] = {
    Table.PURCHASE_EVENTS: (PURCHASE_EVENT,),
    Table.PROFILE_EVENTS: (CUSTOMER_PROFILE,),
    Table.PURCHASES: (PURCHASE_EVENT,),
    Table.PROFILE_CHANGES: (CUSTOMER_PROFILE,),
    Table.SUMMARIES: (CUSTOMER_ACTIVITY,),
    Table.PROFILES: (CUSTOMER_PROFILE,),
    Table.ACTIVITY_CHANGES: (CUSTOMER_ACTIVITY,),
    Table.ACTIVITY: (CUSTOMER_ACTIVITY,),
    Table.ACTIVITY_MASKED: (CUSTOMER_ACTIVITY,),
    Table.TIMED_PURCHASES: (PURCHASE_EVENT,),
    Table.LATE_EVENTS: (PURCHASE_EVENT,),
    Table.REPROCESSED: (PURCHASE_EVENT,),
    Table.FRAUD_ALERTS: (FRAUD_ALERT,),
    Table.OUTDATED_ALERTS: (FRAUD_ALERT,),
    Table.ENRICHED: (PURCHASE_EVENT, CUSTOMER_PROFILE),
    Table.ROUTED: (PURCHASE_EVENT, CUSTOMER_PROFILE),
    Table.PAYMENT_EVENTS: (PAYMENT_CONFIRMED,),
    Table.PAID: (PURCHASE_EVENT, PAYMENT_CONFIRMED),
    Table.UNPAID: (PURCHASE_EVENT,),
    Table.UNMATCHED_PAYMENTS: (PAYMENT_CONFIRMED,),
}

AS_SENT = ", milliseconds since 1970-01-01 UTC"  # of records; a column is a timestamp

MEANINGS = {
    # records of Kafka
    "topic": "Topic of the record.",
    "partition": "Partition of the record.",
    "offset": "Offset of the record in its partition.",
    "kafka_timestamp": "The record's timestamp in Kafka; 1 ms before 1970: it has none; null: it is out of range.",
    "key": "The record's key, as it came.",
    "value": "The record's value, as it came; null: it has none.",
    "headers": "The record's headers, as they came.",
    "ingested_at": "When it was landed.",
    "landing": "Number of the landing: a batch of bronze, or a replay. Records are in the order of landing, partition, "
    "offset; null: before landings were numbered.",
    "is_tombstone": "Whether the record had no value, which deletes the profile.",
    "trace_context": "The W3C trace context of the record's headers; null: it has none.",
    # quarantine
    "quarantined_at": "When it was put into quarantine.",
    "detail": "What is wrong with it, in words.",
    # current rows, and changes to them
    "customer_id": "Identifies the customer.",
    "purchase_count": "Distinct purchases.",
    "total_amount": "Sum of their amounts, exact to the cent.",
    "first_purchase_at": "Event time of the first of them.",
    "last_purchase_at": "Event time of the last of them.",
    "last_kafka_timestamp": "Greatest Kafka timestamp of the customer's purchases.",
    "existed": "Whether the customer had a row before the change.",
    "is_gone": "Whether the customer has no row after the change.",
    # masked
    "name_hash": "Keyed hash of the name: the same name has the same hash.",
    "email_hash": "Keyed hash of the e-mail address.",
    "email_domain": "What follows the @ of the e-mail address.",
    "address_hash": "Keyed hash of the postal address.",
    "postcode": "The address's postal code, where one is recognised.",
    # event time and windows
    "watermark": "Event time of the slowest partition that is not idle, before the landing.",
    "next_watermark": "The watermark after the landing.",
    "partition_time": "Latest event time before the purchase in its partition; null: it is the first.",
    "decided_at": "When this was decided.",
    "positions": "Of each partition: last offset, latest event time, and whether it is idle.",
    "late_by_ms": "By how much it was late, in milliseconds.",
    "excluded_from": "The table of windows that leaves it out; null: all of them.",
    "window_start": "Start of the window.",
    "window_end": "End of the window; of a session the session gap after its last purchase.",
    "day": "The day, in the configured time zone.",
    "first_day": "The first of the window's seven days, in the configured time zone.",
    "session_start": "Event time of the session's first purchase.",
    "session_end": "Event time of the session's last purchase.",
    "is_final": "Whether the window is closed: its figures change no more, except by a correction.",
    "reprocessed_at": "When it was included.",
    # alerts
    "noted_at": "When it was found outdated.",
    # reference data and enrichment
    "product_id": "Identifies the product.",
    "manufacturer_id": "Who makes the product.",
    "department": "Department of the store.",
    "brand": "National or private brand.",
    "product_category": "Category of the product.",
    "product_type": "Type of the product within its category.",
    "package_size": "Size of the package.",
    "version": "Version of the catalogue.",
    "loaded_at": "When this version was loaded.",
    "catalogue_version": "Version of the catalogue that applied; 0: none had been loaded.",
    "profile_updated_at": "When the profile was changed at its source.",
    "profile_partition": "Partition of the profile's record; null: no profile was known.",
    "profile_offset": "Offset of the profile's record.",
    "profile_landing": "Landing of the profile's record.",
    # routing
    "rule": "Name of the rule that chose the route.",
    "route": "Role of the topic that the purchase is published to.",
    "rules_version": "Identifies the routing rules that applied, by their content.",
    "rules": "The routing rules, as text.",
    # payments
    "payment_id": "Identifies the payment.",
    "paid_after_ms": "Milliseconds from the purchase to its payment; negative: it was paid before.",
    "is_early": "Whether it was paid before the purchase.",
    "is_late": "Whether it was paid later than ACTIVITY_PAYMENT_MINUTES after the purchase.",
    "due_at": "Until when it was to be paid.",
    "differs_in": "Columns in which the payment differs from its purchase.",
}

OF_TABLE = {
    (Table.QUARANTINE, "reason"): "Why: one of a closed list (docs/CONTRACTS.md).",
    (Table.LATE_EVENTS, "reason"): "later_than_grace or window_closed (docs/WINDOWS.md).",
    (Table.REPROCESSED, "reason"): "Why it was included, as the command was told.",
    (Table.REPROCESSED, "day"): "Day of the purchase, in the configured time zone.",
    (Table.UNMATCHED_PAYMENTS, "reason"): "no_purchase, differs, repeated or paid_twice (docs/PAYMENTS.md).",
    (Table.PRODUCTS, "is_gone"): "Whether the product is not in the catalogue from this version on.",
    (Table.WATERMARKS, "watermark"): "Event time of the slowest partition that is not idle, after the landing.",
}


def meaning(table: Table, column: str) -> str:
    """Say what a column means; empty where nothing is said of it."""
    if told := OF_TABLE.get((table, column)):
        return told
    fields = (field for contract in OF_CONTRACT.get(table, ()) for field in contract.fields if field.column == column)
    told = next((field.description for field in fields), MEANINGS.get(column, ""))
    return told.replace(AS_SENT, "")
