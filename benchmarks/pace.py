"""Freshness against cores at several rates: what the pipeline costs when little arrives, and when much does.

    .venv/bin/python benchmarks/pace.py [--rate 0 --rate 10 …] [--warmup 20] [--seconds 40] [--out DIR]

One pipeline lives through all rates, one after the other, in the order given; profiles are updated at a twenty-fifth of
the rate. Cores are processor seconds of the driver, JVM and Python, a second of the window; the broker's and the load
generator's are not in it, but they share the machine. It counts only if `activity verify` finds no difference.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

if not __package__:
    sys.path[:1] = [str(Path.cwd())]

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import load
from benchmarks.freshness import summary
from benchmarks.pipelines import OURS
from benchmarks.trial import CUSTOMERS, DRAIN_SECONDS, Trial, gold_freshness, opened, say, watched

RATES = [0, 10, 100, 500]
PURCHASES_A_PROFILE = 25


def main(
    *,
    rate: Annotated[list[int], typer.Option(help="Purchases a second; repeat it.")] = RATES,
    warmup: Annotated[float, typer.Option(help="Seconds at each rate before it is measured.")] = 20.0,
    seconds: Annotated[float, typer.Option(help="Seconds that are measured.")] = 40.0,
    out: Annotated[Path, typer.Option(help="Folder of results, logs and data.")] = Path("var/pace"),
) -> None:
    """Measure each rate and print the curve."""
    out = out.resolve()
    windows: list[tuple[int, float, float]] = []
    with opened(out, OURS, CUSTOMERS) as trial:
        pipeline = trial.begin()
        for each in rate:
            say(f"  {each}/s for {warmup + seconds:.0f} s")
            began_ms = time.time() * 1000
            if each:
                length = warmup + seconds
                schedule = load.Schedule(CUSTOMERS, each, each // PURCHASES_A_PROFILE, length, label=f"load{each}")
                with load.running(trial.settings, schedule) as sending:
                    began_ms = watched(sending, pipeline).started_ms
            else:
                time.sleep(warmup + seconds)
                pipeline.check()
            windows.append((each, began_ms + warmup * 1000, began_ms + (warmup + seconds) * 1000))
            trial.wait_until_covered(pipeline, DRAIN_SECONDS)
        ending = trial.finish(pipeline)
        rows = [
            _measured(trial, pipeline.usage.between(start, end), *window)
            for window in windows
            for _, start, end in [window]
        ]
    (out / "pace.json").write_text(json.dumps({**ending, "rates": rows}, indent=1))
    table = Table("purchases/s", "cores", "JVM", "Python", "view p50", "p95", "gold p50", "p95", title=ending["status"])
    for row in rows:
        table.add_row(*(str(row[name]) for name in row))
    Console().print(table)
    raise typer.Exit(0 if ending["status"] == "ok" else 1)


def _measured(trial: Trial, used: dict[str, float], rate: int, start_ms: float, end_ms: float) -> dict[str, Any]:
    """Return what a rate cost, and how fresh it was."""
    cores = {name: used[f"{name}_cpu_seconds"] / used["seconds"] for name in ("jvm", "python")}
    row: dict[str, Any] = {"rate": rate, "cores": round(sum(cores.values()), 3)}
    row |= {name: round(value, 3) for name, value in cores.items()}
    view = summary(trial.freshness(start_ms, end_ms)[1])
    gold = gold_freshness(trial, start_ms, end_ms) if rate else {}
    for name, of in (("view", view), ("gold", gold)):
        row |= {f"{name}_{percentile}": of.get(f"{percentile}_seconds") for percentile in ("p50", "p95")}
    return row


if __name__ == "__main__":
    typer.run(main)
