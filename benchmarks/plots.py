"""The plots of the results, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

SIZE_INCHES = (7.2, 3.4)
OURS, PEERS = "#1f6f8b", ("#c7522a", "#8a8d91", "#e0a458")
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "benchmarks",  # the same results draw the same file
    "svg.fonttype": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "font.size": 9,
}

Scenarios = Mapping[str, Any]


def draw_all(scenarios: Scenarios, folder: Path) -> dict[str, Path]:
    """Draw what was measured; return the pictures by scenario."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {}
    for name, draw in DRAWINGS.items():
        if name not in scenarios or "error" in scenarios[name]:
            continue
        with mpl.rc_context(STYLE):
            figure, axes = plt.subplots(figsize=SIZE_INCHES, layout="constrained")
            draw(axes, scenarios)
            pictures[name] = folder / f"{name}.svg"
            figure.savefig(pictures[name], metadata={"Date": None})
            plt.close(figure)
    return pictures


def freshness(axes: Axes, scenarios: Scenarios) -> None:
    """Share of purchases that are in the view after so many seconds."""
    lines = {
        "freshness": ("ours", OURS),
        "freshness_purchases_only": ("ours, no profile updates", "#5fb0c9"),
        "tutorial": ("tutorial-shaped", PEERS[0]),
        "streams_freshness": ("Kafka Streams", PEERS[1]),
    }
    for name, (label, colour) in lines.items():
        for number, run in enumerate(scenarios.get(name, {}).get("runs", [])):
            seconds = [value for value in run.get("quantiles_seconds", []) if value is not None]
            axes.plot(seconds, range(len(seconds)), color=colour, linewidth=1.2, label=None if number else label)
    axes.set(xscale="log", xlabel="seconds from purchase to view", ylabel="% of purchases", ylim=(0, 100))
    axes.legend(frameon=False)


def rate(axes: Axes, scenarios: Scenarios) -> None:
    """Freshness by rate."""
    steps = scenarios["rate"]["steps"]
    rates = [step["purchases_per_second"] for step in steps]
    for percentile, style in (("p50", "-"), ("p95", "--")):
        values = [step["freshness"][f"{percentile}_seconds"] or float("nan") for step in steps]
        axes.plot(rates, values, style, marker="o", color=OURS, label=percentile)
    axes.axhline(10, color=PEERS[0], linewidth=1, label="limit for p95")
    axes.set(xlabel="purchases per second", ylabel="seconds to the view", ylim=(0, None))
    axes.legend(frameon=False)


def backlog(axes: Axes, scenarios: Scenarios) -> None:
    """Purchases per second from a process's start."""
    found = scenarios["backlog"]
    batch = found["nightly"]
    bars = {
        "ours": (found["purchases_per_second"]["median"], OURS),
        "Kafka Streams\n(no lake)": (found["streams_purchases_per_second"]["median"], PEERS[1]),
    }
    if "error" not in batch:
        bars["nightly batch"] = (batch["purchases"] / batch["seconds"], PEERS[2])
    axes.barh(list(bars), [value or 0 for value, _ in bars.values()], color=[colour for _, colour in bars.values()])
    axes.invert_yaxis()
    axes.set(xlabel="purchases per second, from the process's start")


def growth(axes: Axes, scenarios: Scenarios) -> None:
    """Seconds for a burst by table size."""
    sizes = [size for size in scenarios["growth"]["sizes"] if "error" not in size]
    medians = [size["median_seconds"] for size in sizes]
    below = [size["median_seconds"] - size["low_seconds"] for size in sizes]
    above = [size["high_seconds"] - size["median_seconds"] for size in sizes]
    customers = [size["customers"] for size in sizes]
    axes.errorbar(customers, medians, yerr=[below, above], marker="o", color=OURS, capsize=3)
    axes.set(xscale="log", xlabel="customers", ylabel="seconds for a batch of 500", ylim=(0, None))


def steady(axes: Axes, scenarios: Scenarios) -> None:
    """Percentiles minute by minute."""
    minutes = scenarios["steady"]["per_minute"]
    for percentile, width in (("p50", 1.6), ("p95", 1.1), ("p99", 0.7)):
        values = [minute[f"{percentile}_seconds"] or float("nan") for minute in minutes]
        axes.plot(range(len(values)), values, color=OURS, linewidth=width, label=percentile)
    axes.set(xlabel="minute", ylabel="seconds to the view", ylim=(0, None))
    axes.legend(frameon=False)


DRAWINGS: dict[str, Callable[[Axes, Scenarios], None]] = {
    "freshness": freshness,
    "rate": rate,
    "backlog": backlog,
    "growth": growth,
    "steady": steady,
}
