"""Charts as geometry, and how the report says figures."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from customer_activity.report import charts, page
from customer_activity.report.figures import Point, Series

BEGIN, END = 1_700_000_000_000, 1_700_000_360_000  # six minutes
MOMENTS = st.integers(BEGIN, END)


def drawn(*points: tuple[int, float], are_shares: bool = False) -> charts.Chart:
    series = Series("one", [Point(*point) for point in points])
    return charts.over_time("a chart", [series], BEGIN, END, page.seconds, are_shares=are_shares)


@given(st.lists(st.tuples(MOMENTS, st.floats(-1e9, 1e9)), max_size=30, unique_by=lambda point: point[0]))
def test_everything_is_within_the_axes(points: list[tuple[int, float]]) -> None:
    chart = drawn(*sorted(points))
    for dot in chart.lines[0].dots:
        assert chart.left <= dot.x <= chart.right
        assert 0 <= dot.y <= chart.bottom
    assert len(chart.up) <= charts.MOST_TICKS + 1
    assert all(chart.left <= tick.at <= chart.right for tick in chart.across)
    assert [tick.at for tick in chart.up] == sorted((tick.at for tick in chart.up), reverse=True)


def test_a_greater_value_is_higher_and_a_later_one_is_further_right() -> None:
    low, high = drawn((BEGIN, 1.0), (END, 100.0)).lines[0].dots
    assert low.x < high.x
    assert low.y > high.y


def test_a_line_is_broken_where_nothing_was_for_long() -> None:
    minute = 60_000
    chart = drawn((BEGIN, 1.0), (BEGIN + minute, 2.0), (END, 3.0))
    assert re.findall("[ML]", chart.lines[0].path) == ["M", "L", "M"]


def test_points_that_are_far_apart_are_not_joined_where_others_are_missing_between_them() -> None:
    hour = 3_600_000
    points = Series("a", [Point(BEGIN, 1.0), Point(BEGIN + 6 * hour, 2.0), Point(BEGIN + 7 * hour, 3.0)])
    paths = [
        charts.over_time("a chart", [points], BEGIN, BEGIN + 24 * hour, page.seconds, spacing=spacing).lines[0].path
        for spacing in (0.5 * hour, 6 * hour)
    ]
    assert [re.findall("[ML]", path) for path in paths] == [["M", "M", "L"], ["M", "L", "L"]]


def test_shares_have_a_linear_scale_up_to_one() -> None:
    half, whole = drawn((BEGIN, 0.5), (END, 1.0), are_shares=True).lines[0].dots
    bottom = charts.HEIGHT - charts.BOTTOM
    assert bottom - half.y == pytest.approx((bottom - whole.y) / 2, abs=0.1)


def test_without_a_value_there_is_an_empty_chart() -> None:
    chart = drawn()
    assert chart.lines[0].path == ""
    assert [tick.label for tick in chart.up] == ["0 s", "1 s"]


@pytest.mark.parametrize(
    ("most", "expected"), [(0, 1), (1, 1), (1.1, 2), (3, 5), (5.5, 10), (10, 10), (16_480, 20_000)]
)
def test_an_axis_ends_at_the_next_step(most: float, expected: float) -> None:
    assert charts.next_step(most) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param(page.in_bytes(999), "999 B", id="bytes"),
        pytest.param(page.in_bytes(1_250_000), "1.2 MB", id="megabytes"),
        pytest.param(page.in_bytes(-5e15), "-5,000.0 TB", id="more than the last unit"),
        pytest.param(page.signed(9_999), "+9,999", id="small growth"),
        pytest.param(page.signed(-4_907_700), "-4,908 k", id="thousands"),
        pytest.param(page.signed(4.2e10), "+42,000 M", id="millions"),
        pytest.param(page.whole(0.25), "0.2", id="less than one"),
        pytest.param(page.whole(1_234.6), "1,235", id="in full"),
        pytest.param(page.seconds(1.25), "1.2 s", id="seconds"),
    ],
)
def test_figures_are_said_in_the_unit_that_fits(said: str, expected: str) -> None:
    assert said == expected
