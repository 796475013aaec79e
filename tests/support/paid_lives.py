"""Lives of payments on a lake without a JVM: purchases and payments that come, and batches that a driver may end in."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from customer_activity.catalog import Table
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
    """What is there is taken by some streams; the last one may end at its n-th fail point, and repeats the batch.

    The batch of the last one is worked on at a place, and repeated at the same one or at another.
    """

    streams: str
    ends_at: int = 99
    place: str = "driver"
    again: str = "driver"


HOPS = {
    "purchases": ("bronze", "silver", "event_time"),
    "payments": ("payment_events",),
    "both": ("bronze", "silver", "event_time", "payment_events"),
}


def record(step: Buy | Pay) -> Record:
    """Return what comes with a step."""
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


def placed(pipeline: QuickPipeline, place: str) -> None:
    """Have the batches of payments be worked on at a place from now on."""
    if pipeline.settings.placement != place:
        pipeline.settings = pipeline.settings.model_copy(update={"placement": place})
        pipeline.opened.pop("payments", None)


def live(pipeline: QuickPipeline, life: Sequence[Buy | Pay | Take]) -> None:
    """Let records come and streams take them."""
    for step in [*life, Take("both")]:
        if not isinstance(step, Take):
            pipeline.sent.append(pipeline.log.append(record(step), step.number // 3))
            continue
        for hop in HOPS[step.streams]:
            pipeline.hop(hop)
        try:
            placed(pipeline, step.place)
            pipeline.hop("payments", ending_at(step.ends_at))
        except Killed:
            placed(pipeline, step.again)
            pipeline.repeat("payments")


def found(pipeline: QuickPipeline) -> Expected:
    """Return what the tables hold."""
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
    """Return what they must hold, by what has landed."""
    bought, payments = pipeline.rows(Table.TIMED_PURCHASES), pipeline.rows(Table.PAYMENT_EVENTS)
    watermark = max((row["next_watermark"] for row in bought), default=None)
    return expected(bought, payments, watermark, WINDOW, GRACE)


@contextmanager
def living(empty: Path, folder: Path) -> Iterator[QuickPipeline]:
    """Yield the streams on a copy of an empty lake."""
    shutil.copytree(empty, folder / "lake")
    own = Settings(lake=str(folder / "lake"), run_dir=folder / "run", grace_hours=GRACE / timedelta(hours=1))
    with without_jvm() as nobody:
        pipeline = QuickPipeline(nobody, own)  # type: ignore[arg-type]
        yield pipeline
        pipeline.close()


def land(pipeline: QuickPipeline, *steps: Buy | Pay, streams: str = "both") -> None:
    """Let records land, and some streams take them."""
    for step in steps:
        pipeline.sent.append(pipeline.log.append(record(step), step.number // 3))
    for hop in HOPS[streams]:
        pipeline.hop(hop)
