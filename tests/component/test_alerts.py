"""Alerts as a function of purchases: what the rules say, whatever the order, the cuts and what is read beside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from customer_activity.contracts.columns import UTC_MICROS
from customer_activity.streams.alerts import rules
from customer_activity.streams.alerts.limits import Limits
from customer_activity.streams.alerts.rules import SCHEMA
from customer_activity.streams.alerts.spans import Spans
from customer_activity.streams.event_time import clock
from customer_activity.streams.event_time.clock import Clock
from support.alerts import Row, Rules, as_alerts, expected

MINUTE = 60_000_000
NOON = 20_000 * 24 * 60 * MINUTE + 12 * 60 * MINUTE
LOW = Limits(
    window_purchases=2, window_amount=20, session_purchases=3, session_amount=5, session_risk=70, grace_minutes=9
)
LOW_RULES = Rules(window_purchases=2, window_amount=Decimal(20), session_amount=Decimal(5), grace=timedelta(minutes=9))
IDLE = 15 * MINUTE

# Event time goes on with the landings; purchases are up to half an hour behind, and partitions fall silent.
PURCHASE = st.fixed_dictionaries(
    {
        "customer_id": st.sampled_from(["C-1", "C-2"]),
        "partition": st.integers(0, 2),
        "behind": st.one_of(st.integers(0, 8), st.integers(0, 30)).map(lambda each: each * MINUTE),
        "amount": st.sampled_from(
            [Decimal("0.01"), Decimal("5.00"), Decimal("5.01"), Decimal("14.99"), Decimal("20.01")]
        ),
        "risk_score": st.sampled_from([None, 70, 71, 100]),
    }
)
LANDINGS = st.lists(st.tuples(st.integers(0, 9), st.lists(PURCHASE, min_size=1, max_size=5)), min_size=1, max_size=12)


def stamped(landings: Sequence[tuple[int, list[Row]]]) -> pa.Table:
    """Return purchases with the stamps that the stream of event time gives them."""
    found: list[Row] = []
    now = NOON
    for landing, (minutes, purchases) in enumerate(landings):
        now += minutes * MINUTE
        for each in purchases:
            number = len(found)
            times = {"occurred_at": now - each["behind"], "kafka_timestamp": now}
            found.append({**each, **times, "purchase_id": f"P-{number}", "offset": number, "landing": landing})
    return with_stamps(found)


def with_stamps(found: Sequence[Row]) -> pa.Table:
    if not found:
        return SCHEMA.empty_table()
    purchases = pa.Table.from_pylist([{"currency": "EUR", **row} for row in found])
    columns = clock.stamp(purchases.select(clock.READ), Clock(), IDLE).columns
    for name, values in columns.items():
        purchases = purchases.append_column(name, values.cast(UTC_MICROS))
    for name in ("occurred_at", "kafka_timestamp"):
        at = purchases.column_names.index(name)
        purchases = purchases.set_column(at, name, purchases.column(name).cast(UTC_MICROS))
    return purchases.select(SCHEMA.names).cast(SCHEMA)


def bought(minute: float, amount: str = "10.00", risk: int | None = None, customer: str = "C-1") -> Row:
    """Return a purchase that occurs, and lands, so many minutes after noon."""
    return {
        "at": minute,
        "amount": Decimal(amount),
        "risk_score": risk,
        "customer_id": customer,
        "partition": 0,
        "heard": 60,
    }


def risky(minute: float, amount: str = "1000.01", risk: int = 71, customer: str = "C-1") -> Row:
    return bought(minute, amount, risk, customer)


def raised(*purchases: Row, limits: Limits) -> list[tuple[str, int, float, float, int]]:
    """Return the alerts that purchases raise: rule, number of purchase, begin, end, and how many."""
    found = as_alerts(rules.alerts(limits, landed(purchases)).to_pylist())
    return [(a.rule, int(a.purchase_id), minutes(a.start), minutes(a.end), a.purchases) for a in found]


def landed(purchases: Sequence[Row]) -> pa.Table:
    """Return purchases that land one by one."""
    rows = [
        {
            **{name: value for name, value in each.items() if name not in ("at", "heard")},
            "purchase_id": str(number),
            "occurred_at": NOON + round(each["at"] * MINUTE),
            "kafka_timestamp": NOON + each["heard"] * MINUTE,
            "offset": number,
            "landing": number,
        }
        for number, each in enumerate(purchases)
    ]
    return with_stamps(rows)


def minutes(at: datetime) -> float:
    return (at - datetime.fromtimestamp(NOON / 1_000_000, UTC)) / timedelta(minutes=1)


@pytest.mark.parametrize(
    ("purchases", "alerts"),
    [
        pytest.param([bought(0.1)] * 10, [], id="as many as the limit"),
        pytest.param([bought(0.1)] * 11, [("velocity", 10, 0, 5, 11)], id="one more"),
        pytest.param([bought(0.1)] * 14, [("velocity", 10, 0, 5, 11)], id="one alert a window"),
        pytest.param([bought(4.99)] * 6 + [bought(5)] * 6, [], id="windows do not overlap"),
        pytest.param([bought(5)] * 11, [("velocity", 10, 5, 10, 11)], id="a window begins with its first moment"),
        pytest.param([bought(0), bought(0, customer="C-2")] * 6, [], id="customers by themselves"),
        pytest.param([bought(1, "2500.00")] * 2, [], id="as much as the limit"),
        pytest.param([bought(1, "2500.00"), bought(2, "2500.01")], [("velocity", 1, 0, 5, 2)], id="a cent more"),
        pytest.param([bought(1, "9999999999999999.99")], [("velocity", 0, 0, 5, 1)], id="the greatest amount"),
        pytest.param(
            [bought(1, "9999999999999999.99")] * 3 + [bought(6, "5000.01")],
            [("velocity", 0, 0, 5, 1), ("velocity", 3, 5, 10, 1)],
            id="sums that no number holds",
        ),
        pytest.param(
            [risky(0), risky(5), risky(10)], [("risky_session", 2, 0, 10, 3)], id="a gap of five minutes joins"
        ),
        pytest.param([risky(0), risky(5), risky(10.001)], [], id="a longer one does not"),
        pytest.param([risky(0), risky(5), risky(10, risk=70)], [], id="as risky as the limit"),
        pytest.param([risky(0), risky(5), risky(10, "1000.00")], [], id="as dear as the limit"),
        pytest.param([risky(0), risky(5), bought(10, "1001.00")], [], id="no risk score"),
        pytest.param([risky(0), risky(5), risky(9, customer="C-2")], [], id="sessions of customers by themselves"),
        pytest.param(
            [risky(0), risky(5), bought(5), risky(10), risky(15), risky(20)],
            [("risky_session", 3, 0, 10, 3)],
            id="one alert a session, and others are no part of it",
        ),
        pytest.param(
            [risky(0), risky(3), risky(6), risky(11.5), risky(14), risky(16)],
            [("risky_session", 2, 0, 6, 3), ("risky_session", 5, 11.5, 16, 3)],
            id="the next session",
        ),
        pytest.param(
            [risky(0), risky(3), risky(6), risky(15), risky(18), risky(10.5), risky(19)],
            [("risky_session", 2, 0, 6, 3)],
            id="what joins a session that has its alert makes none",
        ),
        pytest.param(
            [risky(0), risky(9), risky(4.5)], [("risky_session", 2, 0, 9, 3)], id="two sessions become one by the third"
        ),
        pytest.param(
            [risky(0), risky(3), risky(11), risky(14), risky(7)],
            [("risky_session", 4, 0, 14, 5)],
            id="two sessions of two become one of five",
        ),
        pytest.param(
            [risky(0), risky(4), risky(8), risky(20), risky(24), risky(28), risky(12.5), risky(16)],
            [("risky_session", 2, 0, 8, 3), ("risky_session", 5, 20, 28, 3)],
            id="sessions with an alert each become one",
        ),
        pytest.param(
            [risky(0), risky(4), risky(8), risky(5)],
            [("risky_session", 2, 0, 8, 3)],
            id="what comes into a session that has its alert makes none",
        ),
        pytest.param([risky(0)] * 3, [("risky_session", 2, 0, 0, 3)], id="all at one moment"),
        pytest.param([bought(100), risky(39.9), risky(39.9), risky(39.9)], [], id="later than the grace is left out"),
        pytest.param(
            [bought(100), risky(41), risky(41), risky(41)], [("risky_session", 3, 41, 41, 3)], id="within the grace"
        ),
    ],
)
def test_a_rule_becomes_true_once(purchases: list[Row], alerts: list[tuple[Any, ...]]) -> None:
    limits = Limits(window_amount=10**9) if any(each["risk_score"] for each in purchases) else Limits()
    assert raised(*purchases, limits=limits) == alerts


def test_what_is_later_than_the_grace_raises_none_though_all_windows_are_open() -> None:
    slow = bought(0) | {"partition": 1}
    late = [risky(39), risky(39), risky(39), bought(39, "9999.00")]
    assert raised(slow, bought(100), *late, limits=Limits()) == []
    assert len(raised(slow, bought(98), *late, limits=Limits())) == 2


def test_what_comes_for_a_closed_window_raises_none_though_its_partition_is_no_further() -> None:
    silent = {"partition": 1, "heard": 100}

    def late(minute: float) -> list[tuple[str, int, float, float, int]]:
        """Return what a partition raises that was silent while the other one came to minute 100."""
        first = bought(0) | {"partition": 1, "heard": 0}
        then = [bought(minute, "9999.00", 71) | silent] * 3
        return raised(first, bought(100) | {"heard": 100}, *then, limits=Limits())

    assert [rule for rule, *_ in late(39.9)] == []
    assert [rule for rule, *_ in late(40)] == ["velocity"]
    assert [rule for rule, *_ in late(41)] == ["velocity", "risky_session"]


def test_what_landed_before_landings_were_numbered_raises_none() -> None:
    rows = landed([bought(0, "9999.00")])
    assert rules.alerts(Limits(), rows).num_rows == 1
    unnumbered = rows.set_column(rows.column_names.index("landing"), "landing", pa.nulls(1, pa.int64()))
    assert rules.alerts(Limits(), unnumbered).num_rows == 0


def test_an_id_is_made_of_rule_customer_and_purchase_alone() -> None:
    names = {
        rules.alert_id(rules.Rule.VELOCITY, "a:b", "c"),
        rules.alert_id(rules.Rule.VELOCITY, "a", "b:c"),
        rules.alert_id(rules.Rule.RISKY_SESSION, "a", "b:c"),
    }
    assert len(names) == 3
    assert {len(name) for name in names} == {rules.ID_LENGTH}


def test_what_is_too_late_is_not_looked_back_for() -> None:
    rows = [bought(600), risky(100), risky(541), bought(30), bought(601)]
    spans = rules.decisive(Limits(), landed(rows))
    assert [(begin - NOON) / MINUTE for begin in spans.begins.tolist()] == [526, 600]
    assert rules.decisive(Limits(), landed([])).begins.tolist() == []


def in_batches(purchases: pa.Table, cuts: frozenset[int], ahead: frozenset[int]) -> Iterator[pa.Table]:
    """Yield the alerts of each batch of whole landings, by what is near in the table, which may be ahead of it."""
    last = pc.max(purchases.column("landing")).as_py()
    begins = sorted({0, *(each for each in cuts if each <= last)})
    for number, (begin, end) in enumerate(zip(begins, [*begins[1:], last + 1], strict=True)):
        there = purchases.filter(pc.field("landing") < (last + 1 if number in ahead else end))
        batch = there.filter((pc.field("landing") >= begin) & (pc.field("landing") < end))
        spans = rules.decisive(LOW, batch)
        times = np.array(there.column("occurred_at").cast(pa.int64()))
        near = there.filter(pa.array(spans.meet(times, times)))
        near = near.filter(pc.is_in(near.column("customer_id"), value_set=pc.unique(batch.column("customer_id"))))
        found = rules.alerts(LOW, near)
        yield found.filter(pc.is_in(found.column("purchase_id"), value_set=batch.column("purchase_id")))


def one(partition: int, behind: int = 0) -> list[Row]:
    return [
        {
            "customer_id": "C-1",
            "partition": partition,
            "behind": behind * MINUTE,
            "amount": Decimal("5.01"),
            "risk_score": 71,
        }
    ]


@given(
    LANDINGS, st.frozensets(st.integers(1, 11)), st.frozensets(st.integers(0, 11)), st.randoms(use_true_random=False)
)
@example([(0, one(0)), (9, one(0)), (0, one(1, behind=4))], frozenset({1, 2}), frozenset(), None)
def test_however_batches_are_cut_alerts_are_those_of_the_rules(
    landings: list[tuple[int, list[Row]]], cuts: frozenset[int], ahead: frozenset[int], chance: Any
) -> None:
    purchases = stamped(landings)
    right = expected(purchases.to_pylist(), LOW_RULES)
    by_batches = pa.concat_tables(in_batches(purchases, cuts, ahead))
    assert as_alerts(by_batches.to_pylist()) == right
    order = list(range(purchases.num_rows))
    if chance is not None:
        chance.shuffle(order)
    assert as_alerts(rules.alerts(LOW, purchases.take(order)).to_pylist()) == right
    ids = by_batches.column("alert_id").to_pylist()
    assert len(set(ids)) == len(ids)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 60))), st.lists(st.integers(-50, 600)), st.integers(0, 9))
def test_spans_are_what_some_cover(covered: list[tuple[int, int]], firsts: list[int], length: int) -> None:
    begins = np.array([begin for begin, _ in covered], np.int64)
    ends = np.array([begin + more for begin, more in covered], np.int64)
    spans = Spans.of(begins, ends)
    assert all(spans.begins[1:] > spans.ends[:-1])
    found = spans.meet(np.array(firsts, np.int64), np.array(firsts, np.int64) + length).tolist()
    assert found == [
        any(first <= begin + more and first + length >= begin for begin, more in covered) for first in firsts
    ]


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 60))), st.integers(1, 5))
def test_fewer_spans_cover_the_same_and_close_the_shortest_gaps(covered: list[tuple[int, int]], count: int) -> None:
    spans = Spans.of(
        np.array([begin for begin, _ in covered], np.int64),
        np.array([begin + more for begin, more in covered], np.int64),
    )
    fewer = spans.at_most(count)
    assert len(fewer.begins) == min(count, len(spans.begins))
    assert fewer.meet(spans.begins, spans.begins).all()
    assert fewer.meet(spans.ends, spans.ends).all()
    gaps = (spans.begins[1:] - spans.ends[:-1]).tolist()
    left = (fewer.begins[1:] - fewer.ends[:-1]).tolist()
    assert sorted(left, reverse=True) == sorted(gaps, reverse=True)[: len(left)]
