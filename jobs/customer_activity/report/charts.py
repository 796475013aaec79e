"""Charts as geometry: where lines, ticks and their labels are. The page draws them; nothing here is markup.

A scale is logarithmic from one on, and linear near zero: a backlog is a thousand times a steady load, and both are to
be seen. Shares have a linear one, up to one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from customer_activity.report.figures import Point, Series

WIDTH, HEIGHT = 920, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 26
MOST_TICKS = 6
OF_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
SPANS = (60, 300, 900, 3_600, 3 * 3_600, 6 * 3_600, 12 * 3_600, 86_400, 7 * 86_400)  # seconds between two ticks
MOST_SPANS = 8
GAP_POINTS = 4  # a line is broken where so many points in a row are missing


class Tick(NamedTuple):
    """A tick of an axis: where it is, and what is written there."""

    at: float
    label: str


class Dot(NamedTuple):
    """A point, with what it says when it is pointed at."""

    x: float
    y: float
    says: str


class Line(NamedTuple):
    """A series: its name, its path as SVG has it, and its points."""

    name: str
    path: str
    dots: Sequence[Dot]


class Chart(NamedTuple):
    """A chart of some series over one span."""

    label: str
    lines: Sequence[Line]
    across: Sequence[Tick]
    up: Sequence[Tick]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    bottom: int = HEIGHT - BOTTOM


def over_time(
    label: str,
    series: Sequence[Series],
    begin: int,
    end: int,
    said: Callable[[float], str],
    *,
    spacing: float | None = None,
    are_shares: bool = False,
) -> Chart:
    """Lay series out over a span.

    Args:
        label: of the chart.
        series: what it shows.
        begin: of the span, milliseconds.
        end: of the span.
        said: writes a value.
        spacing: milliseconds from one point to the next where none is missing; without it the least that there are.
        are_shares: whether values are shares of one.
    """
    most = max((point.value for each in series for point in each.points), default=0.0)
    ticks = OF_SHARES if are_shares else _ticks(next_step(most))
    scale: Callable[[float], float] = float if are_shares else math.log1p

    def x(at: float) -> float:
        return round(LEFT + (at - begin) / max(end - begin, 1) * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:  # below nothing, as where a producer's clock is ahead, there is no axis
        return round(HEIGHT - BOTTOM - scale(max(value, 0.0)) / scale(ticks[-1]) * (HEIGHT - TOP - BOTTOM), 1)

    gap = GAP_POINTS * (spacing or _closest([point.at for each in series for point in each.points], end - begin))
    lines = []
    for each in series:
        dots = [Dot(x(at), y(value), f"{moment(at)}: {said(value)}") for at, value in each.points]
        lines.append(Line(each.name, _path(each.points, dots, gap), dots))
    return Chart(label, lines, _across(begin, end, x), [Tick(y(step), said(step)) for step in ticks])


def next_step(most: float) -> float:
    """Return the end of an axis that shows a value: the next of 1, 2, 5, 10, 20 …; 1 at least."""
    if most <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= most)


def moment(at: float) -> str:
    """Say a moment, UTC."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%d %b %H:%M:%S")


def _ticks(top: float) -> Sequence[float]:
    """Return what is marked on an axis: nothing, and of 1, 2, 5, 10 … as many as there is room for; and its end."""
    steps = [factor * 10.0**power for power in range(12) for factor in (1, 2, 5) if factor * 10.0**power < top]
    stride = max(1, -(-len(steps) // (MOST_TICKS - 2)))
    return [0.0, *steps[::stride], top]


def _across(begin: int, end: int, x: Callable[[float], float]) -> list[Tick]:
    """Return moments at whole minutes, hours or days."""
    seconds = max(end - begin, 1) / 1000
    span = 1000 * next((span for span in SPANS if seconds / span <= MOST_SPANS), SPANS[-1])
    form = "%d %b" if span >= 1000 * 86_400 else "%H:%M"
    return [
        Tick(x(at), datetime.fromtimestamp(at / 1000, UTC).strftime(form))
        for at in range(-(-begin // span) * span, end + 1, span)
    ]


def _closest(moments: Sequence[int], otherwise: float) -> float:
    """Return the least time between two moments."""
    times = sorted(set(moments))
    return min((after - before for before, after in pairwise(times)), default=otherwise)


def _path(points: Sequence[Point], dots: Sequence[Dot], gap: float) -> str:
    """Return the line through points, broken where there is nothing for long."""
    words = []
    for number, dot in enumerate(dots):
        is_apart = number == 0 or points[number].at - points[number - 1].at > gap
        words.append(f"{'M' if is_apart else 'L'}{dot.x} {dot.y}")
    return "".join(words)
