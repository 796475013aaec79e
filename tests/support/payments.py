"""What the tables of payments must hold, as the rules read: one payment after the other, in plain Python.

Nothing here is shared with the stream or with the queries that it declares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

Row = Mapping[str, Any]


class Expected(NamedTuple):
    """Who is paid by which payment and how, who is not, and why each other payment makes nobody paid."""

    paid: dict[str, tuple[str, str]]  # purchase: payment, and whether it was early, in time or late
    unpaid: set[str]
    others: set[tuple[int, int, str, str | None]]  # partition, offset, reason, what differs


def expected(
    purchases: Iterable[Row], payments: Iterable[Row], watermark: datetime | None, window: timedelta, grace: timedelta
) -> Expected:
    """Go through payments in the order in which they landed."""
    owed = {row["purchase_id"]: row for row in purchases}
    found = Expected({}, set(), set())
    for row in sorted(payments, key=lambda row: (row["landing"], row["partition"], row["offset"])):
        reason, differs_in = _judge(row, owed.get(row["purchase_id"]), found)
        if reason:
            found.others.add((row["partition"], row["offset"], reason, differs_in))
            continue
        after = row["confirmed_at"] - owed[row["purchase_id"]]["occurred_at"]
        when = "early" if after < timedelta() else "late" if after > window else "in time"
        found.paid[row["purchase_id"]] = row["payment_id"], when
    for name, bought in owed.items():
        if name not in found.paid and watermark is not None and bought["occurred_at"] + window + grace <= watermark:
            found.unpaid.add(name)
    return found


def _judge(payment: Row, purchase: Row | None, found: Expected) -> tuple[str, str | None]:
    """Return why a payment does not count, and in what it differs; two empty words where it does."""
    if purchase is None:
        return "no_purchase", None
    differs_in = [
        name
        for name in ("amount", "currency", "customer_id")
        if payment[name] is not None and payment[name] != purchase[name]
    ]
    if differs_in:
        return "differs", ",".join(differs_in)
    if payment["purchase_id"] in found.paid:
        counted, _ = found.paid[payment["purchase_id"]]
        return ("repeated" if counted == payment["payment_id"] else "paid_twice"), None
    return "", None
