"""`judged`: freshness while `activity quality` judges the whole lake over and over, against freshness without it."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import load
from benchmarks.freshness import quantiles, summary
from benchmarks.pipelines import OURS, PYTHON, Pipeline
from benchmarks.trial import (
    CUSTOMERS,
    DRAIN_SECONDS,
    PROFILES_PER_SECOND,
    PURCHASES_PER_SECOND,
    Options,
    opened,
    say,
    watched,
)
from customer_activity.settings import Settings


def judged(options: Options, folder: Path) -> dict[str, Any]:
    """Measure the same load in one run: without quality, beside it, and without it again.

    The lake holds `options.judged_purchases` before the load begins: what is there already is what makes judging
    expensive. How often it judges depends on nothing but itself: a run begins when the one before has ended.
    """
    with opened(folder / "1", OURS, CUSTOMERS, keep=options.keep) as trial:
        pipeline = trial.begin(options.judged_purchases)
        seconds = options.warmup_seconds + 3 * options.measure_seconds
        schedule = load.Schedule(CUSTOMERS, PURCHASES_PER_SECOND, PROFILES_PER_SECOND, seconds)
        begins = time.time() + options.warmup_seconds + options.measure_seconds
        ends = begins + options.measure_seconds
        with load.running(trial.settings, schedule) as sending:
            runs = judge(trial.settings, pipeline, begins, ends, folder / "quality.log")
            report = watched(sending, pipeline)
        trial.wait_until_covered(pipeline, DRAIN_SECONDS)
        start_ms = report.started_ms + options.warmup_seconds * 1000
        windows = (start_ms, begins * 1000), (ends * 1000, report.started_ms + seconds * 1000)
        alone = np.concatenate([trial.freshness(*window)[1] for window in windows])
        beside = trial.freshness(begins * 1000, ends * 1000)[1]
        result = {
            "purchases_before": options.judged_purchases,
            "alone": summary(alone),
            "beside": summary(beside),
            "quantiles_seconds": {"alone": quantiles(alone), "beside": quantiles(beside)},
            "quality_runs": runs,
            "p50_ratio": ratio(summary(alone)["p50_seconds"], summary(beside)["p50_seconds"]),
        }
        say(f"  alone {result['alone']}, beside quality {result['beside']}")
        has_judged = any(run["exit_code"] == 0 for run in runs) and all(run["exit_code"] in (0, None) for run in runs)
        ending = trial.finish(pipeline)
        return {**ending, **result, **({} if has_judged else {"status": "invalid"})}


def judge(settings: Settings, pipeline: Pipeline, begins: float, ends: float, log: Path) -> list[dict[str, Any]]:
    """Run `activity quality` again and again from one time to another; return the seconds and exit code of each run.

    The last one is ended when the time is over: its exit code is None.
    """
    runs: list[dict[str, Any]] = []
    command = [str(PYTHON.with_name("activity")), "quality", "--json"]
    environment = {**os.environ, **settings.environment(), "ACTIVITY_QUALITY_DOCS": str(log.with_name("docs"))}
    _wait(pipeline, begins)
    with log.open("wb") as output:
        while time.time() < ends:
            began = time.time()
            with subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process:
                _wait(pipeline, ends, process)
                code = process.poll()
                process.terminate()
            runs.append({"seconds": round(time.time() - began, 1), "exit_code": code})
    return runs


def _wait(pipeline: Pipeline, until: float, process: subprocess.Popen[bytes] | None = None) -> None:
    """Wait for a time, or until a process has ended before it."""
    while time.time() < until and (process is None or process.poll() is None):
        pipeline.check()
        time.sleep(0.1)


def ratio(alone: float | None, beside: float | None) -> float | None:
    """Return how many times slower it is beside quality."""
    return round(beside / alone, 2) if alone and beside else None
