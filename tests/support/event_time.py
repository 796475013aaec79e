"""What windows must hold, computed as the rules read: one purchase after the other, in plain Python.

Nothing here is shared with the streams or with the queries that they declare.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

Key = tuple[str, date]
NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Bought:
    """A purchase where it landed."""

    purchase_id: str
    customer_id: str
    amount: Decimal
    at: datetime
    partition: int
    offset: int
    landing: int
    heard: datetime  # Kafka's timestamp


@dataclass
class Window:
    """A customer's purchases in a window."""

    count: int = 0
    total: Decimal = Decimal(0)
    times: list[datetime] = field(default_factory=list)
    end: datetime = NEVER


@dataclass
class Session:
    """A customer's purchases with no more than a gap between two."""

    start: datetime
    end: datetime
    count: int
    total: Decimal


@dataclass
class Windows:
    """What the tables must hold."""

    windows: dict[Key, Window]
    late: set[tuple[str, str, date | None]]  # purchase, reason, first day of the window
    watermark: datetime | None
    in_sessions: list[Bought] = field(default_factory=list)
    without_session: set[str] = field(default_factory=set)  # as a session with the purchase may be closed

    def final(self, grace: timedelta) -> set[Key]:
        """Return the windows that are closed."""
        if self.watermark is None:
            return set()
        return {key for key, window in self.windows.items() if window.end + grace <= self.watermark}


def expected(
    purchases: Iterable[Bought], *, days: int, zone: str, grace: timedelta, idle: timedelta = timedelta(minutes=10)
) -> Windows:
    """Go through purchases in the order in which they landed."""
    latest: dict[int, datetime] = {}
    heard_at: dict[int, datetime] = {}
    clock = datetime.min.replace(tzinfo=UTC)
    watermark: datetime | None = None
    found = Windows({}, set(), None)
    for landing in by_landing(purchases):
        for each in landing:
            before = latest.get(each.partition)
            latest[each.partition] = max(each.at, before or each.at)
            if before is not None and before - each.at > grace:
                found.late.add((each.purchase_id, "later_than_grace", None))
                continue
            if watermark is not None and watermark >= each.at + grace:
                found.without_session.add(each.purchase_id)
            else:
                found.in_sessions.append(each)
            local = each.at.astimezone(ZoneInfo(zone)).date()
            for hop in range(days):
                first = local - timedelta(days=hop)
                end = midnight(first + timedelta(days=days), zone)
                if watermark is not None and watermark >= end + grace:
                    found.late.add((each.purchase_id, "window_closed", first))
                    continue
                window = found.windows.setdefault((each.customer_id, first), Window())
                window.count += 1
                window.total += each.amount
                window.times.append(each.at)
                window.end = end
        clock = max(clock, *(each.heard for each in landing))
        heard_at |= {each.partition: clock for each in landing}
        active = [latest[number] for number in latest if clock - heard_at[number] <= idle]
        least = min(active).replace(second=0, microsecond=0)
        watermark = least if watermark is None else max(watermark, least)
    found.watermark = watermark
    return found


def sessions(purchases: Iterable[Bought], gap: timedelta) -> dict[str, list[Session]]:
    """Return the sessions of each customer, in their order."""
    found: dict[str, list[Session]] = {}
    for each in sorted(purchases, key=lambda one: one.at):
        of_customer = found.setdefault(each.customer_id, [])
        if not of_customer or each.at - of_customer[-1].end > gap:
            of_customer.append(Session(each.at, each.at, 0, Decimal(0)))
        session = of_customer[-1]
        session.end = each.at
        session.count += 1
        session.total += each.amount
    return found


def by_landing(purchases: Iterable[Bought]) -> list[list[Bought]]:
    """Return purchases by landing, each landing's in order of partition and offset."""
    found: dict[int, list[Bought]] = {}
    for each in purchases:
        found.setdefault(each.landing, []).append(each)
    return [sorted(found[number], key=lambda one: (one.partition, one.offset)) for number in sorted(found)]


def midnight(day: date, zone: str) -> datetime:
    """Return when a day begins; `fold` is 0: of two midnights the first."""
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)


def as_bought(rows: Sequence[dict[str, Any]]) -> list[Bought]:
    """Return rows of silver.purchases."""
    names = ("purchase_id", "customer_id", "amount", "occurred_at", "partition", "offset", "landing", "kafka_timestamp")
    return [Bought(*(row[name] for name in names)) for row in rows]
