"""The rules of alerts, as a function of purchases: which of them first makes a rule true. Pure steps, no IO.

    velocity       a customer buys more often than a number, or for more than an amount, in a window
    risky_session  a customer makes so many risky purchases in a session, each with a greater amount and risk score than
                   the limits

"First" is in the order of records: (landing, partition, offset). A window or a session has one alert: by the purchase
that takes it over the limit. Whether a purchase does is decided by those of its customer that landed before it and are
near it in event time (`decisive`), so a batch needs no other state than these rows, and it makes no difference how
batches are cut. Purchases that landed before landings were numbered have no order, and raise no alert.

What is too late does not count, by the rules of windows (`streams/windows/lateness.py`) and a grace of their own.

Spark's executors import this module and need little for it.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from decimal import Decimal
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.columns import UTC_MICROS
from customer_activity.contracts.tables import arrow_schema
from customer_activity.streams.alerts.limits import Limits
from customer_activity.streams.alerts.spans import Numbers, Spans
from customer_activity.streams.windows.lateness import Rules

ORDER = ("landing", "partition", "offset")
OF_PURCHASE = ("customer_id", "purchase_id", "occurred_at", "currency", "kafka_timestamp", *ORDER)
COLUMNS = [*OF_PURCHASE, "amount", "risk_score", "partition_time", "watermark"]
SOURCE = Table.TIMED_PURCHASES
SCHEMA = pa.schema([arrow_schema(SOURCE).field(name) for name in COLUMNS])
ID_LENGTH = 32  # hexadecimal digits of an alert's id
BETWEEN = "\x1f"  # is in no id: they have no control characters


class Rule(StrEnum):
    """Why there is an alert."""

    VELOCITY = "velocity"
    RISKY_SESSION = "risky_session"


class Found(NamedTuple):
    """What makes an alert: the purchase by its row, and what the window or session has by then."""

    rule: Rule
    row: int
    start: int  # microseconds since 1970, as `end`
    end: int
    purchases: int
    cents: int


def alerts(limits: Limits, purchases: pa.Table) -> pa.Table:
    """Return the alerts that purchases make, with the columns of gold.fraud_alerts.

    Args:
        limits: what the rules go by.
        purchases: the columns of COLUMNS, in any order, each once; with a purchase all of its customer that decide
            about it: what it makes without them says nothing.
    """
    in_order = _in_time(limits, purchases).sort_by([(name, "ascending") for name in ORDER])
    return _as_rows(in_order, [*velocity(limits, in_order), *risky_sessions(limits, in_order)])


def alerts_of(limits: Limits, bought: pa.Table, near: pa.Table) -> pa.Table:
    """Return the alerts that some purchases make, by all that decide about them: `near` has these, and them."""
    found = alerts(limits, near)
    return found.filter(pc.is_in(found.column("purchase_id"), value_set=bought.column("purchase_id")))


def decisive(limits: Limits, purchases: pa.Table) -> Spans:
    """Return when the purchases occur that decide about some: in the same window, and near to what is risky.

    What does not count is not looked back for: the grace, and the watermark, say how far that is at most.
    """
    purchases = _in_time(limits, purchases)
    times, (starts, is_closed) = _micros(purchases, "occurred_at"), _windows(limits, purchases)
    starts, of_risky = starts[~is_closed], times[_is_risky(limits, purchases) & ~is_closed]
    return Spans.of(
        np.concatenate([starts, of_risky - limits.reach]),
        np.concatenate([starts + limits.window - 1, of_risky + limits.reach]),
    )


def velocity(limits: Limits, purchases: pa.Table) -> Iterator[Found]:
    """Yield for each window the purchase that takes it over a limit; purchases in the order of records."""
    starts, is_closed = _windows(limits, purchases)
    counted = np.flatnonzero(~is_closed)
    if not len(counted):
        return
    customers = _codes(purchases.column("customer_id"))
    rows = counted[np.lexsort([counted, starts[counted], customers[counted]])]
    customers, starts, cents = customers[rows], starts[rows], _cents(purchases)[rows]
    begins = np.r_[True, (customers[1:] != customers[:-1]) | (starts[1:] != starts[:-1])]
    first = np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0))
    number = np.arange(len(rows)) - first + 1
    # No sum overflows: a window is over the limit with the first purchase that is, and no later one matters.
    most = limits.window_amount * 100
    added = np.where(number <= limits.window_purchases + 1, np.minimum(cents, most + 1), 0)
    sums = np.cumsum(added)
    sums += added[first] - sums[first]
    is_over = (number > limits.window_purchases) | (sums > most)
    is_first = is_over & (begins | ~np.r_[False, is_over[:-1]])
    for at in np.flatnonzero(is_first).tolist():
        start = int(starts[at])
        total = int(sums[at]) - int(added[at]) + int(cents[at])
        yield Found(Rule.VELOCITY, int(rows[at]), start, start + limits.window, int(number[at]), total)


def risky_sessions(limits: Limits, purchases: pa.Table) -> Iterator[Found]:
    """Yield for each session of risky purchases the one that completes it; purchases in the order of records.

    A session that has as many as make an alert has one. So what joins to such a session, or joins two sessions of which
    one is such, makes no other.
    """
    is_closed = np.asarray(Rules(limits.grace).is_closed(purchases, purchases.column("occurred_at")).to_numpy())
    rows = np.flatnonzero(_is_risky(limits, purchases) & ~is_closed)
    cents = _cents(purchases)
    times = _micros(purchases, "occurred_at")[rows].tolist()
    customers = purchases.column("customer_id").take(pa.array(rows)).to_pylist()
    made: dict[str, list[tuple[int, int]]] = {}  # by customer, time and amount of risky purchases by time
    for row, customer, at, amount in zip(rows.tolist(), customers, times, cents[rows].tolist(), strict=True):
        others = made.setdefault(customer, [])
        place = bisect(others, (at, amount))
        before = _linked(limits, at, others[max(place - limits.session_purchases, 0) : place][::-1])
        after = _linked(limits, at, others[place : place + limits.session_purchases])
        others.insert(place, (at, amount))
        together = [*before[::-1], (at, amount), *after]
        if len(together) >= limits.session_purchases and not _was_complete(limits, before, after):
            total = sum(each for _, each in together)
            yield Found(Rule.RISKY_SESSION, row, together[0][0], together[-1][0], len(together), total)


def _in_time(limits: Limits, purchases: pa.Table) -> pa.Table:
    """Return those that have an order and are not later than the grace."""
    purchases = purchases.filter(pc.is_valid(purchases.column("landing")))
    return purchases.filter(pc.invert(Rules(limits.grace).is_late(purchases)))


def _windows(limits: Limits, purchases: pa.Table) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """Return when the window of each purchase begins, and whether it was closed when that landed."""
    starts = _micros(purchases, "occurred_at") // limits.window * limits.window
    ends = pa.chunked_array([pa.array(starts + limits.window, UTC_MICROS)])
    return starts, np.asarray(Rules(limits.grace).is_closed(purchases, ends).to_numpy())


def _is_risky(limits: Limits, purchases: pa.Table) -> npt.NDArray[np.bool_]:
    risk = np.asarray(pc.fill_null(purchases.column("risk_score"), -1).to_numpy())
    return (_cents(purchases) > limits.session_amount * 100) & (risk > limits.session_risk)


def _linked(limits: Limits, at: int, others: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return those of the nearest purchases on one side that a chain without a longer gap leads to."""
    found = []
    for each in others:
        if abs(each[0] - at) > limits.gap:
            break
        found.append(each)
        at = each[0]
    return found


