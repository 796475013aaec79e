"""Payments on real tables: whatever arrives in which order, in which batches, wherever these are worked on or end."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from customer_activity.catalog import Table
from customer_activity.quality.run import run
from customer_activity.quarantine.contents import Selection
from customer_activity.quarantine.replay import replay
from support import tables
from support.paid_lives import HOPS, Buy, Killed, Pay, Take, ending_at, found, land, live, living, record, wanted
from support.payments import Expected
from support.proof import proofs
from support.quality import failing
from support.quick_pipeline import QuickPipeline
from support.records import PAYMENTS

AT = datetime(2026, 3, 26, tzinfo=UTC)
NUMBERS = st.integers(0, 3)
PLACES = st.sampled_from(["driver", "executors"])
LIVES = st.lists(
    st.one_of(
        st.builds(Buy, NUMBERS, st.integers(0, 90)),
        st.builds(
            Pay,
            NUMBERS,
            st.integers(-5, 130),
            st.sampled_from(["1.00", "1.00", "2.00"]),
            st.integers(1, 2),
            st.sampled_from([None, "C-1", "C-2"]),
        ),
        st.builds(Take, st.sampled_from(sorted(HOPS)), st.integers(0, 14), PLACES, PLACES),
    ),
    min_size=3,
    max_size=14,
)


@pytest.fixture
def pipeline(paying: QuickPipeline) -> QuickPipeline:
    """Return the streams on an empty lake."""
    return paying


def test_what_has_landed_since_a_batch_was_planned_is_not_looked_at(pipeline: QuickPipeline) -> None:
    """A rebuild computes the tables from what their commits say was read."""
    land(pipeline, Pay(0, 10))
    with pytest.raises(Killed):
        pipeline.hop("payments", ending_at(0))
    land(pipeline, Buy(0, 0))
    pipeline.repeat("payments")
    assert found(pipeline) == Expected({}, set(), {(0, 0, "no_purchase", None)})
    pipeline.hop("payments")
    assert found(pipeline) == Expected({"P-0": ("pay-1", "in time")}, set(), set())


@pytest.mark.parametrize("again", [1, 2], ids=["sent again", "paid again"])
def test_a_refused_payment_comes_back_whatever_was_paid_since(pipeline: QuickPipeline, again: int) -> None:
    land(pipeline, Buy(0, 0))
    early = record(Pay(0, 5))
    refused = {
        "topic": PAYMENTS,
        "partition": 1,
        "offset": 0,
        "kafka_timestamp": AT,
        "landing": 1,
        "quarantined_at": AT,
    }
    raw = {"key": early.key, "value": early.value, "reason": "timestamp_in_future"}  # it no longer is
    tables.append(pipeline.settings.lake, Table.QUARANTINE, {**refused, **raw}, query="payment_events", landing=1)
    land(pipeline, Pay(0, 8, payment_id=again), streams="payments")
    pipeline.hop("payments")
    done = replay(pipeline.settings, Selection(), "clocks are set")
    assert (done.accepted, done.overtaken) == ({PAYMENTS: 1}, 0)
    for hop in ("payment_events", "payments"):
        pipeline.hop(hop)
    reason = "repeated" if again == 1 else "paid_twice"
    assert found(pipeline) == Expected({"P-0": (f"pay-{again}", "in time")}, set(), {(1, 0, reason, None)})
    assert found(pipeline) == wanted(pipeline)
    assert pipeline.rows(Table.QUARANTINE) == []


@pytest.mark.parametrize(
    ("landing", "is_wrong"),
    [pytest.param(1, True, id="in one landing"), pytest.param(2, False, id="by a replay that is at work")],
)
def test_a_payment_is_accepted_or_refused(
    pipeline: QuickPipeline, tmp_path: Path, landing: int, is_wrong: bool
) -> None:
    lake, place = pipeline.settings.lake, {"topic": PAYMENTS, "partition": 1, "offset": 0, "kafka_timestamp": AT}
    refused = {"reason": "timestamp_in_future", "quarantined_at": AT, "landing": 1}
    tables.append(lake, Table.QUARANTINE, place | refused, query="payment_events")
    accepted = {"ingested_at": datetime.now(UTC), "landing": landing}
    tables.append(lake, Table.PAYMENT_EVENTS, place | accepted, query="payment_events")
    report = run(pipeline.settings.model_copy(update={"quality_docs": str(tmp_path)}), ["bronze.payment_events"])
    assert ("payment_events_are_accepted_or_refused" in failing(report)) == is_wrong


@pytest.mark.parametrize("first", [Buy(0, 0), Pay(0, 10)], ids=["a purchase", "a payment"])
def test_tables_that_are_not_computed_are_equal_only_until_something_arrives(
    pipeline: QuickPipeline, first: Buy | Pay
) -> None:
    of_payments = (Table.PAID, Table.UNPAID, Table.UNMATCHED_PAYMENTS)
    assert all(check.ok for check in proofs(pipeline, *of_payments))
    land(pipeline, first)
    assert not any(check.ok for check in proofs(pipeline, *of_payments))
    pipeline.hop("payments")
    assert all(check.ok for check in proofs(pipeline, *of_payments))


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LIVES)
@example([Pay(0, 10), Take("payments", 2), Buy(0, 0), Take("purchases", 1)])
@example([Buy(0, 0), Take("both"), Buy(1, 80), Take("both")])  # unpaid without a purchase of its own batch
@example([Buy(0, 0), Pay(0, 5), Take("both"), Buy(1, 80), Take("both")])  # paid when its time is over
@example([Buy(0, 0), Buy(1, 80), Take("purchases", 3), Pay(0, 5), Take("payments", 3), Pay(0, 6)])
def test_whatever_comes_first_and_wherever_a_driver_ends(
    empty_with_payments: Path, tmp_path_factory: pytest.TempPathFactory, life: list[Buy | Pay | Take]
) -> None:
    folder = tmp_path_factory.mktemp("life")
    with living(empty_with_payments, folder) as pipeline:
        live(pipeline, life)
        assert found(pipeline) == wanted(pipeline)
    shutil.rmtree(folder)
