"""`make bench`: measure the pipeline and its peers on this machine, one scenario after the other.

    .venv/bin/python benchmarks/bench.py [--only NAME ...] [--quick] [--out DIR] [--repeat 3] [--page FILE]

Each scenario's result is in <out>/results.json as soon as it is finished; a scenario that is run again replaces its
older result there.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from typing import Annotated

if not __package__:  # run as a file: only its own folder is searched, and the package lies in the one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import results, targets
from benchmarks.pipelines import build_streams
from benchmarks.scenarios import NEEDS_STREAMS, SCENARIOS
from benchmarks.trial import Options, attempt, say
from customer_activity.settings import PROJECT

NAMES = ", ".join(SCENARIOS)
QUICK = Options(
    repeat=1,
    warmup_seconds=20,
    measure_seconds=20,
    steady_minutes=3,
    backlog_purchases=100_000,
    backlog_customers=10_000,
    judged_purchases=50_000,
    growth_customers=(5_000, 20_000),
    rates=(500, 1_000),
)


def main(
    *,
    only: Annotated[
        list[str] | None, typer.Option(help=f"Run this scenario; may be repeated. There are: {NAMES}.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small and short: tries the harness, measures nothing.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder of the results, logs and data.")] = PROJECT / "var" / "bench",
    repeat: Annotated[int | None, typer.Option(min=1, help="Runs of the scenarios that are repeated.")] = None,
    warmup: Annotated[float | None, typer.Option(min=0, help="Seconds of load before a measurement.")] = None,
    measure: Annotated[float | None, typer.Option(min=1, help="Seconds of load that are measured.")] = None,
    steady_minutes: Annotated[float | None, typer.Option(min=1, help="Length of `steady`.")] = None,
    page: Annotated[Path | None, typer.Option(help="Write the results into this page, and plots beside it.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave lakes and topics in the folder.")] = False,
) -> None:
    """Run scenarios and write their results; exit 1 when one failed or did not count."""
    signal.signal(signal.SIGTERM, _interrupt)
    unknown = set(only or ()) - set(SCENARIOS)
    if unknown:
        raise typer.BadParameter(f"no such scenario: {', '.join(sorted(unknown))}; there are {NAMES}")
    usual = QUICK if quick else Options()
    options = replace(
        usual,
        repeat=repeat or usual.repeat,
        warmup_seconds=usual.warmup_seconds if warmup is None else warmup,
        measure_seconds=measure or usual.measure_seconds,
        steady_minutes=steady_minutes or usual.steady_minutes,
        keep=keep,
    )
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    names = [name for name in SCENARIOS if not only or name in only]
    if NEEDS_STREAMS.intersection(names):
        try:
            build_streams()
        except (OSError, subprocess.CalledProcessError) as error:  # its scenarios will fail; the others still run
            say(f"Kafka Streams cannot be built: {error}")
    statuses = [run(name, options, out) for name in names]
    found = out / results.FILE_NAME
    Console().print(as_table(targets.judge_all(results.load(found)["scenarios"])))
    if page is not None:
        from benchmarks.page import write  # noqa: PLC0415 - brings matplotlib, which measuring does not need

        write(found, page, page.parent / "performance")
    if set(statuses) != {results.OK}:
        raise typer.Exit(1)


def run(name: str, options: Options, out: Path) -> str:
    """Run one scenario, record its result, and return its status."""
    say(name)
    result = attempt(lambda: SCENARIOS[name](options, out / "runs" / name))
    path = results.record(out, name, result, asdict(options))
    say(f"{name}: {result['status']}, in {path}")
    return str(result["status"])


def as_table(verdicts: list[targets.Verdict]) -> Table:
    """Lay out for people how the results stand against what must be reached."""
    colours = {targets.AIMED: "green", targets.PASSED: "green", targets.MISSED: "red", targets.UNKNOWN: "dim"}
    table = Table("figure", "measured", "must", "aim", "reached")
    for verdict in verdicts:
        *cells, reached = targets.row(verdict)
        table.add_row(*cells, f"[{colours[reached]}]{reached}[/]")
    return table


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End as on Ctrl-C, so that everything that was started is stopped."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    typer.run(main)
