"""`growth`: what a batch of 500 customers costs on the path to the view, as the number of customers grows."""

from __future__ import annotations

import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import load
from benchmarks.freshness import Numbers, covered_at, within
from benchmarks.pipelines import OURS, Pipeline
from benchmarks.results import OK, status
from benchmarks.trial import Options, Trial, attempt, opened, say

BURSTS = 20
COUNTED_BURSTS = 15  # the last ones; those before warm up
BURST_CUSTOMERS = 500
BURST_DEADLINE_SECONDS = 120.0
LOOK_SECONDS = 0.1


def growth(options: Options, folder: Path) -> dict[str, Any]:
    """Send the same bursts to tables of different sizes."""
    sizes = [
        attempt(partial(at_size, customers, options, folder / str(customers))) for customers in options.growth_customers
    ]
    smallest, *_, largest = [size["median_seconds"] if size["status"] == OK else None for size in sizes]
    ratio = round(largest / smallest, 3) if smallest and largest else None
    return {"status": status(sizes), "ratio_largest_to_smallest": ratio, "sizes": sizes}


def at_size(customers: int, options: Options, folder: Path) -> dict[str, Any]:
    """Measure bursts on a table of one size."""
    with opened(folder, OURS, customers, keep=options.keep) as trial:
        pipeline = trial.begin()
        starts_ms = send_bursts(trial, pipeline)
        purchases = trial.input.all_purchases()
        in_view_ms = covered_at(purchases, trial.view.records())
        seconds = []
        for start_ms, end_ms in zip(starts_ms, [*starts_ms[1:], np.inf], strict=True):
            chosen = within(purchases, start_ms, end_ms)
            seconds.append(round(float(in_view_ms[chosen].max() - purchases.sent_ms[chosen].max()) / 1000, 3))
        counted = seconds[-COUNTED_BURSTS:]
        say(f"  {customers:,} customers: median {statistics.median(counted):.2f} s")
        return {
            "customers": customers,
            "median_seconds": round(statistics.median(counted), 3),
            "low_seconds": min(counted),
            "high_seconds": max(counted),
            "bursts_seconds": seconds,
            **trial.finish(pipeline),
        }


def send_bursts(trial: Trial, pipeline: Pipeline) -> list[int]:
    """Send one burst after the other, each when the one before is in the view; return when each began (epoch ms)."""
    sender = load.Sender(trial.settings, "burst")
    sent = np.zeros(trial.customers, dtype=np.int64)
    starts_ms = []
    for _ in range(BURSTS):
        chosen = sender.random.choice(trial.customers, size=BURST_CUSTOMERS, replace=False)
        sent[chosen] += 1
        time.sleep(0.002)  # no two bursts in one millisecond: their starts tell them apart
        starts_ms.append(time.time_ns() // 1_000_000)
        sender.send_purchases(chosen)
        sender.flush()
        wait_for_burst(trial, pipeline, chosen, sent)
    return starts_ms


def wait_for_burst(trial: Trial, pipeline: Pipeline, chosen: Numbers, sent: Numbers) -> None:
    """Wait until the view counts a burst's purchases.

    Raises:
        TimeoutError: it does not come to.
    """
    deadline = time.monotonic() + BURST_DEADLINE_SECONDS
    seen = np.zeros_like(sent)
    position = len(trial.view.customers)
    while not bool((seen[chosen] >= sent[chosen]).all()):
        pipeline.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"a burst was not in the view after {BURST_DEADLINE_SECONDS:.0f} s")
        time.sleep(LOOK_SECONDS)
        trial.view.read_on()
        seen[np.array(trial.view.customers[position:])] = np.array(trial.view.counts[position:])
        position = len(trial.view.customers)
