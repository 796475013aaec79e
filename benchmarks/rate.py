"""`rate`: the highest rate that the view keeps up with, in one process on one lake from step to step."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import load
from benchmarks.freshness import covered_at, seconds_until_covered, summary, within
from benchmarks.pipelines import OURS, Pipeline
from benchmarks.results import OK
from benchmarks.trial import CUSTOMERS, Options, Trial, opened, say, watched

WARMUP_SECONDS = 20.0
MEASURE_SECONDS = 30.0
GRACE_SECONDS = 15.0  # after the load; whatever is not in the view by then is not held
LIMIT_SECONDS = 10.0  # p95 of a rate that is held


def rate(options: Options, folder: Path) -> dict[str, Any]:
    """Try one rate after the other until one is not held."""
    with opened(folder / "1", OURS, CUSTOMERS, keep=options.keep) as trial:
        pipeline = trial.begin()
        steps: list[dict[str, Any]] = []
        for purchases_per_second in options.rates:
            steps.append(step(trial, pipeline, purchases_per_second, options))
            if not steps[-1]["is_held"]:
                break
        ending = trial.finish(pipeline)
    held = [each["purchases_per_second"] for each in steps if each["is_held"]]
    highest = max(held, default=0) if ending["status"] == OK else None
    return {**ending, "highest_rate_held": highest, "steps": steps}


def step(trial: Trial, pipeline: Pipeline, purchases_per_second: int, options: Options) -> dict[str, Any]:
    """Send at one rate and judge: p95 below the limit, and everything in the view when the grace is over."""
    warmup = min(WARMUP_SECONDS, options.warmup_seconds)
    measure = min(MEASURE_SECONDS, options.measure_seconds)
    schedule = load.Schedule(CUSTOMERS, purchases_per_second, 0, warmup + measure, label=f"r{purchases_per_second}")
    say(f"  {purchases_per_second:,}/s")
    with load.running(trial.settings, schedule) as sending:
        report = watched(sending, pipeline)
    load_end_ms = time.time() * 1000
    time.sleep(GRACE_SECONDS)  # nothing is read meanwhile: reading would take from what the pipeline needs
    trial.view.read_on()
    purchases, view = trial.input.all_purchases(), trial.view.records()
    start_ms = report.started_ms + warmup * 1000
    chosen = within(purchases, start_ms, start_ms + measure * 1000)
    in_view_ms = covered_at(purchases, view)
    is_late = ~(in_view_ms <= load_end_ms + GRACE_SECONDS * 1000)  # NaN, never covered, is late too
    figures = summary(seconds_until_covered(purchases, view)[chosen])
    p95 = figures["p95_seconds"]
    late = int(np.count_nonzero(is_late & chosen))
    result = {
        "purchases_per_second": purchases_per_second,
        "is_held": late == 0 and p95 is not None and p95 < LIMIT_SECONDS,
        "late": late,
        "freshness": figures,
        "load": report._asdict(),
    }
    say(f"  {'held' if result['is_held'] else 'NOT held'}: {figures}, {late} not in the view in time")
    return result
