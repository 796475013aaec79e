"""Payments on real tables: whatever arrives in which order, in which batches, and wherever a driver ends in one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.lake import delta
from customer_activity.lake.failpoints import FailPoint
from customer_activity.settings import Settings
from support.payments import Expected, expected
from support.quick_pipeline import QuickPipeline
from support.records import Record, payment, purchase
from support.without_jvm import without_jvm

MINUTE = 60_000
START = int(datetime(2026, 3, 26, tzinfo=UTC).timestamp() * 1000)
WINDOW, GRACE = timedelta(minutes=30), timedelta(minutes=6)


class Killed(Exception):
    """Raised at a fail point, as if the process had ended there."""


class Buy(NamedTuple):
    """A purchase of somebody at a minute."""

    number: int
    minute: int


class Pay(NamedTuple):
    """A payment of a purchase: whether it agrees, its id, and when it was confirmed."""

    number: int
    minute: int
    amount: str = "1.00"
    payment_id: int = 1
    customer: str | None = None


class Take(NamedTuple):
    """What is there is taken by some streams; the last one may end at its n-th fail point, and repeats the batch."""

    streams: str
    ends_at: int = 99


HOPS = {
    "purchases": ("bronze", "silver", "event_time"),
    "payments": ("payment_events",),
    "both": ("bronze", "silver", "event_time", "payment_events"),
}
NUMBERS = st.integers(0, 3)
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
        st.builds(Take, st.sampled_from(sorted(HOPS)), st.integers(0, 14)),
    ),
    min_size=3,
    max_size=14,
)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return an empty lake with the streams of payments on."""
    topology.switch_on(["payments"])
    lake = tmp_path_factory.mktemp("empty") / "lake"
    delta.ensure_tables(str(lake))
    yield lake
    topology.switch_on([])


def record(step: Buy | Pay) -> Record:
    at = START + step.minute * MINUTE
    if isinstance(step, Buy):
        return purchase(f"P-{step.number}", "C-1", "1.00", at, sent=at)
    more = {} if step.customer is None else {"customerId": step.customer}
    return payment(f"P-{step.number}", step.amount, at, payment_id=f"pay-{step.payment_id}", sent=at, **more)


def ending_at(number: int) -> Callable[[FailPoint], None]:
    """Return what ends a batch at its n-th fail point."""
    met: list[FailPoint] = []

    def failpoint(point: FailPoint) -> None:
        met.append(point)
        if len(met) == number + 1:
            raise Killed

    return failpoint


def live(pipeline: QuickPipeline, life: Sequence[Buy | Pay | Take]) -> None:
    """Let records come and streams take them."""
    for step in [*life, Take("both")]:
        if not isinstance(step, Take):
            pipeline.sent.append(pipeline.log.append(record(step), step.number // 3))
            continue
        for hop in HOPS[step.streams]:
            pipeline.hop(hop)
        try:
            pipeline.hop("payments", ending_at(step.ends_at))
        except Killed:
            pipeline.repeat("payments")


def found(pipeline: QuickPipeline) -> Expected:
    paid, unpaid, others = (pipeline.rows(table) for table in (Table.PAID, Table.UNPAID, Table.UNMATCHED_PAYMENTS))
    places = [(row["partition"], row["offset"], row["reason"], row["differs_in"]) for row in others]
    assert len({row["purchase_id"] for row in paid}) == len(paid)
    assert len(set(places)) == len(places)
    how = {
        row["purchase_id"]: (row["payment_id"], "early" if row["is_early"] else "late" if row["is_late"] else "in time")
        for row in paid
    }
    return Expected(how, {row["purchase_id"] for row in unpaid}, set(places))


def wanted(pipeline: QuickPipeline) -> Expected:
    bought, payments = pipeline.rows(Table.TIMED_PURCHASES), pipeline.rows(Table.PAYMENT_EVENTS)
    watermark = max((row["next_watermark"] for row in bought), default=None)
    return expected(bought, payments, watermark, WINDOW, GRACE)


@pytest.fixture
def pipeline(empty: Path, tmp_path: Path) -> Iterator[QuickPipeline]:
    """Return the streams on an empty lake."""
    with living(empty, tmp_path) as found:
        yield found


@contextmanager
def living(empty: Path, folder: Path) -> Iterator[QuickPipeline]:
    shutil.copytree(empty, folder / "lake")
    own = Settings(lake=str(folder / "lake"), run_dir=folder / "run", grace_hours=GRACE / timedelta(hours=1))
    with without_jvm() as nobody:
        pipeline = QuickPipeline(nobody, own)  # type: ignore[arg-type]
        yield pipeline
        pipeline.close()


def land(pipeline: QuickPipeline, *steps: Buy | Pay, streams: str = "both") -> None:
    for step in steps:
        pipeline.sent.append(pipeline.log.append(record(step), step.number // 3))
    for hop in HOPS[streams]:
        pipeline.hop(hop)


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


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LIVES)
@example([Pay(0, 10), Take("payments", 2), Buy(0, 0), Take("purchases", 1)])
@example([Buy(0, 0), Take("both"), Buy(1, 80), Take("both")])  # unpaid without a purchase of its own batch
@example([Buy(0, 0), Pay(0, 5), Take("both"), Buy(1, 80), Take("both")])  # paid when its time is over
@example([Buy(0, 0), Buy(1, 80), Take("purchases", 3), Pay(0, 5), Take("payments", 3), Pay(0, 6)])
def test_whatever_comes_first_and_wherever_a_driver_ends(
    empty: Path, tmp_path_factory: pytest.TempPathFactory, life: list[Buy | Pay | Take]
) -> None:
    folder = tmp_path_factory.mktemp("life")
    with living(empty, folder) as pipeline:
        live(pipeline, life)
        assert found(pipeline) == wanted(pipeline)
    shutil.rmtree(folder)
