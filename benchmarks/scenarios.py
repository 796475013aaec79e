"""The scenarios, by name."""

from __future__ import annotations

from collections.abc import Callable
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
from benchmarks.trial import Options, attempt, under_load

CUSTOMERS = 20_000
PURCHASES_PER_SECOND = 500
PROFILES_PER_SECOND = 20

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

    def measure(number: int) -> dict[str, Any]:
        return under_load(
            folder / str(number),
            command,
            options,
            customers=CUSTOMERS,
            purchases_per_second=PURCHASES_PER_SECOND,
            profiles_per_second=profiles_per_second,
        ).result

    runs = [attempt(partial(measure, number)) for number in range(1, (options.repeat if repeats else 1) + 1)]
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
