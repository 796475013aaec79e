"""Rows and records of a small world: what two topics hold, and the tables that follow from them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from customer_activity import topology
from customer_activity.contracts.tables import arrow_schema
from customer_activity.verification.records import Headers, RawRecord

NOW = 1_700_000_000_000  # Kafka timestamp of most records, milliseconds
PURCHASES, PROFILES, VIEW = "purchase-events", "customer-profile-state", "customer-activity-view"


def document(**fields: Any) -> bytes:
    """A JSON object; a value of type bytes stands in it as it is, Ellipsis leaves the field out."""
    parts = (
        json.dumps(name).encode() + b":" + (value if isinstance(value, bytes) else json.dumps(value).encode())
        for name, value in fields.items()
        if value is not ...
    )
    return b"{" + b",".join(parts) + b"}"


def purchase(**changes: Any) -> bytes:
    fields = {
        "purchaseId": "P1",
        "customerId": "C1",
        "productId": "X",
        "amount": b"1.25",
        "currency": "EUR",
        "occurredAtEpochMillis": NOW,
    }
    return document(**fields | changes)


def profile(**changes: Any) -> bytes:
    fields = {
        "customerId": "C1",
        "name": "Ada",
        "email": "ada@example.org",
        "address": "1 Old Road",
        "loyaltyStatus": "gold",
        "updatedAtEpochMillis": NOW,
    }
    return document(**fields | changes)


TRACE: Headers = (("traceparent", b"00-1-2-01"),)
OUTCOMES = ("read", "accepted", "quarantined", "duplicate", "stale")

VALUES: dict[tuple[str, int, int], tuple[bytes | None, bytes | None, Headers]] = {
    (PURCHASES, 0, 0): (b"P1", purchase(amount=10), TRACE),
    (PURCHASES, 0, 1): (b"P1", purchase(amount=10), ()),  # duplicate
    (PURCHASES, 0, 2): (b"P1", purchase(amount=11), ()),  # conflicting duplicate
    (PURCHASES, 0, 3): (b"P9", b"{", ()),  # not JSON
    (PURCHASES, 1, 0): (
        b"P2",
        purchase(purchaseId="P2", amount=b"0.10", productId=None, occurredAtEpochMillis=NOW - 50),
        (),
    ),
    (PURCHASES, 1, 1): (b"P3", purchase(purchaseId="P3", customerId="C2", amount=b"5.25"), ()),  # nobody's profile
    (PROFILES, 0, 0): (b"C1", profile(address="Hidden Lane 1", updatedAtEpochMillis=NOW - 9), ()),
    (PROFILES, 0, 1): (b"C1", profile(address="Hidden Lane 2", updatedAtEpochMillis=NOW - 5), ()),  # current
    (PROFILES, 0, 2): (b"C1", profile(address="Hidden Lane 1", updatedAtEpochMillis=NOW - 9), ()),  # stale
    (PROFILES, 0, 3): (b"C3", profile(customerId="C3", name="Grace", email=None, updatedAtEpochMillis=NOW - 7), ()),
    (PROFILES, 0, 4): (b"C1", profile(address="Hidden Lane 2", updatedAtEpochMillis=NOW - 5), ()),  # duplicate
    (PROFILES, 1, 0): (b"C4", profile(customerId="C4", name="Edsger"), ()),
    (PROFILES, 1, 1): (b"C4", None, ()),
    (PROFILES, 1, 2): (None, profile(), ()),  # no key
}
PERSONAL = ("Ada", "Grace", "Edsger", "ada@example.org", "Hidden Lane", "1 Old Road", "Mallory")

Row = dict[str, Any]


def at(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def stamp(partition: int, offset: int) -> int:
    return NOW + 10 * offset + partition


def landed(topic: str, partition: int, offset: int, **columns: Any) -> Row:
    key, value, headers = VALUES[topic, partition, offset]
    return columns | {
        "key": key,
        "value": value,
        "headers": [{"key": name, "value": content} for name, content in headers] or None,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "kafka_timestamp": at(stamp(partition, offset)),
        "ingested_at": at(NOW + 1_000),
        "quarantined_at": at(NOW + 1_000),
        "landing": None,
    }


def on_kafka(topic: str, partition: int) -> list[RawRecord]:
    at_home = {offset: record for (t, p, offset), record in VALUES.items() if (t, p) == (topic, partition)}
    return [
        RawRecord(partition, offset, stamp(partition, offset), key, value, headers)
        for offset, (key, value, headers) in at_home.items()
    ]


def bought(purchase_id: str, customer_id: str, product_id: str | None, amount: str, occurred_at: int = NOW) -> Row:
    return {
        "purchase_id": purchase_id,
        "customer_id": customer_id,
        "product_id": product_id,
        "amount": Decimal(amount),
        "currency": "EUR",
        "occurred_at": at(occurred_at),
        "risk_score": None,
    }


def person(
    customer_id: str,
    name: str,
    address: str = "1 Old Road",
    updated_at: int = NOW,
    email: str | None = "ada@example.org",
) -> Row:
    return {
        "customer_id": customer_id,
        "name": name,
        "email": email,
        "address": address,
        "loyalty_status": "gold",
        "updated_at": at(updated_at),
    }


def placed(columns: Row, partition: int, offset: int) -> Row:
    position = {"partition": partition, "offset": offset, "kafka_timestamp": at(stamp(partition, offset))}
    return columns | position | {"landing": None}


P1, P2, P3 = (
    bought("P1", "C1", "X", "10.00"),
    bought("P2", "C1", None, "0.10", NOW - 50),
    bought("P3", "C2", "X", "5.25"),
)
C1_BEFORE, C1 = person("C1", "Ada", "Hidden Lane 1", NOW - 9), person("C1", "Ada", "Hidden Lane 2", NOW - 5)
C3, C4 = person("C3", "Grace", updated_at=NOW - 7, email=None), person("C4", "Edsger")
NOBODY = dict.fromkeys(C1)


def summary(customer_id: str, count: int, total: str, first: int, last: int, newest: int) -> Row:
    return {
        "customer_id": customer_id,
        "purchase_count": count,
        "total_amount": Decimal(total),
        "first_purchase_at": at(first),
        "last_purchase_at": at(last),
        "last_kafka_timestamp": at(newest),
    }


def activity(who: Row, count: int, total: str, first: int | None, last: int | None, *, version: int, as_of: int) -> Row:
    return {
        **{name: who[name] for name in ("customer_id", "name", "email", "address", "loyalty_status")},
        "profile_updated_at": who["updated_at"],
        "purchase_count": count,
        "total_amount": Decimal(total),
        "currency": "EUR",
        "first_purchase_at": None if first is None else at(first),
        "last_purchase_at": None if last is None else at(last),
        "view_version": version,
        "as_of": at(as_of),
    }


C1_ROW = activity(C1, 2, "10.10", NOW - 50, NOW, version=12, as_of=stamp(0, 1))
C3_ROW = activity(C3, 0, "0.00", None, None, version=11, as_of=stamp(0, 3))


def published(row: Row, **changes: Any) -> tuple[bytes, bytes]:
    """A gold row as the view topic has it."""

    def millis(column: str) -> int | None:
        return None if row[column] is None else round(row[column].timestamp() * 1000)

    fields = {
        "customerId": row["customer_id"],
        "name": row["name"],
        "email": row["email"],
        "address": row["address"],
        "loyaltyStatus": row["loyalty_status"],
        "profileUpdatedAtEpochMillis": millis("profile_updated_at"),
        "purchaseCount": row["purchase_count"],
        "totalAmount": str(row["total_amount"]).encode(),
        "currency": row["currency"],
        "firstPurchaseAtEpochMillis": millis("first_purchase_at"),
        "lastPurchaseAtEpochMillis": millis("last_purchase_at"),
        "viewVersion": row["view_version"],
        "asOfEpochMillis": millis("as_of"),
    }
    return row["customer_id"].encode(), document(**fields | changes)


TYPES = {field.name: field.type for table in topology.tables() for field in arrow_schema(table)}
