"""Benchmarks: freshness from what was sent and published, targets, and ratios against a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from benchmarks import load, page, ratios, results, targets
from benchmarks.freshness import (
    Purchases,
    ViewRecords,
    counted_at,
    covered_at,
    ordinals,
    per_minute,
    quantiles,
    recovered_at,
    seconds_until_covered,
    summary,
    trend,
    within,
)
from benchmarks.reading import Expected
from support.worlds import ODD, PLAIN, PURCHASE_IDS, TWINS

NEVER = float("nan")


def purchases(*rows: tuple[int, int]) -> Purchases:
    """Purchases from (customer, sent_ms)."""
    return Purchases(*(np.array(column, dtype=np.int64) for column in _columns(rows, 2)))


def view(*rows: tuple[int, int, int]) -> ViewRecords:
    """View records from (customer, purchase_count, published_ms)."""
    return ViewRecords(*(np.array(column, dtype=np.int64) for column in _columns(rows, 3)))


def _columns(rows: Sequence[tuple[int, ...]], width: int) -> list[list[int]]:
    return [[row[column] for row in rows] for column in range(width)]


@pytest.mark.parametrize(
    ("sent", "published", "expected"),
    [
        pytest.param([(1, 100)], [(1, 1, 150)], [150], id="the record that counts it"),
        pytest.param([(1, 100)], [(1, 0, 50), (1, 1, 150), (1, 1, 200)], [150], id="the first of several"),
        pytest.param([(1, 100), (1, 110)], [(1, 2, 150)], [150, 150], id="one record covers two"),
        pytest.param([(1, 110), (1, 100)], [(1, 1, 150), (1, 2, 160)], [160, 150], id="by time, not by place"),
        pytest.param([(1, 100), (2, 100)], [(2, 1, 150), (1, 1, 160)], [160, 150], id="each customer has its own"),
        pytest.param([(1, 100), (1, 110)], [(1, 1, 150)], [150, NEVER], id="the second is not counted yet"),
        pytest.param([(1, 100)], [(2, 5, 150)], [NEVER], id="another customer's count is none of it"),
        pytest.param([(3, 100)], [(1, 1, 150), (2, 9, 160)], [NEVER], id="no record of the last customer"),
        pytest.param(
            [(1, 100), (1, 110), (1, 120)],
            [(1, 2, 150), (1, 1, 160), (1, 3, 170)],
            [150, 150, 170],
            id="a count that falls back",
        ),
        pytest.param([], [(1, 1, 150)], [], id="nothing sent"),
        pytest.param([(1, 100)], [], [NEVER], id="nothing published"),
        pytest.param([(0, 100), (0, 100)], [(0, 1, 150), (0, 2, 160)], [150, 160], id="two in one millisecond"),
    ],
)
def test_a_purchase_is_covered_by_the_first_record_that_counts_it(
    sent: list[tuple[int, int]], published: list[tuple[int, int, int]], expected: list[float]
) -> None:
    np.testing.assert_array_equal(covered_at(purchases(*sent), view(*published)), expected)


def test_covering_equals_a_search_record_by_record() -> None:
    random = np.random.default_rng(7)
    sent = Purchases(random.integers(20, size=500), random.integers(10_000, size=500))
    records = ViewRecords(random.integers(20, size=300), random.integers(40, size=300), np.arange(300) * 50)
    number = ordinals(sent)
    expected = [
        next(
            (
                float(at)
                for customer, count, at in zip(*records, strict=True)
                if customer == sent.customer[place] and count >= number[place]
            ),
            NEVER,
        )
        for place in range(500)
    ]
    np.testing.assert_array_equal(covered_at(sent, records), expected)


def test_ordinals_number_each_customers_purchases_by_time() -> None:
    assert ordinals(purchases((5, 30), (2, 10), (5, 20), (2, 5), (5, 40))).tolist() == [2, 2, 1, 1, 3]
    assert ordinals(purchases()).tolist() == []


def test_a_row_is_complete_when_its_last_purchase_is_counted() -> None:
    records = view((0, 0, 10), (1, 1, 20), (0, 2, 30), (1, 3, 40))
    counts = np.array([2, 3])
    assert counted_at(np.array([0, 1]), counts, records).tolist() == [30, 40]


@pytest.mark.parametrize(
    ("uncovered", "is_reached"),
    [pytest.param(0, True, id="all"), pytest.param(1, True, id="one in a thousand"), pytest.param(2, False, id="two")],
)
def test_percentiles_exist_only_when_nearly_all_is_covered(uncovered: int, is_reached: bool) -> None:
    seconds = np.concatenate([np.full(1_000 - uncovered, 2.5), np.full(uncovered, np.inf)])
    figures = summary(seconds)
    assert (figures["purchases"], figures["uncovered"]) == (1_000, uncovered)
    assert [figures[name] for name in ("p50_seconds", "p95_seconds", "p99_seconds")] == (
        [2.5] * 3 if is_reached else [None] * 3
    )
    assert figures["max_seconds"] == (2.5 if uncovered == 0 else None)


def test_no_purchases_have_no_percentiles() -> None:
    assert summary(np.array([])) == {
        "purchases": 0,
        "uncovered": 0,
        "p50_seconds": None,
        "p95_seconds": None,
        "p99_seconds": None,
        "max_seconds": None,
    }


def test_quantiles_end_where_purchases_were_never_covered() -> None:
    values = quantiles(np.array([1.0, 2.0, 3.0, np.inf]))
    assert values[0] == 1.0
    assert values[50] == 3.0
    assert values[100] is None
    assert quantiles(np.array([])) == []


def test_freshness_counts_from_the_purchase_and_never_is_infinite() -> None:
    seconds = seconds_until_covered(purchases((1, 1_000), (1, 2_000)), view((1, 1, 3_500)))
    assert seconds.tolist() == [2.5, np.inf]


def test_a_window_excludes_its_end() -> None:
    assert within(purchases((1, 10), (1, 20), (1, 30)), 10, 30).tolist() == [True, True, False]


def test_minutes_are_counted_from_the_beginning_and_only_whole_ones() -> None:
    sent = purchases((1, 60_000), (1, 119_999), (1, 120_000), (1, 185_000))
    rows = per_minute(sent, np.array([1.0, 3.0, 5.0, 7.0]), 60_000, 190_000)
    assert [(row["minute"], row["purchases"], row["max_seconds"]) for row in rows] == [(0, 2, 3.0), (1, 1, 5.0)]


@pytest.mark.parametrize(
    ("values", "is_upward"),
    [
        pytest.param([3.0, 3.1, 2.9, 3.0, 3.1, 2.9], False, id="noise"),
        pytest.param([3.0, 3.5, 4.1, 4.4, 5.1, 5.5], True, id="rising"),
        pytest.param([5.5, 5.1, 4.4, 4.1, 3.5, 3.0], False, id="falling"),
        pytest.param([3.0, 3.001, 3.002, 3.003], False, id="rising by nothing that matters"),
        pytest.param([3.0, 9.0], False, id="too short to tell"),
    ],
)
def test_a_trend_is_a_rise_beyond_chance_that_matters(values: list[float], is_upward: bool) -> None:
    assert trend(values)["is_upward"] is is_upward


def test_a_trend_is_given_per_hour() -> None:
    assert trend([1.0, 2.0, 3.0, 4.0])["per_hour"] == pytest.approx(60.0)


@pytest.mark.parametrize(
    ("covered", "seconds", "expected"),
    [
        pytest.param([900, 20_000, 26_000], [1.0, 2.0, 2.0], 20_000, id="fresh and staying so"),
        pytest.param([20_000, 22_000, 28_000], [9.0, 2.0, 2.0], 22_000, id="late, then fresh"),
        pytest.param([20_000, 22_000, 24_000, 30_000], [2.0, 9.0, 2.0, 2.0], 24_000, id="a late one soon after"),
        pytest.param(
            [20_000, 20_000, 26_000, 31_000], [2.0, 9.0, 2.0, 2.0], 26_000, id="a late one at the same moment"
        ),
        pytest.param([20_000, 22_000], [2.0, 2.0], None, id="not seen for long enough"),
        pytest.param([20_000, NEVER], [9.0, NEVER], None, id="never"),
        pytest.param([900], [1.0], None, id="nothing after the kill"),
    ],
)
def test_the_view_is_fresh_again_when_it_stays_fresh(
    covered: list[float], seconds: list[float], expected: float | None
) -> None:
    found = recovered_at(np.array(covered), np.array(seconds), 1_000, limit=5.0, hold_ms=5_000)
    assert found == expected


@pytest.mark.parametrize("number", [0, 7, 12_345_678])
def test_a_customers_number_comes_back_from_its_id(number: int) -> None:
    assert load.customer_number(load.customer_id(number)) == number


@pytest.mark.parametrize("label", ["preload", "drill1", "r20000"])
def test_the_loads_records_are_told_from_others(label: str) -> None:
    assert load.is_purchase(b"p-%b-17" % label.encode())
    assert load.is_customer(load.customer_id(17))
    assert not [name for name in PURCHASE_IDS if load.is_purchase(name.encode())]
    assert not [name for name in (*PLAIN, *TWINS, *ODD, "C-0000001\uff11") if load.is_customer(name.encode())]


@pytest.mark.parametrize(
    ("rows", "is_said"),
    [
        pytest.param([(0, 2, 70), (1, 0, 80)], True, id="exactly"),
        pytest.param([(0, 1, 70), (1, 0, 80), (0, 2, 70)], True, id="the last record of a customer counts"),
        pytest.param([(0, 2, 70), (1, 0, 80), (0, 1, 70)], False, id="and only the last"),
        pytest.param([(0, 2, 70)], False, id="a customer without purchases needs a row too"),
        pytest.param([(0, 2, 69), (1, 0, 80)], False, id="an older profile"),
        pytest.param([], False, id="nothing"),
    ],
)
def test_what_is_expected_is_said_by_every_customers_last_row(rows: list[tuple[int, int, int]], is_said: bool) -> None:
    expected = Expected(np.array([2, 0]), np.array([70, 80]))
    assert expected.is_said_by(*(np.array(column, dtype=np.int64) for column in _columns(rows, 3))) is is_said


def test_only_what_lies_between_the_markers_is_replaced() -> None:
    found = page.replaced(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n", "new")
    assert found == f"before\n{page.BEGIN}\nnew\n{page.END}\nafter\n"
    with pytest.raises(ValueError, match="bench:begin"):
        page.replaced("no markers", "new")


def run(status: str = "ok", **figures: float | None) -> dict[str, Any]:
    return {"status": status, "freshness": figures}


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        pytest.param(
            [run(p50=1.0), run(p50=3.0), run(p50=2.0)], {"median": 2.0, "low": 1.0, "high": 3.0, "runs": 3}, id="three"
        ),
        pytest.param(
            [run(p50=1.0), run(p50=None), run(p50=2.0)],
            {"median": 2.0, "low": 1.0, "high": None, "runs": 3},
            id="one not reached is the worst",
        ),
        pytest.param(
            [run(p50=None), run(p50=None), run(p50=2.0)],
            {"median": None, "low": 2.0, "high": None, "runs": 3},
            id="most not reached",
        ),
        pytest.param(
            [run(p50=1.0), run("invalid", p50=0.1)],
            {"median": 1.0, "low": 1.0, "high": 1.0, "runs": 1},
            id="a run that was not right does not count",
        ),
        pytest.param([run("failed")], {"median": None, "low": None, "high": None, "runs": 0}, id="none"),
    ],
)
def test_runs_become_median_and_spread(runs: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    assert results.figure(runs, "freshness", "p50") == expected


def median(value: float | None) -> dict[str, float | None]:
    return {"median": value}


@pytest.mark.parametrize(
    ("p50", "p95", "reached"),
    [
        pytest.param(1.4, 2.5, targets.AIMED, id="both aims"),
        pytest.param(1.4, 2.6, targets.PASSED, id="one aim only"),
        pytest.param(3.0, 5.1, targets.MISSED, id="one bound missed"),
        pytest.param(1.4, None, targets.MISSED, id="not reached"),
    ],
)
def test_a_target_is_reached_when_every_figure_is_within(p50: float, p95: float | None, reached: str) -> None:
    scenarios = {"freshness": {"p50_seconds": median(p50), "p95_seconds": median(p95)}}
    assert targets.judge(targets.TARGETS[0], scenarios).reached == reached


def test_what_was_not_run_is_not_measured() -> None:
    assert {verdict.reached for verdict in targets.judge_all({})} == {targets.UNKNOWN}
    failed = {"freshness": {"status": "failed", "error": "PipelineEnded"}}
    assert targets.judge(targets.TARGETS[0], failed).reached == targets.UNKNOWN


@pytest.mark.parametrize(
    ("p99", "is_upward", "reached"),
    [(3.9, False, targets.AIMED), (5.0, False, targets.PASSED), (3.9, True, targets.MISSED)],
)
def test_steady_needs_a_low_p99_and_no_upward_trend(p99: float, is_upward: bool, reached: str) -> None:
    steady = {"status": "ok", "freshness": {"p99_seconds": p99}, "p95_trend": {"is_upward": is_upward}}
    (target,) = [target for target in targets.TARGETS if "30 minutes" in target.name]
    assert targets.judge(target, {"steady": steady}).reached == reached
    assert targets.judge(target, {"steady": {**steady, "status": "invalid"}}).reached == targets.MISSED


@pytest.mark.parametrize(
    ("p50", "at_least", "expected", "shown"),
    [
        pytest.param(40.0, 40.0, 20.0, "20 x", id="reached"),
        pytest.param(None, 50.0, 25.0, "≥ 25 x", id="what it waited at least"),
    ],
)
def test_the_tutorial_is_compared_even_where_it_lost_purchases(
    p50: float | None, at_least: float, expected: float, shown: str
) -> None:
    scenarios = {
        "freshness": {"p50_seconds": median(2.0)},
        "tutorial": {"p50_seconds": median(p50), "runs": [{"p50_at_least_seconds": at_least}]},
    }
    assert targets.tutorial_ratio(scenarios) == expected
    (target,) = [target for target in targets.TARGETS if "tutorial" in target.name]
    assert targets.row(targets.judge(target, scenarios))[1] == shown


MORE, LESS = "backlog: purchases/s, ours to Kafka Streams", "freshness: p95 to p50"  # tolerances 20 % and 25 %


@pytest.mark.parametrize(
    ("name", "now", "before", "is_worse"),
    [
        pytest.param(MORE, 1.7, 2.0, False, id="less, within tolerance"),
        pytest.param(MORE, 1.5, 2.0, True, id="less, beyond tolerance"),
        pytest.param(MORE, 3.0, 2.0, False, id="more is better"),
        pytest.param(LESS, 1.8, 1.5, False, id="more, within tolerance"),
        pytest.param(LESS, 2.0, 1.5, True, id="more, beyond tolerance"),
        pytest.param(LESS, 1.0, 1.5, False, id="less is better"),
        pytest.param(LESS, None, 1.5, True, id="a figure that is gone"),
        pytest.param(LESS, 9.0, None, False, id="a figure that is new"),
    ],
)
def test_a_ratio_is_worse_beyond_its_tolerance(
    name: str, now: float | None, before: float | None, is_worse: bool
) -> None:
    (found,) = [each for each in ratios.compare({name: now}, {name: before}) if each.name == name]
    assert found == ratios.Comparison(name, now, before, is_worse)


def test_ratios_come_from_one_results_file() -> None:
    scenarios = {
        "freshness": {
            "p50_seconds": median(2.0),
            "p95_seconds": median(3.0),
            "gold_p50_seconds": median(4.0),
        },
        "freshness_purchases_only": {"p50_seconds": median(1.0)},
        "backlog": {
            "ratio_to_streams": 1.5,
            "seconds": median(60.0),
            "cpu_seconds_per_million": median(50.0),
            "streams_cpu_seconds_per_million": median(100.0),
            "nightly": {"status": "ok", "seconds": 30.0},
        },
        "growth": {"status": "failed", "error": "TimeoutError"},
    }
    known = {name: value for name, value in ratios.measured(scenarios).items() if value is not None}
    assert known == {
        "backlog: purchases/s, ours to Kafka Streams": 1.5,
        "backlog: processor seconds, ours to Kafka Streams": 0.5,
        "backlog: seconds, ours to the nightly batch": 2.0,
        "freshness: p95 to p50": 1.5,
        "freshness p50: with profile updates to without": 2.0,
        "freshness p50: readable in gold to published": 2.0,
    }
