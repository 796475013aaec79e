"""`steady`: half an hour under load, with whatever maintenance the pipeline does meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.freshness import per_minute, trend
from benchmarks.pipelines import OURS
from benchmarks.trial import Options, under_load


def steady(options: Options, folder: Path) -> dict[str, Any]:
    """Freshness minute by minute, its trend, memory, files and bytes."""
    measured = under_load(folder / "1", OURS, replace(options, measure_seconds=options.steady_minutes * 60))
    minutes = per_minute(measured.purchases, measured.seconds, measured.start_ms, measured.end_ms)
    p95 = [minute["p95_seconds"] for minute in minutes]
    known = [value for value in p95 if value is not None]
    return {
        **measured.result,
        "minutes": options.steady_minutes,
        "per_minute": minutes,
        # Without a figure for every minute there is no line to draw, and no claim that it does not rise.
        "p95_trend": trend(known) if len(known) == len(p95) else None,
        "memory": measured.pipeline.usage.series(),
    }
