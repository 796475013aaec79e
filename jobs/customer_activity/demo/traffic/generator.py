"""Generated traffic of any size: purchases and profiles from a seed.

Grain   `purchases` purchases one after another over a year, `customers` profiles, three purchases a fraud
Ids     purchaseId = p-<seed>-<number>, customerId = C-<number>: another seed, other purchases of the same customers
Memory  constant: each record is made from its number when its turn comes
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

from customer_activity import catalog
from customer_activity.demo.traffic import frauds, people, profiles
from customer_activity.demo.traffic.frauds import FraudTraffic
from customer_activity.demo.traffic.people import Person
from customer_activity.demo.traffic.profiles import Population, ProfileTraffic
from customer_activity.demo.traffic.record import Record

YEAR_MS = 365 * 86_400_000
STARTED_AT_MS = 1_704_067_200_000  # 2024-01-01T00:00:00Z: fixed, since a seed must give the same records tomorrow
REGISTERED_AT_MS = STARTED_AT_MS - 86_400_000
STANDINGS = ("BASIC", "BASIC", "SILVER", "GOLD", "PLATINUM", None)
PRODUCTS = 50_000
SMALLEST_CENTS, DECADES = 20, 3  # amounts from 0.20 to 200.00, spread evenly over their orders of magnitude


@dataclass(frozen=True)
class GeneratorOptions:
    """How many customers, purchases and frauds, in which currency, and what happens to the profiles."""

    customers: int = 1_000
    purchases: int = 10_000
    seed: int = 0
    currency: str = "EUR"
    profiles: ProfileTraffic = field(default_factory=ProfileTraffic)
    frauds: int = 0


def records(options: GeneratorOptions) -> Iterator[Record]:
    """Yield purchases in time order with the profiles among them."""
    population = Population(options.customers, person, REGISTERED_AT_MS)
    together = profiles.among(purchases(options), moments(options), population, options.profiles)
    plan = FraudTraffic(options.frauds, options.customers, options.currency, options.seed)
    return frauds.among(together, count(replace(options, frauds=0)), moments(options), plan)


def count(options: GeneratorOptions) -> int:
    """Count the records that these options give."""
    of_frauds = options.frauds * frauds.PURCHASES if options.purchases else 0
    return options.purchases + options.customers + options.profiles.changes + options.profiles.tombstones + of_frauds


def moments(options: GeneratorOptions) -> range:
    """Give each purchase its time, in milliseconds: evenly over the year, a millisecond apart where they are many."""
    step = max(1, YEAR_MS // max(1, options.purchases))
    return range(STARTED_AT_MS, STARTED_AT_MS + step * options.purchases, step)


def purchases(options: GeneratorOptions) -> Iterator[Record]:
    """Yield the purchases; a few customers buy often and most buy rarely.

    Every part of the value is a number or plain ASCII text without quotes, so nothing needs escaping.
    """
    draw = Random(f"{options.seed}/purchases").random
    prefix, customers, currency = f"p-{options.seed}-", options.customers, options.currency
    for number, occurred_at_ms in enumerate(moments(options)):
        customer = int(draw() ** 2 * customers)
        cents = int(SMALLEST_CENTS * 10 ** (DECADES * draw()))
        product = int(draw() * PRODUCTS)
        purchase_id = f"{prefix}{number}"
        yield Record(
            catalog.PURCHASES_ROLE,
            purchase_id.encode(),
            (
                f'{{"purchaseId":"{purchase_id}","customerId":"C-{customer}","productId":"{product}",'
                f'"amount":{cents // 100}.{cents % 100:02d},"currency":"{currency}",'
                f'"occurredAtEpochMillis":{occurred_at_ms}}}'
            ).encode(),
        )


def person(number: int) -> Person:
    """Invent the person behind a customer's number."""
    return people.person(f"C-{number}", STANDINGS[number % len(STANDINGS)])
