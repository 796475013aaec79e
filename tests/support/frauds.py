"""Some hours of purchases, some of them risky and some late, that raise alerts by low limits."""

from __future__ import annotations

import random
from datetime import timedelta
from decimal import Decimal

from support.alerts import Rules
from support.records import NOW_MS, Record, purchase

MINUTE = 60_000
LOW = {
    "alert_window_purchases": 3,
    "alert_window_amount": 40,
    "alert_session_amount": 6,
    "alert_grace_minutes": 30.0,
}
LOW_RULES = Rules(window_purchases=3, window_amount=Decimal(40), session_amount=Decimal(6), grace=timedelta(minutes=30))


def world(seed: int, purchases: int = 200) -> list[Record]:
    """Return purchases of three hours in the order in which they arrive: some minutes late, a few by an hour."""
    chance = random.Random(seed)
    times = sorted(chance.randrange(3 * 60 * MINUTE) for _ in range(purchases))
    late = [chance.random() * 10 + (60 * chance.random() if chance.random() < 0.05 else 0) for _ in times]
    arrivals = sorted(zip((at + by * MINUTE for at, by in zip(times, late, strict=True)), times, strict=True))
    return [
        purchase(
            f"P-{seed}-{number}",
            f"C-{chance.randrange(3)}",
            f"{chance.randrange(20)}.{chance.randrange(10)}5",
            NOW_MS + at,
            sent=NOW_MS + int(arrival),
            **({} if chance.random() < 0.1 else {"riskScore": chance.randrange(50, 101)}),
        )
        for number, (arrival, at) in enumerate(arrivals)
    ]
