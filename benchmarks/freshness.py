"""How fresh the view was, from what was sent and what was published. Pure functions over arrays.

A purchase is in the view from the first view record of its customer whose `purchaseCount` covers it: the customer's
n-th purchase (by Kafka timestamp) is covered by the first record that counts n or more. Its freshness is that record's
LogAppendTime minus the purchase's own Kafka timestamp.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]

TOLERATED_SHARE = 0.001  # of purchases that never appeared; with more, percentiles would flatter whoever loses them
PERCENTILES = (50, 95, 99)


class Purchases(NamedTuple):
    """Purchases in any order, from the topic's beginning on.

    Attributes:
        customer: number of the customer.
        sent_ms: Kafka timestamp, epoch milliseconds.
    """

    customer: Numbers
    sent_ms: Numbers


class ViewRecords(NamedTuple):
    """Records of the view, those of one customer in the order in which they were published.

    Attributes:
        customer: number of the customer.
        purchase_count: purchases that the record counts.
        published_ms: when it was there to be read, epoch milliseconds.
    """

    customer: Numbers
    purchase_count: Numbers
    published_ms: Numbers


def covered_at(purchases: Purchases, view: ViewRecords) -> Floats:
    """Return for each purchase the time (epoch milliseconds) at which the view first covered it; NaN where never."""
    return counted_at(purchases.customer, ordinals(purchases), view)


def counted_at(customer: Numbers, purchase_count: Numbers, view: ViewRecords) -> Floats:
    """Return when the view first counted that many purchases of that customer (epoch milliseconds); NaN where never."""
    if not customer.size or not view.customer.size:
        return np.full(customer.size, np.nan)
    by_customer = np.argsort(view.customer, kind="stable")
    # One ascending key for (customer, count): a count that falls back does not take away what was covered before.
    span = int(max(view.purchase_count.max(), purchase_count.max())) + 1
    reached = np.maximum.accumulate(view.customer[by_customer] * span + view.purchase_count[by_customer])
    first = np.searchsorted(reached, customer * span + purchase_count, side="left")
    is_found = first < reached.size
    record = by_customer[np.where(is_found, first, 0)]
    is_found &= view.customer[record] == customer
    return np.where(is_found, view.published_ms[record], np.nan)


def ordinals(purchases: Purchases) -> Numbers:
    """Return which purchase of its customer each one is, by time: 1 for the first."""
    order = np.lexsort((purchases.sent_ms, purchases.customer))
    customer = purchases.customer[order]
    is_first = np.concatenate(([True], customer[1:] != customer[:-1]))
    position = np.arange(customer.size)
    number = position - np.maximum.accumulate(np.where(is_first, position, 0)) + 1
    result = np.empty_like(number)
    result[order] = number
    return result


def seconds_until_covered(purchases: Purchases, view: ViewRecords) -> Floats:
    """Return each purchase's freshness in seconds; infinite where it never was in the view."""
    seconds = (covered_at(purchases, view) - purchases.sent_ms) / 1000
    return np.where(np.isnan(seconds), np.inf, seconds)


def within(purchases: Purchases, start_ms: float, end_ms: float) -> NDArray[np.bool_]:
    """Select the purchases sent in a window, its end excluded."""
    return (purchases.sent_ms >= start_ms) & (purchases.sent_ms < end_ms)


def summary(seconds: Floats) -> dict[str, float | int | None]:
    """Sum freshness up: purchases, those never covered, percentiles and maximum in seconds.

    A figure is None ("not reached") where it does not exist: there are no purchases, or too many were never covered.
    """
    uncovered = int(np.isinf(seconds).sum())
    is_reached = seconds.size > 0 and uncovered <= TOLERATED_SHARE * seconds.size
    covered = seconds[np.isfinite(seconds)]
    figures: dict[str, float | int | None] = {"purchases": int(seconds.size), "uncovered": uncovered}
    for percentile in PERCENTILES:
        # Those never covered are infinitely late, so they push the percentiles up as far as they can.
        value = float(np.percentile(seconds, percentile, method="higher")) if is_reached else np.inf
        figures[f"p{percentile}_seconds"] = round(value, 3) if np.isfinite(value) else None
    figures["max_seconds"] = round(float(covered.max()), 3) if is_reached and not uncovered else None
    return figures


def quantiles(seconds: Floats) -> list[float | None]:
    """Return the percentiles 0, 1, … 100 in seconds; None from where on they are not reached."""
    if not seconds.size:
        return []
    values = np.percentile(seconds, np.arange(101), method="higher")
    return [round(float(value), 3) if np.isfinite(value) else None for value in values]


def per_minute(purchases: Purchases, seconds: Floats, start_ms: float, end_ms: float) -> list[dict[str, float | None]]:
    """Sum freshness up for each whole minute in which purchases were sent, from `start_ms` on."""
    minutes = int((end_ms - start_ms) // 60_000)
    rows: list[dict[str, float | None]] = []
    for minute in range(minutes):
        begin = start_ms + minute * 60_000
        rows.append({"minute": minute, **summary(seconds[within(purchases, begin, begin + 60_000)])})
    return rows


def trend(values: list[float]) -> dict[str, float | bool]:
    """Fit a line through one figure a minute.

    Produces `per_hour` (rise of the figure), `error_per_hour` (its standard error), and `is_upward`: the rise is more
    than chance explains (two standard errors) and more than a tenth of the median over the time seen.
    """
    minutes = np.arange(len(values), dtype=np.float64)
    if minutes.size < 3:
        return {"per_hour": 0.0, "error_per_hour": 0.0, "is_upward": False}
    slope, offset = np.polyfit(minutes, values, 1)
    residuals = np.asarray(values) - (slope * minutes + offset)
    spread = ((minutes - minutes.mean()) ** 2).sum()
    error = float(np.sqrt((residuals**2).sum() / (minutes.size - 2) / spread))
    is_upward = bool(slope > 2 * error and slope * minutes.size > 0.1 * float(np.median(values)))
    return {"per_hour": round(float(slope) * 60, 3), "error_per_hour": round(error * 60, 3), "is_upward": is_upward}


def recovered_at(covered_ms: Floats, seconds: Floats, from_ms: float, *, limit: float, hold_ms: float) -> float | None:
    """Return when the view was fresh again after `from_ms`: what it covers then and for `hold_ms` on is below `limit`.

    None when that was never seen; the end of what was covered must lie at least `hold_ms` later.
    """
    is_after = covered_ms > from_ms  # NaN, never covered, is not after anything
    times, late = covered_ms[is_after], seconds[is_after] >= limit
    late_times = np.sort(times[late])
    for moment in np.unique(times):
        next_late = np.searchsorted(late_times, moment, side="left")
        if next_late < late_times.size and late_times[next_late] <= moment + hold_ms:
            continue
        return float(moment) if times.max() >= moment + hold_ms else None
    return None
