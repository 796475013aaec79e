"""`make bench-check`: compare the ratios of a results file with those committed, exit 1 when one is worse.

    .venv/bin/python benchmarks/ratios.py [RESULTS] [--baseline FILE] [--write]

Ratios of two figures of one run hold on any machine; seconds do not. Each entry of the baseline says the value, whether
more or less is better, and the share by which it may be worse before that is a finding.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Annotated, Any, NamedTuple

if not __package__:  # run as a file: only its own folder is searched, and the package lies in the one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import results, targets
from customer_activity.settings import PROJECT

BASELINE = Path(__file__).with_name("baseline.json")
RESULTS = PROJECT / "var" / "bench" / results.FILE_NAME

Scenarios = Mapping[str, Any]


class Ratio(NamedTuple):
    """Two figures of one run divided.

    Attributes:
        value: computes it; None where a figure was not reached.
        is_higher_better: whether more is better.
        tolerance: share by which it may be worse than the baseline: what runs differ by without a cause.
    """

    value: Callable[[Scenarios], float | None]
    is_higher_better: bool = False
    tolerance: float = 0.25


class Comparison(NamedTuple):
    """One ratio now and in the baseline; None where it is not known."""

    name: str
    now: float | None
    before: float | None
    is_worse: bool


def to(above: tuple[str, ...], below: tuple[str, ...]) -> Callable[[Scenarios], float | None]:
    """Make what divides two figures, each given by the way to it; None where either was not reached."""

    def divided(scenarios: Scenarios) -> float | None:
        over, under = _at(scenarios, above), _at(scenarios, below)
        return over / under if over is not None and under else None

    return divided


def _at(scenarios: Scenarios, path: tuple[str, ...]) -> float | None:
    """Return a figure; of one of several runs its median."""
    found: Any = reduce(getitem, path, scenarios)
    value: float | None = found["median"] if isinstance(found, Mapping) else found
    return value


P50 = ("freshness", "p50_seconds")
RATIOS = {
    "backlog: purchases/s, ours to Kafka Streams": Ratio(
        lambda s: s["backlog"]["ratio_to_streams"], is_higher_better=True, tolerance=0.20
    ),
    "backlog: processor seconds, ours to Kafka Streams": Ratio(
        to(("backlog", "cpu_seconds_per_million"), ("backlog", "streams_cpu_seconds_per_million"))
    ),
    "backlog: seconds, ours to the nightly batch": Ratio(to(("backlog", "seconds"), ("backlog", "nightly", "seconds"))),
    "freshness p50: the tutorial's to ours": Ratio(targets.tutorial_ratio, is_higher_better=True, tolerance=0.35),
    "freshness: p95 to p50": Ratio(to(("freshness", "p95_seconds"), P50)),
    "freshness p50: with profile updates to without": Ratio(to(P50, ("freshness_purchases_only", "p50_seconds"))),
    "freshness p50: readable in gold to published": Ratio(to(("freshness", "gold_p50_seconds"), P50)),
    "growth: a batch on the largest table to one on the smallest": Ratio(
        lambda s: s["growth"]["ratio_largest_to_smallest"]
    ),
    "start: on an existing lake to on none": Ratio(
        to(("cold_start", "restart_seconds"), ("cold_start", "first_record_seconds")), tolerance=0.30
    ),
}


def measured(scenarios: Scenarios) -> dict[str, float | None]:
    """Compute every ratio; None where a scenario is missing, failed, or did not reach a figure."""
    found: dict[str, float | None] = {}
    for name, ratio in RATIOS.items():
        try:
            value = ratio.value(scenarios)
        except (KeyError, IndexError):
            value = None
        found[name] = None if value is None else round(value, 3)
    return found


def compare(now: Mapping[str, float | None], before: Mapping[str, float | None]) -> list[Comparison]:
    """Hold ratios against the baseline; one that is in the baseline and missing now is worse."""
    comparisons = []
    for name, ratio in RATIOS.items():
        value, base = now.get(name), before.get(name)
        if base is None:
            is_worse = False
        elif value is None:
            is_worse = True
        elif ratio.is_higher_better:
            is_worse = value < base * (1 - ratio.tolerance)
        else:
            is_worse = value > base * (1 + ratio.tolerance)
        comparisons.append(Comparison(name, value, base, is_worse))
    return comparisons


def main(
    results_file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Of `make bench`.")] = RESULTS,
    *,
    baseline: Annotated[Path, typer.Option(help="Committed ratios.")] = BASELINE,
    write: Annotated[bool, typer.Option("--write", help="Make these results the baseline.")] = False,
) -> None:
    """Compare ratios with the baseline; exit 1 when one is worse by more than its tolerance."""
    found = results.load(results_file)
    now = measured(found["scenarios"])
    if write:
        commits = sorted({each["commit"] for each in found["scenarios"].values()})
        content = {"commits": commits, "machine": found["machine"], "ratios": now}
        baseline.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return
    comparisons = compare(now, json.loads(baseline.read_text(encoding="utf-8"))["ratios"])
    Console().print(as_table(comparisons))
    if any(each.is_worse for each in comparisons):
        raise typer.Exit(1)


def as_table(comparisons: list[Comparison]) -> Table:
    """Lay comparisons out for people."""
    table = Table("ratio", "better", "baseline", "now", "tolerance", "verdict")
    for each in comparisons:
        ratio = RATIOS[each.name]
        verdict = "[red]worse[/]" if each.is_worse else "not in the baseline" if each.before is None else "[green]ok[/]"
        numbers = ("-" if value is None else f"{value:g}" for value in (each.before, each.now))
        direction = "more" if ratio.is_higher_better else "less"
        table.add_row(each.name, direction, *numbers, f"{ratio.tolerance:.0%}", verdict)
    return table


if __name__ == "__main__":
    typer.run(main)
