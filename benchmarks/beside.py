"""Measure this checkout beside another one, in turn on the same machine: what a change cost, as ratios.

    .venv/bin/python benchmarks/beside.py ../other [--runs 5] [--only NAME ...] [--streams NAMES] [--told]
                                                   [--placement PLACEMENT] [--out DIR]

The other is a checkout of another commit in which `make setup` has run (`git worktree add --detach ../other COMMIT`).
With `--streams daily,alerts` these optional streams run in this one's, and `.` as the other tells what they cost. With
`--told` this one's records have traces, its logs are JSON, lineage is told and metrics are served, and the other's are
not; whoever wants what scraping costs in it scrapes port 9464 meanwhile. With `--placement driver` this one's batches
run there, and the other's where they do by default: it may be from before a batch had a choice.
Each run is a process of that checkout's own environment, with its own scenarios; which of the two comes first changes
from run to run, so that a machine that becomes slower favours neither. Said at the end: for each figure the median of
both, and of the ratios of each pair their median and spread; all of it is in <out>/beside.json after each pair.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: measured is the checkout that is the working folder, be it this file's or not
    # Older commits have their benchmarks among the tests.
    sys.path[:1] = [str(Path.cwd()), str(Path.cwd() / "tests")]

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import environment, load
from benchmarks.backlog import drain
from benchmarks.growth import growth
from benchmarks.pipelines import OURS
from benchmarks.recovery import catch_up, cold_start
from benchmarks.results import OK
from benchmarks.scenarios import freshness
from benchmarks.trial import Options, say

Figures = dict[str, float]

TREE = Path(__file__).resolve().parents[1]
OPTIONS = replace(Options(), repeat=1, warmup_seconds=30.0, measure_seconds=60.0, growth_customers=(20_000, 200_000))
"""Shorter than `make bench`, and oftener: a ratio's spread tells more than one long run."""

SUSPICIOUS = {"ACTIVITY_ALERT_WINDOW_PURCHASES": "4"}
"""The load's customers buy twice in a run; with this limit some tenths of a percent of the purchases cause alerts."""


OWN = {"ACTIVITY_STREAMS", "ACTIVITY_PLACEMENT"}
"""What a run has in its environment from the options alone, whoever exported it."""


def measure_freshness(folder: Path) -> Figures:
    """Seconds until a purchase is in the view and in gold, processor seconds for a million of them, and memory.

    Where alerts are published, too, seconds until an alert is on its topic after the purchase that caused it.
    """
    result = freshness(OPTIONS, folder)
    (run,) = result["runs"]
    if run["status"] != OK:
        raise RuntimeError(f"the run does not count: {run['status']} {run.get('error', '')}")
    told = run.get("alert_freshness")
    return {
        "view p50, s": run["freshness"]["p50_seconds"],
        "view p95, s": run["freshness"]["p95_seconds"],
        "gold p50, s": run["gold_freshness"]["p50_seconds"],
        **({"alert p50, s": told["p50_seconds"], "alert p95, s": told["p95_seconds"]} if told else {}),
        "processor, s per million": run["per_million_purchases"]["cpu_seconds"],
        "memory, MB": run["total_megabytes"],
    }


def measure_backlog(folder: Path) -> Figures:
    """Seconds until 2 million purchases and 200,000 profiles that wait are in the view, and memory."""
    with environment.opened(folder, keep=False) as settings:
        load.backlog(settings, OPTIONS.backlog_customers, OPTIONS.backlog_purchases)
        own = environment.beside(settings, "backlog")
        run = drain(own, OURS, OPTIONS.backlog_customers, OPTIONS.backlog_purchases)
    if run["status"] != OK:
        raise RuntimeError(f"the run does not count: {run['status']}")
    return {
        "all in the view, s": run["seconds"],
        "processor, s per million": run["cpu_seconds_per_million"],
        "memory, MB": run["total_megabytes"],
    }


def measure_cold_start(folder: Path) -> Figures:
    """Seconds from a process's start to its first record, without a lake and with one."""
    result = cold_start(OPTIONS, folder)
    (run,) = result["runs"]
    if run["status"] != OK:
        raise RuntimeError(f"the run does not count: {run['status']} {run.get('error', '')}")
    return {
        "first record, s": run["first_record_seconds"],
        "all records, s": run["complete_seconds"],
        "first record of a restart, s": run["restart_seconds"],
    }


def measure_catch_up(folder: Path) -> Figures:
    """Seconds from kill -9 under load until what waited is in the view, and until the view is fresh again."""
    result = catch_up(OPTIONS, folder)
    (run,) = result["runs"]
    if run["status"] != OK:
        raise RuntimeError(f"the run does not count: {run['status']} {run.get('error', '')}")
    return {"what waited, s": run["backlog_covered_seconds"], "fresh again, s": run["fresh_again_seconds"]}


def measure_growth(folder: Path) -> Figures:
    """Seconds of a burst of 500 customers on a small and on a ten times larger table."""
    result = growth(OPTIONS, folder)
    if result["status"] != OK:
        raise RuntimeError(f"the run does not count: {result}")
    small, large = result["sizes"]
    return {
        f"burst at {small['customers']:,} customers, s": small["median_seconds"],
        f"burst at {large['customers']:,} customers, s": large["median_seconds"],
    }


MEASUREMENTS: dict[str, Callable[[Path], Figures]] = {
    "freshness": measure_freshness,
    "backlog": measure_backlog,
    "cold_start": measure_cold_start,
    "catch_up": measure_catch_up,
    "growth": measure_growth,
}


