"""What must be reached and what is aimed at, and how a results file stands against it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import getitem
from typing import Any, NamedTuple

# Every scenario in which our driver runs: what it holds in the worst of them is what a machine must have.
OURS = (
    "freshness",
    "freshness_purchases_only",
    "rate",
    "backlog",
    "growth",
    "cold_start",
    "catch_up",
    "steady",
    "judged",
)
PASSED, AIMED, MISSED, UNKNOWN = "must", "aim", "missed", "not measured"

Scenarios = Mapping[str, Any]


class Target(NamedTuple):
    """One figure or several that belong together.

    Attributes:
        name: what people call it.
        unit: behind each value.
        values: the figures in a results file; None where one was not reached.
        must: bounds, one a value.
        aim: bounds beyond those.
        has_held: a further condition that the figures cannot say.
        is_at_least: whether the figures can only be bounded from below, as a run ended before they were reached.
    """

    name: str
    unit: str
    values: Callable[[Scenarios], list[float | None]]
    must: tuple[float, ...]
    aim: tuple[float, ...]
    has_held: Callable[[Scenarios], bool] = lambda _: True
    is_at_least: Callable[[Scenarios], bool] = lambda _: False

    @property
    def is_higher_better(self) -> bool:
        """Whether bounds are lower bounds: what is aimed at lies above what must be."""
        return self.aim > self.must


class Verdict(NamedTuple):
    """How a target stands: its figures, which of the bounds they reach, and whether there may be more to them."""

    target: Target
    values: list[float | None]
    reached: str
    is_at_least: bool = False


def is_tutorial_late(scenarios: Scenarios) -> bool:
    """Whether the tutorial's p50 was not reached while it ran."""
    return scenarios["tutorial"]["p50_seconds"]["median"] is None


def tutorial_ratio(scenarios: Scenarios) -> float | None:
    """Return how many times fresher ours is than the tutorial's pipeline (p50).

    Where the tutorial's p50 was not reached, what its purchases had waited at least stands in.
    """
    tutorial, ours = scenarios["tutorial"], scenarios["freshness"]["p50_seconds"]["median"]
    theirs = tutorial["p50_seconds"]["median"] or tutorial["runs"][0]["p50_at_least_seconds"]
    return round(theirs / ours, 1) if ours and theirs else None


def driver_memory(scenarios: Scenarios) -> float | None:
    """Return the most that the driver's JVM held resident in any run of ours, in gigabytes."""
    runs = [
        run for name in OURS for run in scenarios[name].get("runs") or scenarios[name].get("sizes") or [scenarios[name]]
    ]
    peaks = [run.get("jvm_megabytes") for run in runs]
    known = [peak for peak in peaks if peak is not None]
    return round(max(known) / 1000, 2) if known else None


def is_level(steady: Mapping[str, Any]) -> bool:
    """Whether a steady run counts and did not become slower."""
    return steady["status"] == "ok" and steady["p95_trend"] is not None and not steady["p95_trend"]["is_upward"]


def percentiles(name: str) -> Callable[[Scenarios], list[float | None]]:
    """Make a reader of p50 and p95 of a scenario."""
    return lambda scenarios: [scenarios[name][figure]["median"] for figure in ("p50_seconds", "p95_seconds")]


def at(*path: str) -> Callable[[Scenarios], list[float | None]]:
    """Make a reader of one figure, by the way to it."""

    def figure(scenarios: Scenarios) -> list[float | None]:
        return [reduce(getitem, path, scenarios)]  # type: ignore[list-item]

    return figure


TARGETS = (
    Target("freshness at 500/s + 20/s, p50 / p95", "s", percentiles("freshness"), (3.0, 5.0), (1.5, 2.5)),
    Target("the same without updates", "s", percentiles("freshness_purchases_only"), (2.2, 3.2), (1.0, 1.8)),
    Target(
        "fresher than the tutorial, p50",
        "x",
        lambda s: [tutorial_ratio(s)],
        (12,),
        (30,),
        is_at_least=is_tutorial_late,
    ),
    Target("highest rate held, p95 < 10 s", "/s", at("rate", "highest_rate_held"), (5_000,), (15_000,)),
    Target("backlog against Kafka Streams", "x", at("backlog", "ratio_to_streams"), (1.2,), (2.0,)),
    Target(
        "batch of 500, largest against smallest table", "x", at("growth", "ratio_largest_to_smallest"), (2.0,), (1.2,)
    ),
    Target("cold start to first record", "s", at("cold_start", "first_record_seconds", "median"), (15.0,), (8.0,)),
    Target("catch-up after kill -9", "s", at("catch_up", "fresh_again_seconds", "median"), (25.0,), (12.0,)),
    Target(
        "30 minutes, p99, no upward trend",
        "s",
        at("steady", "freshness", "p99_seconds"),
        (6.0,),
        (4.0,),
        has_held=lambda s: is_level(s["steady"]),
    ),
    Target("p50 beside quality, against without", "x", at("judged", "p50_ratio"), (1.3,), (1.1,)),
    Target("driver memory, resident", "GB", lambda s: [driver_memory(s)], (3.0,), (2.0,)),
)


def judge(target: Target, scenarios: Scenarios) -> Verdict:
    """Hold one target's figures against its bounds; a scenario that failed or is missing was not measured."""
    try:
        values = target.values(scenarios)
        has_held, is_at_least = target.has_held(scenarios), target.is_at_least(scenarios)
    except (KeyError, IndexError):
        return Verdict(target, [], UNKNOWN)
    if not has_held or not _reach(target, values, target.must):
        return Verdict(target, values, MISSED, is_at_least)
    return Verdict(target, values, AIMED if _reach(target, values, target.aim) else PASSED, is_at_least)


def _reach(target: Target, values: list[float | None], bounds: tuple[float, ...]) -> bool:
    return all(
        value is not None and (value >= bound if target.is_higher_better else value <= bound)
        for value, bound in zip(values, bounds, strict=True)
    )


def judge_all(scenarios: Scenarios) -> list[Verdict]:
    """Hold every target against a results file's scenarios."""
    return [judge(target, scenarios) for target in TARGETS]


def row(verdict: Verdict) -> tuple[str, str, str, str, str]:
    """Return a verdict as text: figure, measured, must, aim, reached."""
    target = verdict.target
    sign = "≥" if target.is_higher_better else "≤"

    def bounds(values: tuple[float, ...]) -> str:
        return f"{sign} {' / '.join(f'{value:,g}' for value in values)} {target.unit}"

    measured = " / ".join("not reached" if value is None else f"{value:,g} {target.unit}" for value in verdict.values)
    measured = f"{'≥ ' if verdict.is_at_least else ''}{measured}" if measured else "-"
    return target.name, measured, bounds(target.must), bounds(target.aim), verdict.reached
