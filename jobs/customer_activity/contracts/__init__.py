"""The record contracts. The JSON Schemas in this package are their only source; everything else is derived from them.

`schema` reads them, `decoding` turns them into strict decoders, `tables` into the columns of the Delta tables, and
`pages` into tables for people.
"""

from customer_activity.contracts.decoding import (
    MAX_NESTING,
    Refusal,
    decoder,
    examine,
    is_nested_too_deeply,
    record_type,
    utf8_refusal,
)
from customer_activity.contracts.pages import markdown_table
from customer_activity.contracts.schema import (
    CONTRACTS,
    CUSTOMER_ACTIVITY,
    CUSTOMER_PROFILE,
    FRAUD_ALERT,
    LATEST_MILLIS,
    NO_CONTROL_CHARACTERS,
    NO_TIMESTAMP,
    PAYMENT_CONFIRMED,
    PURCHASE_EVENT,
    RULES,
    Contract,
    Field,
    Kind,
    column_name,
)

__all__ = [
    "CONTRACTS",
    "CUSTOMER_ACTIVITY",
    "CUSTOMER_PROFILE",
    "FRAUD_ALERT",
    "LATEST_MILLIS",
    "MAX_NESTING",
    "NO_CONTROL_CHARACTERS",
    "NO_TIMESTAMP",
    "PAYMENT_CONFIRMED",
    "PURCHASE_EVENT",
    "RULES",
    "Contract",
    "Field",
    "Kind",
    "Refusal",
    "column_name",
    "decoder",
    "examine",
    "is_nested_too_deeply",
    "markdown_table",
    "record_type",
    "utf8_refusal",
]