def main(
    other: Annotated[Path, typer.Argument(help="The other checkout, set up.", exists=True, file_okay=False)],
    *,
    runs: Annotated[int, typer.Option(min=1, help="Pairs of each measurement.")] = 5,
    only: Annotated[list[str] | None, typer.Option(help=f"There are: {', '.join(MEASUREMENTS)}.")] = None,
    streams: Annotated[str, typer.Option(help="Optional streams that run in this checkout's runs.")] = "",
    told: Annotated[bool, typer.Option("--told", help="Traces, JSON logs, lineage and metrics in this one's.")] = False,
    placement: Annotated[str, typer.Option(help="ACTIVITY_PLACEMENT in this checkout's runs.")] = "",
    out: Annotated[Path, typer.Option(help="Folder of results, logs and data.")] = TREE / "var" / "beside",
) -> None:
    """Measure both checkouts in turn and say the ratios, this one over the other."""
    names = [name for name in MEASUREMENTS if not only or name in only]
    if unknown := set(only or ()) - set(MEASUREMENTS):
        raise typer.BadParameter(f"no such measurement: {', '.join(sorted(unknown))}")
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    trees = {"other": other.resolve(), "this": TREE}
    own = variables(streams, told=told, placement=placement)
    pairs: dict[str, list[dict[str, Figures]]] = {name: [] for name in names}
    for number in range(1, runs + 1):
        order = list(trees) if number % 2 else list(reversed(trees))
        for name in names:
            folders = {which: out / f"{name}-{number}-{which}" for which in order}
            pairs[name].append(
                {which: measured(trees[which], name, folder, own[which]) for which, folder in folders.items()}
            )
            say(f"{name} {number}: {pairs[name][-1]}")
            summary = {each: summed_up(pairs[each]) for each in names if pairs[each]}
            commits = {which: commit(tree) for which, tree in trees.items()}
            report = {"commits": commits, "variables": own, "summary": summary}
            (out / "beside.json").write_text(json.dumps({**report, "pairs": pairs}, indent=1) + "\n", encoding="utf-8")
    Console().print(as_table(summary))


def variables(streams: str, *, told: bool, placement: str) -> dict[str, dict[str, str]]:
    """Return what the runs of both have in their environment besides."""
    # The other may be from before there were such streams or placements, and refuse a setting that it does not know.
    found: dict[str, dict[str, str]] = {
        "this": {"ACTIVITY_STREAMS": streams} | SUSPICIOUS if streams else {},
        "other": {},
    }
    if placement:
        found["this"]["ACTIVITY_PLACEMENT"] = placement
    if told:
        on = {"ACTIVITY_METRICS": "true", "ACTIVITY_LOG_FORMAT": "json", "ACTIVITY_LINEAGE": "true", load.TRACED: "1"}
        off = {"ACTIVITY_METRICS": "false", "ACTIVITY_LOG_FORMAT": "text", "ACTIVITY_LINEAGE": "false", load.TRACED: ""}
        found["this"] |= on
        found["other"] |= off
    return found


def measured(tree: Path, name: str, folder: Path, more: Mapping[str, str]) -> Figures:
    """Run one measurement in a checkout's own environment, and what more it has.

    Raises:
        subprocess.CalledProcessError: it failed; its log is beside the folder.
    """
    with folder.with_suffix(".log").open("wb") as log:
        child = subprocess.run(
            (tree / ".venv/bin/python", Path(__file__).resolve(), "--measure", name, folder),
            cwd=tree,
            env={name: value for name, value in os.environ.items() if name not in OWN} | dict(more),
            stdout=subprocess.PIPE,
            stderr=log,
            check=True,
        )
    return dict(json.loads(child.stdout.splitlines()[-1]))


def summed_up(pairs: list[dict[str, Figures]]) -> dict[str, dict[str, Any]]:
    """Return of each figure both medians, and of the pairs' ratios (this over the other) median, lowest and highest.

    What only this one has (alerts) has a median alone.
    """
    summary: dict[str, dict[str, Any]] = {}
    for figure in pairs[0]["this"]:
        if figure not in pairs[0]["other"]:
            summary[figure] = {"this": statistics.median(pair["this"][figure] for pair in pairs), "pairs": len(pairs)}
            continue
        ratios = [pair["this"][figure] / pair["other"][figure] for pair in pairs]
        summary[figure] = {
            "other": statistics.median(pair["other"][figure] for pair in pairs),
            "this": statistics.median(pair["this"][figure] for pair in pairs),
            "ratio": round(statistics.median(ratios), 3),
            "ratio_low": round(min(ratios), 3),
            "ratio_high": round(max(ratios), 3),
            "pairs": len(pairs),
        }
    return summary


def commit(tree: Path) -> str:
    """Return the commit of a checkout."""
    command = ("git", "rev-parse", "--short", "HEAD")
    return subprocess.check_output(command, cwd=tree, text=True).strip()


def as_table(summary: dict[str, dict[str, dict[str, Any]]]) -> Table:
    """Lay out medians and ratios for people."""
    table = Table("measurement", "figure", "other", "this", "ratio (median)", "lowest to highest", "pairs")
    for name, figures in summary.items():
        for figure, said in figures.items():
            if "ratio" not in said:
                table.add_row(name, figure, "", f"{said['this']:.2f}", "", "", str(said["pairs"]))
                continue
            spread = f"{said['ratio_low']:.2f} to {said['ratio_high']:.2f}"
            cells = (f"{said['other']:.2f}", f"{said['this']:.2f}", f"{said['ratio']:.2f}", spread, str(said["pairs"]))
            table.add_row(name, figure, *cells)
    return table


def measure(name: str, folder: Path) -> None:
    """Measure once, in the checkout that this process belongs to, and print the figures."""
    print(json.dumps(MEASUREMENTS[name](folder)))  # noqa: T201 - the parent reads it


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], Path(sys.argv[3]))
    else:
        typer.run(main)
