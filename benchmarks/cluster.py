"""Large batches on a standalone cluster of this machine's own: what driver and executors use of processor and memory.

    .venv/bin/python benchmarks/cluster.py [--purchases 1000000 --purchases 2000000 --purchases 4000000]
        [--customers 20000] [--workers 2 --workers 1] [--hot 0.3] [--query bronze --query silver --query gold]
        [--runs 1] [--out DIR]

One command measures batches of several sizes, and the largest with one worker, with a hot key, and in the driver. For
each: a fresh broker and lake, and a driver for each stream that has taken 100,000 purchases before, with a session and
executors of their own. What a JVM loads and compiles for its first batch, two to three processor seconds whatever the
size, is no part of what a million costs, and on a machine whose speed changes it hides the driver's share of that. Then
each takes a backlog as one batch, with new executors; then a small batch, because a driver takes a large one's keys
into its local state when the next one comes. Executors write them into sorted runs at once, and no local state is kept
with them. At the end the figures are compared with what they must be; exit 1 where one is not met. Executors and driver
share this machine's cores: processor seconds compare, wall seconds only between runs of one machine.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: only its own folder is searched; the tests have a cluster
    sys.path[:1] = [str(Path(__file__).resolve().parents[1] / folder) for folder in ("", "tests")]

import typer
from rich.console import Console
from rich.table import Table as Grid

from benchmarks import environment, load, spread
from benchmarks.drains import draining
from benchmarks.spread import Case, Measured
from benchmarks.trial import say
from customer_activity.settings import PROJECT
from support import cluster

CUSTOMERS = 20_000
SIZES = (1_000_000, 2_000_000, 4_000_000)
QUERIES = ("bronze", "silver", "gold")
FIRST_PURCHASES = 100_000
NEXT_PURCHASES = 500
SHOWN = (
    "batch_seconds",
    "driver_cpu",
    "executors_cpu",
    "busier_cpu",
    "next_cpu",
    "driver_mb",
    "executors_mb",
    "tasks",
    "files",
    "result_bytes",
)


def main(
    *,
    purchases: Annotated[list[int] | None, typer.Option(min=1)] = None,
    workers: Annotated[list[int] | None, typer.Option(min=1, help="The first is the usual one.")] = None,
    customers: Annotated[int, typer.Option(min=1, help="Whose purchases they are.")] = CUSTOMERS,
    hot: Annotated[float, typer.Option(min=0, max=1, help="Share of one customer; 0: not measured.")] = 0.3,
    query: Annotated[list[str] | None, typer.Option(help="Streams, in the order of the path.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Of each case; medians are compared.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder of results, logs and data.")] = PROJECT / "var" / "cluster",
) -> None:
    """Measure, print a table, and write all figures to <out>/cluster.json after each case."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that whatever was started is ended
    out = out.resolve()
    cases = spread.cases(purchases or SIZES, workers or (2, 1), hot)
    found: list[tuple[Case, str, dict[str, Any]]] = []
    for number in range(runs):
        for case in cases:
            say(f"{number + 1} of {runs}: {case}")
            found += [
                (case, name, figures) for name, figures in measure(case, customers, query or QUERIES, out).items()
            ]
            told = [{**of._asdict(), "query": name, **figures} for of, name, figures in found]
            (out / "cluster.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
    measured = spread.medians(found)
    verdicts = list(spread.judged(measured, cases))
    console = Console(width=180)
    console.print(as_table(measured, cases))
    judged = Grid("figure", "of", "measured", "must", "reached")
    for verdict in verdicts:
        judged.add_row(
            verdict.what, verdict.of, f"{verdict.measured:,}", verdict.wanted, "yes" if verdict.is_met else "NO"
        )
    console.print(judged)
    if not all(verdict.is_met for verdict in verdicts):
        raise typer.Exit(1)


def measure(case: Case, customers: int, queries: Sequence[str], out: Path) -> dict[str, dict[str, Any]]:
    """Let each stream take a backlog as one batch; return by stream what that took.

    Streams before the first one take it unmeasured.
    """
    before = QUERIES[: QUERIES.index(queries[0])] if queries[0] in QUERIES else QUERIES
    with (
        environment.opened(out / "world") as opened,
        cluster.running(out, workers=case.workers) as found,
        ExitStack() as drivers,
    ):
        update = {
            "spark_master": found.address,
            "placement": case.placement,
            "max_offsets_per_trigger": 2 * (case.purchases + customers),  # as Spark divides it, one batch
            "local_state_gb": 0.0 if case.placement == spread.EXECUTORS else opened.local_state_gb,
        }
        settings = opened.model_copy(update=update)
        folder = settings.run_dir.parent
        drained = {
            query: drivers.enter_context(draining(settings, [query], folder, found.workers))
            for query in dict.fromkeys([*before, *queries])
        }
        load.backlog(settings, customers, FIRST_PURCHASES, "first", profiles=False)
        for take in drained.values():
            take(settings)
        load.backlog(settings, customers, case.purchases, hot=case.hot)
        large = {query: take(settings) for query, take in drained.items()}
        load.backlog(settings, customers, NEXT_PURCHASES, "next", profiles=False)
        small = settings.model_copy(update={"placement": "auto"})
        for query, take in drained.items():
            after = take(small)
            large[query]["next_cpu"] = round(after["driver_cpu"] + after["executors_cpu"], 2)
        return {query: large[query] for query in queries}


def as_table(measured: Measured, cases: Sequence[Case]) -> Grid:
    """Lay the figures out for people: of each case and stream, medians."""
    grid = Grid("purchases", "workers", "hot", "placement", "stream", *SHOWN)
    for case in cases:
        for (other, query), figures in measured.items():
            if other == case:
                told = (f"{case.purchases:,}", str(case.workers), f"{case.hot:.0%}", case.placement, query)
                grid.add_row(*told, *(f"{figures[name]:,.6g}" for name in SHOWN))
    return grid


if __name__ == "__main__":
    typer.run(main)
