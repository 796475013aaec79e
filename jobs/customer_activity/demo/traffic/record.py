"""One record as it goes to Kafka, and the encoding of a purchase."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from customer_activity import catalog

Headers = tuple[tuple[str, bytes | None], ...]

# What a record is there for; a bad one has BAD followed by the name of its kind in `poison`.
PURCHASE = "purchase"
PROFILE = "profile"
PROFILE_CHANGE = "profile_change"
TOMBSTONE = "tombstone"
DUPLICATE = "duplicate"
CONFLICT = "conflicting_duplicate"
FRAUD = "fraud"
BAD = "bad/"


class Record(NamedTuple):
    """A record: which topic by role, the bytes, and what it is there for (`kind`, never sent)."""

    role: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    kind: str = PURCHASE


class Purchase(NamedTuple):
    """The fields of a purchase; the amount in whole cents, so that no float ever rounds it."""

    purchase_id: str
    customer_id: str
    product_id: str | None
    amount_cents: int
    currency: str
    occurred_at_ms: int
    risk_score: int | None = None


def purchase(fields: Purchase, kind: str = PURCHASE) -> Record:
    """Encode a purchase; any text is escaped, the amount always has two decimals, and a risk score is there or not."""
    value = msgspec.json.encode(
        {
            "purchaseId": fields.purchase_id,
            "customerId": fields.customer_id,
            "productId": fields.product_id,
            "amount": msgspec.Raw(f"{fields.amount_cents // 100}.{fields.amount_cents % 100:02d}".encode()),
            "currency": fields.currency,
            "occurredAtEpochMillis": fields.occurred_at_ms,
            **({} if fields.risk_score is None else {"riskScore": fields.risk_score}),
        }
    )
    return Record(catalog.PURCHASES_ROLE, fields.purchase_id.encode(), value, kind=kind)
