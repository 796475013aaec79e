"""Records of the view topic, as its publisher writes them."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from customer_activity.portal import records
from customer_activity.portal.records import Row

BEFORE = {
    "customerId": "C-1",
    "name": "Myrtle Ridgeway",
    "email": "myrtle@example.org",
    "address": "33 Mill Lane, 45290 Kingsmere",
    "loyaltyStatus": "SILVER",
    "profileUpdatedAtEpochMillis": 1_483_142_400_000,
    "purchaseCount": 3,
    "totalAmount": 12.5,
    "currency": "EUR",
    "firstPurchaseAtEpochMillis": 1_483_142_400_000,
    "lastPurchaseAtEpochMillis": 1_483_142_500_000,
    "viewVersion": 1,
    "asOfEpochMillis": 1_795_510_574_750,
}
encode = msgspec.json.Encoder(decimal_format="number").encode


def value(customer_id: str = "C-1", **fields: Any) -> bytes:
    """Return a row as JSON."""
    return encode({**BEFORE, "customerId": customer_id, **fields})


def row(customer_id: str = "C-1", version: int = 1, at: int = 0, **fields: Any) -> Row:
    """Return a record that the portal has read."""
    return record(customer_id, value(customer_id, viewVersion=version, **fields), at)


def gone(customer_id: str = "C-1", at: int = 0) -> Row:
    """Return a tombstone that the portal has read."""
    return record(customer_id, None, at)


def record(customer_id: str, text: bytes | None, at: int = 0) -> Row:
    """Read a record that is the publisher's."""
    found = records.read(customer_id.encode(), text, at)
    assert found is not None, re.sub(rb"\s", b" ", text or b"")
    return found
