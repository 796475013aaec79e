"""Odd records count: by both parsers, and however many are asked for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from customer_activity.demo.traffic import generator, mixing, odd
from customer_activity.demo.traffic.mixing import Disturbance
from customer_activity.verification import contract
from support.traffic import kinds, parsed, small

NOW = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("kind", odd.KINDS, ids=lambda kind: kind.name)
def test_every_kind_counts(kind: odd.Kind) -> None:
    record = odd.record(kind, "odd-1", "EUR")
    (row,) = parsed([record], "EUR", NOW)
    millis = round(NOW.timestamp() * 1000)
    judged = contract.purchase(record.key, record.value, millis, "EUR", landed_at=millis, rules=2)

    assert row["reason"] is None
    assert judged[:2] == (row["purchase_id"], row["customer_id"])
    assert row["amount"] * 100 == judged[3] == kind.cents


def test_as_many_as_asked_for_and_none_of_them_bad() -> None:
    disturbance = Disturbance(odd_share=0.1, bad_share=0.1, seed=3)
    records = list(mixing.disturbed(generator.records(small()), disturbance))
    found = kinds(records)
    of_odd = sum(count for kind, count in found.items() if kind.startswith(odd.ODD))
    assert of_odd == pytest.approx(205, abs=5)
    assert len(records) == pytest.approx(mixing.expected(2_050, disturbance), abs=5)
    assert len({record.key for record in records if record.kind.startswith(odd.ODD)}) == of_odd
