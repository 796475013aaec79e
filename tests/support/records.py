"""Builders of Kafka records: they fill in what a case does not care about."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

PURCHASES, PROFILES, PAYMENTS = "purchase-events", "customer-profile-state", "payment-events"
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Record:
    """A record as a producer hands it over."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int = NOW_MS
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def fields(self) -> dict[str, Any]:
        """Return the value's fields, amounts as decimals."""
        parsed: dict[str, Any] = json.loads(self.value or b"", parse_float=Decimal)
        return parsed


def purchase(
    purchase_id: str,
    customer_id: str = "C-1",
    amount: str = "10.00",
    at: int = 1_000,
    *,
    sent: int = NOW_MS,
    **more: Any,
) -> Record:
    """Build a purchase record; `amount` is the JSON number's text."""
    fields = {
        "purchaseId": purchase_id,
        "customerId": customer_id,
        "currency": "EUR",
        "occurredAtEpochMillis": at,
        **more,
    }
    text = json.dumps(fields)[:-1] + f', "amount": {amount}}}'
    return Record(PURCHASES, purchase_id.encode(), text.encode(), sent)


def payment(
    purchase_id: str,
    amount: str = "10.00",
    at: int = 1_000,
    *,
    payment_id: str | None = None,
    sent: int = NOW_MS,
    **more: Any,
) -> Record:
    """Build a payment record; `amount` is the JSON number's text."""
    fields = {
        "purchaseId": purchase_id,
        "paymentId": payment_id or f"pay-{purchase_id}",
        "currency": "EUR",
        "confirmedAtEpochMillis": at,
        **more,
    }
    text = json.dumps(fields)[:-1] + f', "amount": {amount}}}'
    return Record(PAYMENTS, purchase_id.encode(), text.encode(), sent)


def profile(
    customer_id: str = "C-1",
    updated: int = 1_000,
    *,
    sent: int = NOW_MS,
    name: str = "Ada",
    address: str | None = "1 Old Street",
    **more: Any,
) -> Record:
    """Build a profile record."""
    fields = {"customerId": customer_id, "name": name, "address": address, "updatedAtEpochMillis": updated, **more}
    return Record(PROFILES, customer_id.encode(), json.dumps(fields).encode(), sent)


def tombstone(customer_id: str = "C-1", *, sent: int = NOW_MS) -> Record:
    """Build the record that deletes a profile."""
    return Record(PROFILES, customer_id.encode(), None, sent)


@dataclass
class Log:
    """Topics that only remember: offsets count up, and a key is in the partition that its hash or its producer says."""

    partitions: int = 2
    entries: dict[tuple[str, int], list[Record]] = field(default_factory=dict)
    compacted: set[tuple[str, int, int]] = field(default_factory=set)  # what is not there any more

    def append(self, record: Record, partition: int | None = None) -> tuple[str, int, int, Record]:
        """Give a record its coordinates, in the partition that is asked for."""
        if partition is None:
            partition = zlib.crc32(record.key or b"") % self.partitions
        log = self.entries.setdefault((record.topic, partition), [])
        log.append(record)
        return record.topic, partition, len(log) - 1, record

    def compact(self, topic: str) -> None:
        """Leave of each key the newest record, as a compacted topic does in time."""
        for (name, partition), records in self.entries.items():
            if name == topic:
                newest = {record.key: offset for offset, record in enumerate(records)}
                kept = set(newest.values())
                self.compacted |= {(name, partition, offset) for offset in range(len(records)) if offset not in kept}
