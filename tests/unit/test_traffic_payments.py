"""Payments among generated purchases: of every kind, the same for a seed, and bad ones for their reasons."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest

from customer_activity import catalog
from customer_activity.demo.traffic import generator, mixing, payments, poison
from customer_activity.demo.traffic.generator import GeneratorOptions
from customer_activity.demo.traffic.mixing import Disturbance
from customer_activity.demo.traffic.payments import KINDS, PaymentTraffic
from customer_activity.demo.traffic.poison import Poison
from customer_activity.demo.traffic.record import Record
from support.traffic import parsed

OPTIONS = GeneratorOptions(customers=50, purchases=3_000, seed=3)
NOW = datetime(2026, 3, 26, tzinfo=UTC)


def paid(share: float, seed: int = 3) -> list[Record]:
    return list(payments.among(generator.records(OPTIONS), PaymentTraffic(share, seed)))


def test_without_payments_nothing_changes() -> None:
    assert paid(0.0) == list(generator.records(OPTIONS))


def test_the_same_seed_gives_the_same_payments_and_another_one_others() -> None:
    assert paid(0.5) == paid(0.5)
    assert paid(0.5) != paid(0.5, seed=4)


def test_payments_are_valid_and_of_every_kind_in_its_share() -> None:
    found = [record for record in paid(1.0) if record.role == catalog.PAYMENTS_ROLE]
    assert {row["reason"] for row in parsed(found, "EUR", NOW)} == {None}
    counts = Counter(record.kind for record in found)
    assert counts.keys() == {kind.name for kind in KINDS} | {payments.SAME, payments.ANOTHER}
    for kind in KINDS:
        if kind.name != "payment":
            assert counts[kind.name] == pytest.approx(kind.share * OPTIONS.purchases, rel=0.5)
    assert len(found) == pytest.approx(OPTIONS.purchases * payments.RECORDS_A_PAYMENT, rel=0.02)


def test_only_early_payments_come_before_their_purchase() -> None:
    records = paid(1.0)
    places = {(record.role, record.key): place for place, record in reversed(list(enumerate(records)))}
    for (role, key), place in places.items():
        bought = places.get((catalog.PURCHASES_ROLE, key))
        if role == catalog.PAYMENTS_ROLE and bought is not None and place < bought:
            assert records[place].kind == payments.EARLY


@pytest.mark.parametrize("kind", poison.OF_PAYMENTS, ids=lambda kind: kind.name)
def test_bad_payments_are_refused_for_their_reason(kind: Poison) -> None:
    (row,) = parsed([poison.record(kind, "bad-1", "EUR")], "EUR", NOW)
    assert row["reason"] == kind.reason


def test_bad_payments_are_sent_where_payments_are() -> None:
    def roles(*, has_payments: bool) -> set[str]:
        plan = Disturbance(bad_share=0.3, has_payments=has_payments)
        return {record.role for record in mixing.disturbed(generator.records(OPTIONS), plan)}

    assert catalog.PAYMENTS_ROLE not in roles(has_payments=False)
    assert catalog.PAYMENTS_ROLE in roles(has_payments=True)
