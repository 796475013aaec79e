"""Which alerts there must be, as the rules read: one purchase after the other, in plain Python.

Nothing here is shared with the stream or with the query that it declares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

Row = dict[str, Any]  # of silver.timed_purchases
START = datetime(1970, 1, 1, tzinfo=UTC)


class Rules(NamedTuple):
    """What the rules go by."""

    window: timedelta = timedelta(minutes=5)
    window_purchases: int = 10
    window_amount: Decimal = Decimal(5_000)
    gap: timedelta = timedelta(minutes=5)
    session_purchases: int = 3
    session_amount: Decimal = Decimal(1_000)
    session_risk: int = 70
    grace: timedelta = timedelta(minutes=60)


class Alert(NamedTuple):
    """An alert."""

    rule: str
    customer_id: str
    purchase_id: str
    start: datetime
    end: datetime
    purchases: int
    total: Decimal


@dataclass
class Session:
    """Risky purchases of a customer, and whether they have had their alert."""

    purchases: list[Row] = field(default_factory=list)
    has_alerted: bool = False

    def touches(self, at: datetime, gap: timedelta) -> bool:
        return any(abs(each["occurred_at"] - at) <= gap for each in self.purchases)


@dataclass
class Window:
    """Purchases of a customer in a window, and whether they have had their alert."""

    purchases: list[Row] = field(default_factory=list)
    has_alerted: bool = False


def expected(purchases: Iterable[Row], rules: Rules) -> list[Alert]:
    """Return the alerts in the order in which they are raised."""
    windows: dict[tuple[str, datetime], Window] = {}
    sessions: dict[str, list[Session]] = {}
    known = [row for row in purchases if row["landing"] is not None]
    known.sort(key=lambda row: (row["landing"], row["partition"], row["offset"]))
    return [alert for row in known for alert in _alerts_of(row, rules, windows, sessions)]


def _alerts_of(
    row: Row, rules: Rules, windows: dict[tuple[str, datetime], Window], sessions: dict[str, list[Session]]
) -> Iterator[Alert]:
    at, customer, watermark = row["occurred_at"], row["customer_id"], row["watermark"]
    if row["partition_time"] is not None and row["partition_time"] - at > rules.grace:
        return
    start = START + (at - START) // rules.window * rules.window
    if watermark is None or watermark < start + rules.window + rules.grace:
        window = windows.setdefault((customer, start), Window())
        window.purchases.append(row)
        is_over = len(window.purchases) > rules.window_purchases or _sum(window.purchases) > rules.window_amount
        if is_over and not window.has_alerted:
            window.has_alerted = True
            yield _alert("velocity", row, window.purchases, start, start + rules.window)
    is_risky = row["amount"] > rules.session_amount and (row["risk_score"] or 0) > rules.session_risk
    if is_risky and (watermark is None or watermark < at + rules.grace):
        of_customer = sessions.setdefault(customer, [])
        touched = [session for session in of_customer if session.touches(at, rules.gap)]
        merged = Session([row, *(each for session in touched for each in session.purchases)])
        merged.has_alerted = any(session.has_alerted for session in touched)
        sessions[customer] = [session for session in of_customer if session not in touched] + [merged]
        if len(merged.purchases) >= rules.session_purchases and not merged.has_alerted:
            merged.has_alerted = True
            times = [each["occurred_at"] for each in merged.purchases]
            yield _alert("risky_session", row, merged.purchases, min(times), max(times))


def _sum(purchases: Sequence[Row]) -> Decimal:
    return sum((row["amount"] for row in purchases), Decimal(0))


def _alert(rule: str, row: Row, purchases: Sequence[Row], start: datetime, end: datetime) -> Alert:
    return Alert(rule, row["customer_id"], row["purchase_id"], start, end, len(purchases), _sum(purchases))


def as_alerts(rows: Iterable[Row]) -> list[Alert]:
    """Return rows of gold.fraud_alerts as alerts, in the order in which they are raised."""
    in_order = sorted(
        rows, key=lambda row: (row["landing"], row["partition"], row["offset"], row["rule"] != "velocity")
    )
    names = ("rule", "customer_id", "purchase_id", "window_start", "window_end", "purchase_count", "total_amount")
    return [Alert(*(row[name] for name in names)) for row in in_order]
