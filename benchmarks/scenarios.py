"""The scenarios, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.backlog import backlog
from benchmarks.growth import growth
from benchmarks.judged import judged
from benchmarks.pipelines import OURS, STREAMS, TUTORIAL, Command
from benchmarks.rate import rate
from benchmarks.recovery import catch_up, cold_start
from benchmarks.results import figure, status
from benchmarks.steady import steady
from benchmarks.trial import PROFILES_PER_SECOND, Options, repeated, under_load

Scenario = Callable[[Options, Path], dict[str, Any]]


def freshness(
    options: Options,
    folder: Path,
    *,
    command: Command = OURS,
    profiles_per_second: int = PROFILES_PER_SECOND,
    repeats: bool = True,
) -> dict[str, Any]:
    """Freshness under steady load."""

    def measure(options: Options, own: Path) -> dict[str, Any]:
        return under_load(own, command, options, profiles_per_second=profiles_per_second).result

    runs = repeated(options if repeats else replace(options, repeat=1), folder, measure)
    percentiles = ("p50_seconds", "p95_seconds", "p99_seconds")
    return {
        "status": status(runs),
        **{name: figure(runs, "freshness", name) for name in percentiles},
        **{f"gold_{name}": figure(runs, "gold_freshness", name) for name in percentiles if command is OURS},
        "cpu_seconds_per_million": figure(runs, "per_million_purchases", "cpu_seconds"),
        "written_megabytes_per_million": figure(runs, "per_million_purchases", "written_megabytes"),
        "jvm_megabytes": figure(runs, "jvm_megabytes"),
        "runs": runs,
    }


SCENARIOS: dict[str, Scenario] = {
    "freshness": freshness,
    "freshness_purchases_only": partial(freshness, profiles_per_second=0),
    "tutorial": partial(freshness, command=TUTORIAL, repeats=False),
    "streams_freshness": partial(freshness, command=STREAMS, repeats=False),
    "rate": rate,
    "backlog": backlog,
    "growth": growth,
    "cold_start": cold_start,
    "catch_up": catch_up,
    "steady": steady,
    "judged": judged,
}
NEEDS_STREAMS = frozenset({"streams_freshness", "backlog"})
