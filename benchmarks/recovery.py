"""`cold_start` and `catch_up`: how soon the view is there after a start, and after a crash under load."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import load
from benchmarks.freshness import covered_at, recovered_at, summary
from benchmarks.pipelines import OURS, Pipeline
from benchmarks.results import figure, status
from benchmarks.trial import (
    CUSTOMERS,
    DRAIN_SECONDS,
    PROFILES_PER_SECOND,
    PURCHASES_PER_SECOND,
    Options,
    Trial,
    opened,
    repeated,
    say,
    watched,
)

WAITING_PURCHASES = 1_000
RESTART_PURCHASES = 500
BEFORE_KILL_SECONDS = 40.0
AFTER_KILL_SECONDS = 75.0  # of load, so that being fresh again is seen under load
FRESH_SECONDS = 5.0
HOLD_MS = 5_000.0  # fresh again is what stays fresh for this long


def cold_start(options: Options, folder: Path) -> dict[str, Any]:
    """Seconds from a process's start to its first record, on no lake and on an existing one."""
    runs = repeated(options, folder, one_cold_start)
    return {
        "status": status(runs),
        **{name: figure(runs, name) for name in ("first_record_seconds", "complete_seconds", "restart_seconds")},
        "runs": runs,
    }


def one_cold_start(options: Options, folder: Path) -> dict[str, Any]:
    """Start on a lake that does not exist; stop; start again with a few purchases waiting."""
    with opened(folder, OURS, CUSTOMERS, keep=options.keep) as trial:
        trial.preload(WAITING_PURCHASES)
        pipeline = trial.start()
        trial.expect_covered(pipeline)
        timestamps = np.array(trial.view.timestamps)
        first = (timestamps.min() - pipeline.started_ms) / 1000
        complete = (timestamps.max() - pipeline.started_ms) / 1000
        say(f"  first record after {first:.1f} s, all after {complete:.1f} s")
        trial.quiesce(pipeline)
        pipeline.stop()
        ends = {"first_record_seconds": round(first, 2), "complete_seconds": round(complete, 2)}
        return {**ends, **restart_seconds(trial)}


def restart_seconds(trial: Trial) -> dict[str, Any]:
    """Start again on the lake that is there and measure until what was sent meanwhile is in the view."""
    sender = load.Sender(trial.settings, "restart")
    sender.send_purchases(sender.random.integers(CUSTOMERS, size=RESTART_PURCHASES))
    sender.flush()
    known = len(trial.view.timestamps)
    pipeline = trial.start()
    trial.expect_covered(pipeline)
    first = (min(trial.view.timestamps[known:]) - pipeline.started_ms) / 1000
    say(f"  restart: first record after {first:.1f} s")
    return {"restart_seconds": round(first, 2), **trial.finish(pipeline)}


def catch_up(options: Options, folder: Path) -> dict[str, Any]:
    """Seconds from kill -9 under load until the view is fresh again."""
    runs = repeated(options, folder, one_catch_up)
    return {
        "status": status(runs),
        **{name: figure(runs, name) for name in ("fresh_again_seconds", "backlog_covered_seconds")},
        "runs": runs,
    }


def one_catch_up(options: Options, folder: Path) -> dict[str, Any]:
    """Kill everything in the middle of the load and start again at once."""
    seconds = BEFORE_KILL_SECONDS + AFTER_KILL_SECONDS
    schedule = load.Schedule(CUSTOMERS, PURCHASES_PER_SECOND, PROFILES_PER_SECOND, seconds)
    with opened(folder, OURS, CUSTOMERS, keep=options.keep) as trial:
        pipeline = trial.begin()
        with load.running(trial.settings, schedule) as sending:
            _work(pipeline, BEFORE_KILL_SECONDS)
            killed_ms = time.time() * 1000
            pipeline.kill()
            say("  killed, and started again")
            pipeline = trial.start()
            report = watched(sending, pipeline)
        is_covered = trial.wait_until_covered(pipeline, DRAIN_SECONDS)
        result = {**after_kill(trial, killed_ms), "view_covers_everything": is_covered, "load": report._asdict()}
        say(f"  {result}")
        return {**result, **trial.finish(pipeline)}


def _work(pipeline: Pipeline, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pipeline.check()
        time.sleep(0.1)


def after_kill(trial: Trial, killed_ms: float) -> dict[str, Any]:
    """Return the seconds from the kill until what waited was covered, and until the view was fresh again."""
    trial.view.read_on()
    purchases = trial.input.all_purchases()
    in_view_ms = covered_at(purchases, trial.view.records())
    seconds = (in_view_ms - purchases.sent_ms) / 1000
    fresh_ms = recovered_at(in_view_ms, seconds, killed_ms, limit=FRESH_SECONDS, hold_ms=HOLD_MS)
    waiting_ms = in_view_ms[purchases.sent_ms <= killed_ms]
    is_lost = bool(np.isnan(waiting_ms).any())
    return {
        "fresh_again_seconds": None if fresh_ms is None else round((fresh_ms - killed_ms) / 1000, 2),
        "backlog_covered_seconds": None if is_lost else round((float(waiting_ms.max()) - killed_ms) / 1000, 2),
        "before_kill": summary(seconds[in_view_ms <= killed_ms]),
    }
