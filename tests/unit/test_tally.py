"""What batches count for metrics: ages by bucket, and the same for parts of a batch as for all of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from customer_activity.lake.feeds import Feed
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.lake.tally import FRESHNESS_SECONDS, Tally

NOW = 1_800_000_000.0


def at(*ages: float | None) -> pa.ChunkedArray:
    """Return Kafka timestamps of so many seconds ago."""
    micros = [None if age is None else round((NOW - age) * 1_000_000) for age in ages]
    return pa.chunked_array([pa.array(micros, pa.timestamp("us", "UTC"))])


def buckets(tally: Tally) -> dict[float, int]:
    counts = tally.fresh.tolist()
    return {bound: count for bound, count in zip([*FRESHNESS_SECONDS, float("inf")], counts, strict=True) if count}


@pytest.mark.parametrize(
    ("ages", "found", "seconds"),
    [
        pytest.param([], {}, 0.0, id="no row"),
        pytest.param([None, None], {}, 0.0, id="rows that reflect no record"),
        pytest.param([0.3, None, 0.4], {0.5: 2}, 0.7, id="within a bucket"),
        pytest.param([0.25, 0.26], {0.25: 1, 0.5: 1}, 0.51, id="a bound is inside"),
        pytest.param([3_600.0], {float("inf"): 1}, 3_600.0, id="older than all bounds"),
        pytest.param([-5.0], {0.25: 1}, 0.0, id="a producer's clock is ahead"),
    ],
)
def test_rows_are_counted_by_their_age(ages: Sequence[float | None], found: dict[float, int], seconds: float) -> None:
    tally = Tally()
    tally.became_visible(at(*ages), NOW)
    assert buckets(tally) == found
    assert tally.fresh_seconds == pytest.approx(seconds)


@given(st.lists(st.integers(-10, 4_000_000), max_size=60), st.integers(0, 60))
def test_parts_come_to_what_all_rows_come_to(millis: list[int], cut: int) -> None:
    ages = [each / 1000 for each in millis]
    parts, whole = Tally(), Tally()
    for some in (ages[:cut], ages[cut:]):
        parts.became_visible(at(*some), NOW)
    whole.became_visible(at(*ages), NOW)
    assert buckets(parts) == buckets(whole)
    expected = [0] * (len(FRESHNESS_SECONDS) + 1)
    for age in ages:
        expected[bisect_left(FRESHNESS_SECONDS, max(0.0, round(age, 6)))] += 1
    assert whole.fresh.tolist() == expected


def test_bounds_grow() -> None:
    assert list(FRESHNESS_SECONDS) == sorted(set(FRESHNESS_SECONDS))


def test_parts_of_a_batch_count_in_its_own_tally() -> None:
    batch = MicroBatch("gold", "generation", 0)
    for _, part in batch.parts([Feed("", {}, {}, {}, {})] * 2):
        part.tally.read["silver.purchases"] += 2
        part.tally.transactions += 1
    assert (batch.tally.read.total(), batch.tally.transactions) == (4, 2)
