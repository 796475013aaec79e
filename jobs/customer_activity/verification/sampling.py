"""A sample of customers: who is in it, and what is expected of them."""

from __future__ import annotations

import random
from typing import TypeVar

from customer_activity.verification.oracle import Expected
from customer_activity.verification.records import Activity, Profile, Purchase, Summary

Row = TypeVar("Row", Purchase, Profile, Summary, Activity)


def choose(expected: Expected, *, sample: int | None, seed: int) -> frozenset[str] | None:
    """Choose customers at random, the same for the same input and seed; None stands for all."""
    if sample is None:
        return None
    customers = sorted(expected.profiles.keys() | expected.summaries.keys())
    return frozenset(random.Random(seed).sample(customers, min(sample, len(customers))))  # noqa: S311 - a sample, not a secret


def restrict(expected: Expected, customers: frozenset[str]) -> Expected:
    """Keep what is expected of certain customers; quarantine and the outcomes stay whole."""

    def of_customers(rows: dict[str, Row]) -> dict[str, Row]:
        return {key: row for key, row in rows.items() if row.customer_id in customers}

    return Expected(
        of_customers(expected.purchases),
        of_customers(expected.summaries),
        of_customers(expected.profiles),
        [change for change in expected.profile_changes if change.customer_id in customers],
        of_customers(expected.gold),
        {key: frozen for key, frozen in expected.frozen.items() if key in customers},
        expected.quarantine,
        expected.outcomes,
        expected.payments,
    )
