"""Large batches on a standalone cluster of this machine's own: what driver and executors use of processor and memory.

    .venv/bin/python benchmarks/cluster.py [--purchases 1000000 ...] [--workers 2] [--placement executors] [--out DIR]

For each number of purchases: a fresh broker and lake, a backlog that bronze lands, and silver in a driver of its own as
one batch. Then as many new purchases again, whose ids are looked up among those of the first batch. Executors and
driver share this machine's cores: processor seconds compare, wall seconds only between runs of one machine.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: only its own folder is searched; the tests have a cluster
    sys.path[:1] = [str(Path(__file__).resolve().parents[1] / folder) for folder in ("", "tests")]

import typer
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table as Grid

from benchmarks import environment, load
from benchmarks.pipelines import PYTHON, Command, Pipeline
from benchmarks.trial import say
from benchmarks.usage import MEGABYTE, Sampler
from customer_activity.catalog import Table, table_path
from customer_activity.settings import PROJECT, Settings
from support import cluster
from support.cluster import Cluster

CUSTOMERS = 20_000
RUN_SECONDS = 1_800.0
RUN = "import sys; from customer_activity import application, settings; "
RUN += "from customer_activity.engine import observability; observability.configure_logging(); "
RUN += "application.run(settings.load(), sys.argv[1:], available_now=True)"


def main(
    *,
    purchases: Annotated[list[int] | None, typer.Option(min=1)] = None,
    workers: Annotated[int, typer.Option(min=1)] = 2,
    placement: Annotated[str, typer.Option()] = "executors",
    out: Annotated[Path, typer.Option()] = PROJECT / "var" / "cluster",
) -> None:
    """Measure, print a table, and write all figures to <out>/cluster.json."""
    out = out.resolve()
    figures: list[dict[str, Any]] = []
    for number in purchases or [1_000_000]:
        with environment.opened(out / str(number)) as opened, cluster.running(out, workers=workers) as found:
            update = {
                "spark_master": found.address,
                "placement": placement,
                "max_offsets_per_trigger": 2 * number + CUSTOMERS,
            }
            settings = opened.model_copy(update=update)
            for label in ("first", "second"):
                load.backlog(settings, CUSTOMERS, number, label)
                run(settings, "bronze", found)
                used = run(settings, "silver", found)
                rows = DeltaTable(table_path(settings.lake, Table.PURCHASES)).to_pyarrow_dataset().count_rows()
                figures.append(
                    {"purchases": number, "which": label, "workers": workers, "placement": placement, "rows": rows}
                    | used
                )
                (out / "cluster.json").write_text(json.dumps(figures, indent=1), encoding="utf-8")
    grid = Grid(*figures[0], title="silver, one batch")
    for each in figures:
        grid.add_row(*(f"{value:,}" if isinstance(value, int | float) else value for value in each.values()))
    Console(width=200).print(grid)


def run(settings: Settings, query: str, found: Cluster) -> dict[str, Any]:
    """Let one stream take what waits, and return what that took; the session's start is in it."""
    log = settings.run_dir.parent / f"{query}.log"
    samplers = [Sampler(worker.pid) for worker in found.workers]
    started = time.monotonic()
    with ExitStack() as stack:
        for sampler in samplers:
            stack.callback(sampler.stop)
        driver = stack.enter_context(Pipeline(Command(query, (str(PYTHON), "-c", RUN, query)), settings, log))
        driver.wait(RUN_SECONDS)
    seconds = time.monotonic() - started
    here = driver.usage.between(0, time.time() * 1000)
    # Without what a worker itself had used before.
    there = [sampler.between(sampler.samples[1].at_ms, time.time() * 1000) for sampler in samplers]
    batch = [line for line in log.read_text(encoding="utf-8").splitlines() if " batch_id=" in line][-1]
    say(f"  {batch.partition('query=')[2]}")
    return {
        "seconds": round(seconds, 1),
        "driver_cpu": round(here["jvm_cpu_seconds"] + here["python_cpu_seconds"], 1),
        "executors_cpu": round(sum(used["jvm_cpu_seconds"] + used["python_cpu_seconds"] for used in there), 1),
        "busiest_cpu": round(max(used["jvm_cpu_seconds"] + used["python_cpu_seconds"] for used in there), 1),
        "driver_mb": driver.usage.peaks()["total_megabytes"],
        "executors_mb": round(sum(sampler.peaks()["total_megabytes"] for sampler in samplers)),
        "state_mb": round(sum(file.stat().st_size for file in Path(settings.lake).glob("_state/*/*")) / MEGABYTE),
        "batch": batch.partition("seconds=")[2].partition(" placement")[0],
    }


if __name__ == "__main__":
    typer.run(main)
