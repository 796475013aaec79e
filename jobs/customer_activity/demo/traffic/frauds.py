"""Frauds among generated traffic: a customer buys three times within two minutes, dearly and with a high risk score.

By the limits of the default settings each raises one alert of `risky_session`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from customer_activity.demo.traffic import positions
from customer_activity.demo.traffic.record import FRAUD, Purchase, Record, purchase

PURCHASES, STEP_MS = 3, 60_000  # of a fraud, and from one to the next
LEAST_CENTS, MOST_CENTS = 100_100, 150_000
LEAST_RISK, MOST_RISK = 71, 100


@dataclass(frozen=True)
class FraudTraffic:
    """How many frauds there are, among how many customers."""

    frauds: int
    customers: int
    currency: str
    seed: int


def among(records: Iterator[Record], length: int, moments: Sequence[int], plan: FraudTraffic) -> Iterator[Record]:
    """Insert frauds evenly among so many records in time order, each at about the time of those around it.

    `moments` holds each purchase's time in milliseconds, ascending.
    """
    if not plan.frauds or not moments:
        return records
    random = Random(f"{plan.seed}/frauds")
    places = positions.spread(plan.frauds, length, Random(f"{plan.seed}/places"))
    return positions.insert(
        records,
        (
            (place, bought)
            for number, place in enumerate(places)
            for bought in fraud(
                f"f-{plan.seed}-{number}",
                f"C-{random.randrange(plan.customers)}",
                moments[place * len(moments) // length],
                plan.currency,
                random,
            )
        ),
    )


def fraud(name: str, customer_id: str, at_ms: int, currency: str, random: Random) -> Iterator[Record]:
    """Yield the purchases of one fraud, from a moment on."""
    for number in range(PURCHASES):
        cents, risk = random.randint(LEAST_CENTS, MOST_CENTS), random.randint(LEAST_RISK, MOST_RISK)
        at = at_ms + number * STEP_MS
        yield purchase(Purchase(f"{name}-{number}", customer_id, None, cents, currency, at, risk), FRAUD)
