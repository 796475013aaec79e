"""`backlog`: purchases and profiles wait; how long from a process's start until its view says everything."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import environment, load
from benchmarks.freshness import counted_at
from benchmarks.pipelines import NIGHTLY, OURS, STREAMS, Command, Pipeline
from benchmarks.reading import Expected
from benchmarks.results import figure, status
from benchmarks.trial import Options, Trial, attempt, say
from customer_activity.settings import Settings

DRAIN_SECONDS = 900.0


def backlog(options: Options, folder: Path) -> dict[str, Any]:
    """Drain the same topics with ours and Kafka Streams in turn, and recompute them once as a nightly batch."""
    customers, purchases = options.backlog_customers, options.backlog_purchases
    runs: dict[str, list[dict[str, Any]]] = {OURS.name: [], STREAMS.name: []}
    with environment.opened(folder / "1", keep=options.keep) as settings:
        report = load.backlog(settings, customers, purchases)
        say(f"  {report.profiles:,} profiles and {report.purchases:,} purchases are waiting ({report.seconds:.1f} s)")
        for number in range(1, options.repeat + 1):
            for command in (OURS, STREAMS):
                own = environment.beside(settings, f"{command.name}-{number}")
                runs[command.name].append(attempt(partial(drain, own, command, customers, purchases)))
        batch = attempt(partial(nightly, environment.beside(settings, NIGHTLY.name)))
    figures = {
        f"{prefix}{name}": figure(runs[command.name], name)
        for command, prefix in ((OURS, ""), (STREAMS, "streams_"))
        for name in ("purchases_per_second", "cpu_seconds_per_million", "jvm_megabytes")
    }
    ours, streams = (figures[f"{prefix}purchases_per_second"]["median"] for prefix in ("", "streams_"))
    return {
        "status": status([*runs[OURS.name], *runs[STREAMS.name], batch]),
        "purchases": purchases,
        "customers": customers,
        "seconds": figure(runs[OURS.name], "seconds"),
        "ratio_to_streams": round(ours / streams, 3) if ours and streams else None,
        **figures,
        "nightly": batch,
        "runs": runs[OURS.name],
        "streams_runs": runs[STREAMS.name],
    }


def drain(settings: Settings, command: Command, customers: int, purchases: int) -> dict[str, Any]:
    """Start a pipeline on what waits, and measure until the last customer's row is complete in the view.

    Raises:
        TimeoutError: it does not come to be.
    """
    say(f"  {command.name} drains")
    trial = Trial(settings, command, customers, settings.run_dir.parent)
    with trial.resources:
        expected = trial.input.expected(customers)
        pipeline = trial.start()
        if not trial.view.wait_until_says(expected, DRAIN_SECONDS, pipeline.check):
            raise TimeoutError(f"not everything was in the view after {DRAIN_SECONDS:.0f} s")
        complete_ms = completed_at(trial, expected)
        used = pipeline.usage.between(0, complete_ms + 1_000)
        seconds = (complete_ms - pipeline.started_ms) / 1000
        say(f"  complete after {seconds:.1f} s: {purchases / seconds:,.0f} purchases/s")
        return {
            "seconds": round(seconds, 2),
            "first_record_seconds": round((min(trial.view.timestamps) - pipeline.started_ms) / 1000, 2),
            "purchases_per_second": round(purchases / seconds),
            "view_records": len(trial.view.customers),
            "cpu_seconds_per_million": round(cpu_seconds(used) * 1_000_000 / purchases, 1),
            "used": used,
            **trial.finish(pipeline),
        }


def completed_at(trial: Trial, expected: Expected) -> float:
    """Return when the last customer's complete row was in the view, epoch milliseconds."""
    wanted = expected.purchase_count
    return float(counted_at(np.arange(wanted.size), wanted, trial.view.records()).max())


def cpu_seconds(used: dict[str, float]) -> float:
    """Return the processor seconds of all processes in a window."""
    return round(used["jvm_cpu_seconds"] + used["python_cpu_seconds"], 1)


def nightly(settings: Settings) -> dict[str, Any]:
    """Recompute the view in one batch."""
    say("  nightly batch")
    log = settings.run_dir.parent / "nightly.log"
    with Pipeline(NIGHTLY, settings, log) as batch:
        batch.wait(DRAIN_SECONDS)
    report = json.loads(next(line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("{")))
    say(f"  {report}")
    return {"status": "ok", **report, **batch.usage.peaks()}