def _was_complete(limits: Limits, before: Sequence[tuple[int, int]], after: Sequence[tuple[int, int]]) -> bool:
    """Whether a session on one side had its alert, or both sides were one session that had."""
    if before and after and after[0][0] - before[0][0] <= limits.gap:
        return len(before) + len(after) >= limits.session_purchases
    return max(len(before), len(after)) >= limits.session_purchases


def _as_rows(purchases: pa.Table, found: Sequence[Found]) -> pa.Table:
    schema = arrow_schema(Table.FRAUD_ALERTS)
    of_purchase = purchases.select(OF_PURCHASE).take(pa.array([each.row for each in found], pa.int64())).to_pylist()
    rows: list[dict[str, Any]] = [
        {
            **bought,
            "alert_id": alert_id(each.rule, bought["customer_id"], bought["purchase_id"]),
            "rule": each.rule.value,
            "window_start": each.start,
            "window_end": each.end,
            "purchase_count": each.purchases,
            "total_amount": Decimal(each.cents).scaleb(-2),
        }
        for each, bought in zip(found, of_purchase, strict=True)
    ]
    return pa.Table.from_pylist(rows, schema)


def alert_id(rule: Rule, customer_id: str, purchase_id: str) -> str:
    """Name an alert by what does not depend on batches or on time."""
    return sha256(BETWEEN.join((rule, customer_id, purchase_id)).encode()).hexdigest()[:ID_LENGTH]


def _micros(purchases: pa.Table, name: str) -> Numbers:
    return np.asarray(purchases.column(name).cast(UTC_MICROS).cast(pa.int64()).to_numpy(), np.int64)


def _cents(purchases: pa.Table) -> Numbers:
    cents = pc.multiply(purchases.column("amount"), pa.scalar(100, pa.decimal128(3, 0)))
    return np.asarray(cents.cast(pa.int64()).to_numpy(), np.int64)


def _codes(texts: pa.ChunkedArray) -> Numbers:
    """Return a number of each text, the same for equal ones."""
    chunks = texts.dictionary_encode().unify_dictionaries().chunks
    return np.concatenate([np.empty(0, np.int64), *(chunk.indices.to_numpy() for chunk in chunks)])
