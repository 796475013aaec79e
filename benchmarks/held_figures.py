"""The figures of `held.py`, those of one size beside those of another."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from rich.table import Table as Grid

from benchmarks import spread

BURST = 500  # purchases
PEAK = "peak memory, MB"
LIMITS = {
    "start to the first record in the view, s": 1.5,
    f"{BURST} purchases to the view, s": 1.2,
    "large batch, s": 1.5,
}


def memory(figures: Mapping[str, Any]) -> dict[str, float]:
    """Return the most memory that all processes together had in each of the measurements, at most.

    Without pages of files it is what a machine must have: sorted runs are mapped, and the system takes them back.
    """
    drained = {
        "past made": figures["catch_up"].values(),
        "large batch": figures["large"].values(),
        "large batch of all customers": figures["spread"].values(),
    }
    each = {
        **{name: list(of) for name, of in drained.items()},
        "current rows": [figures["behind"]],
        "start behind large batches": [figures["after"]],
        "starts": figures["starts"],
        "small batches": figures["small"],
    }
    found = {f"memory of its own, {name}, MB": float(max(one["own_mb"] for one in of)) for name, of in each.items()}
    with_files = [
        one["peak_mb"] if "peak_mb" in one else one["driver_mb"] + one["executors_mb"]
        for of in each.values()
        for one in of
    ]
    return {**found, PEAK: max(found.values()), "peak memory with files, MB": float(max(with_files))}


def compared(figures: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of one size that are compared with those of another."""
    large = figures["large"]

    def small(figure: str) -> float:
        return statistics.median(float(seconds) for lot in figures["small"] for seconds in lot[figure])

    return {
        "start to the first record in the view, s": statistics.median(start["seconds"] for start in figures["starts"]),
        f"{BURST} purchases to the view, s": small("in_view_seconds"),
        **{f"{BURST} purchases, {query}, s": small(f"{query}_seconds") for query in ("silver", "gold")},
        **{f"large batch, {query}, s": of["batch_seconds"] for query, of in large.items()},
        "large batch, s": sum(of["batch_seconds"] for of in large.values()),
        "large batch, processor s": sum(spread.total(of) for of in large.values()),
        **{f"large batch of all customers, {query}, s": of["batch_seconds"] for query, of in figures["spread"].items()},
        **{f"past made, {query}, s": of["batch_seconds"] for query, of in figures["catch_up"].items()},
        "current rows merged, s": figures["behind"]["batch_seconds"],
        "start behind large batches, s": figures["after"]["seconds"],
        **memory(figures),
        "sorted runs, MB": figures["sorted_runs_mb"],
        "local state, MB": figures["local_state_mb"],
    }


def as_table(name: str, sizes: Mapping[str, Mapping[str, Any]]) -> Grid:
    """Lay out the figures of each size, and the ratio of the largest to the smallest beside what it may be."""
    right = {size: compared(figures) for size, figures in sizes.items()}
    grid = Grid("figure", *(f"{int(size):,} ids" for size in right), "ratio", "must", title=name)
    for figure in next(iter(right.values()), {}):
        values = [figures[figure] for figures in right.values()]
        ratio = values[-1] / values[0] if values[0] else float("nan")
        limit = f"≤ {LIMITS[figure]}" if figure in LIMITS else "≤ 4,000" if figure == PEAK else ""
        grid.add_row(figure, *(f"{value:,.2f}" for value in values), f"{ratio:.2f}", limit)
    return grid
