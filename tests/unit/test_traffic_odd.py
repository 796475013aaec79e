"""Odd records count: by both parsers, and however many are asked for."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from customer_activity import catalog
from customer_activity.contracts import parsing
from customer_activity.demo.traffic import generator, mixing, odd
from customer_activity.demo.traffic.mixing import Disturbance
from customer_activity.verification import contract
from support.traffic import kinds, small

NOW = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("kind", odd.KINDS, ids=lambda kind: kind.name)
def test_every_kind_counts(kind: odd.Kind) -> None:
    record = odd.record(kind, "odd-1", "EUR")
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.record_batch(
        {
            "key": pa.array([record.key], pa.binary()),
            "value": pa.array([record.value], pa.binary()),
            "topic": pa.array([record.role]),
            "partition": pa.array([0], pa.int32()),
            "offset": pa.array([0], pa.int64()),
            "timestamp": pa.array([NOW], pa.timestamp("us", tz="UTC")),
            "headers": pa.array([[{"key": k, "value": v} for k, v in record.headers]], headers),
        }
    )
    (row,) = parsing.parse_batch(
        batch,
        purchase_topic=catalog.PURCHASES_ROLE,
        profile_topic=catalog.PROFILES_ROLE,
        currency="EUR",
        landed_at=NOW,
    ).to_pylist()
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
