"""Producers change their records and their clocks are wrong: nothing is coerced, nothing is lost, nobody is held up."""

from __future__ import annotations

import json
import tempfile
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from customer_activity.catalog import Reason, Table
from support.pipeline import Pipeline, copied_lake
from support.quick_pipeline import QuickPipeline
from support.records import NOW_MS, PROFILES, PURCHASES, Record, profile, purchase
from support.streams import Query

HOUR_MS = 3_600_000


def deployed(purchase_id: str, **changes: Any) -> Record:
    """Build a purchase of a producer's new release; Ellipsis leaves a field out."""
    fields = json.loads(purchase(purchase_id, "C-1", "1.50").value or b"") | changes
    text = json.dumps({name: value for name, value in fields.items() if value is not ...})
    return Record(PURCHASES, purchase_id.encode(), text.encode())


RELEASES: dict[str, tuple[dict[str, Any], Reason | None]] = {
    "fields added": ({"channel": "app", "basket": {"size": 3}}, None),
    "an optional field gone": ({"productId": ...}, None),
    "a field gone": ({"currency": ...}, Reason.MISSING_FIELD),
    "a field renamed": ({"customerId": ..., "customer_id": "C-1"}, Reason.MISSING_FIELD),
    "a number became text": ({"amount": "1.50"}, Reason.WRONG_TYPE),
    "a time became text": ({"occurredAtEpochMillis": "2026-01-01T00:00:00Z"}, Reason.WRONG_TYPE),
    "text became a number": ({"customerId": 1}, Reason.WRONG_TYPE),
}


@pytest.mark.parametrize(("changes", "reason"), RELEASES.values(), ids=RELEASES.keys())
def test_a_release_with_another_schema(pipeline: Pipeline, changes: dict[str, Any], reason: Reason | None) -> None:
    pipeline.send(profile("C-1"), purchase("P-before", "C-1", "1.50"))
    pipeline.run()
    pipeline.send(deployed("P-new", **changes), purchase("P-other", "C-1", "1.50"))
    pipeline.run()

    refused = pipeline.rows(Table.QUARANTINE, "reason", "key", "value")
    counted = 2 if reason else 3
    sent = deployed("P-new", **changes).value
    assert refused == ([{"reason": reason.value, "key": b"P-new", "value": sent}] if reason else [])
    kept = [*refused, *pipeline.rows(Table.PURCHASE_EVENTS, "value")]
    assert sent in [row["value"] for row in kept], "what no column has is in the raw bytes"
    assert pipeline.gold()["C-1"]["purchase_count"] == counted
    assert pipeline.gold()["C-1"]["total_amount"] == counted * Decimal("1.50")


def test_a_clock_that_is_ahead_blocks_no_later_update(pipeline: Pipeline) -> None:
    pipeline.send(
        profile("C-1", NOW_MS + 24 * HOUR_MS, address="9 Future Lane"), profile("C-2", NOW_MS + HOUR_MS // 15)
    )
    pipeline.send(profile("C-1", NOW_MS, address="1 Present Lane"))
    pipeline.run()

    assert [row["reason"] for row in pipeline.rows(Table.QUARANTINE)] == ["timestamp_in_future"]
    assert pipeline.gold()["C-1"]["address"] == "1 Present Lane"
    assert "C-2" in pipeline.gold(), "four minutes ahead are within what clocks do"


class Update(NamedTuple):
    """A profile update: what its producer's clock said, hours from the broker's, and the address."""

    hours: int
    address: str


updates = st.lists(
    st.builds(Update, st.integers(-24, 0), st.sampled_from(("a", "b", "c"))),
    min_size=2,
    max_size=6,
    unique_by=lambda update: update.hours,
)


@given(
    lives=st.dictionaries(st.sampled_from([f"C-{n}" for n in range(40)]), updates, min_size=30), shuffled=st.randoms()
)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_in_whatever_order_clocks_bring_updates_the_newest_is_current_and_older_ones_are_counted(
    spark: SparkSession, empty_lake: Path, lives: dict[str, list[Update]], shuffled: Random
) -> None:
    every = [(customer, update) for customer, life in lives.items() for update in life]
    shuffled.shuffle(every)
    with tempfile.TemporaryDirectory() as folder:
        pipeline = QuickPipeline(spark, copied_lake(empty_lake, Path(folder)))
        for customer, update in every:
            pipeline.send(profile(customer, NOW_MS + update.hours * HOUR_MS, address=update.address))
        pipeline.run()

        current = {customer: max(life).address for customer, life in lives.items()}
        assert {customer: row["address"] for customer, row in pipeline.gold().items()} == current
        counts = pipeline.batches[Query.SILVER][-1].counts[PROFILES]
        assert counts["accepted"] + counts["stale"] == len(every)
        pipeline.close()
