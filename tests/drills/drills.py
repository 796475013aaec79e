"""`make drills`: kill, freeze and cut off the running pipeline again and again, and prove each time that it is right.

    .venv/bin/python tests/drills/drills.py [--seed N] [--rounds 7] [--random 20] [--bounces 6]
        [--networks 1] [--zombies 3] [--indexes 1] [--switched]

A round ends the driver once at every fail point of every query. After each round, and at the end, `activity verify`
compares the lake and the topic with the input, and every batch has to begin where the one before ended. Exit 1 when
anything differs, a fault did not happen, or a driver did not come back by itself.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

if not __package__:  # run as a file: only its own folder is searched, and packages lie in the two above
    sys.path[:1] = [str(folder) for folder in Path(__file__).resolve().parents[1:3]]

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.trial import say
from customer_activity.settings import PROJECT
from drills import proxy as network
from drills.faults import PLACES, Index, Outcome, opened
from drills.placements import PLACED
from drills.proofs import leaks, seams

Drilled = Callable[[], Outcome]
OF_INDEXES = ("silver:committed", "gold:committed", "gold:planned")  # whose past is in an index


def main(
    *,
    seed: Annotated[int, typer.Option(help="Of the load and of the random moments.")] = 1,
    rounds: Annotated[int, typer.Option(min=0, help="Kills at each of the fail points.")] = 7,
    random: Annotated[int, typer.Option(min=0, help="Kills at random moments.")] = 20,
    bounces: Annotated[int, typer.Option(min=0, help="Bounces of the broker, hard and clean in turn.")] = 6,
    networks: Annotated[int, typer.Option(min=0, help="Turns of a slow, a cut and a silent network.")] = 1,
    zombies: Annotated[int, typer.Option(min=0, help="Drivers that are frozen, and wake too late.")] = 3,
    indexes: Annotated[int, typer.Option(min=0, help="Turns of kills after which the index is gone or old.")] = 1,
    switched: Annotated[
        bool, typer.Option(help="Each driver places batches another way; the index is left alone.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder of the logs and data.")] = PROJECT / "var" / "drills",
) -> None:
    """Do all faults, print what they cost, and exit 1 when anything is wrong at the end of a part."""
    say(f"seed {seed}")
    with opened(out.resolve(), seed, PLACED if switched else ({},)) as drill:
        parts: list[list[Drilled]] = [[partial(drill.kill_at, place) for place in PLACES] for _ in range(rounds)]
        parts.append([drill.add_partitions])
        parts.append([drill.kill_somewhen] * random)
        parts.append([partial(drill.bounce_broker, hard=number % 2 == 0) for number in range(bounces)])
        parts.append([partial(drill.disturb, fault) for _ in range(networks) for fault in network.Fault])
        parts.append([drill.freeze] * zombies)
        parts.append(
            [
                partial(drill.kill_at, place, index)
                for _ in range(0 if switched else indexes)
                for place in OF_INDEXES
                for index in Index
            ]
        )
        outcomes: dict[str, list[float]] = defaultdict(list)
        differences: dict[str, int] = {}
        for part in filter(None, parts):
            done = list(_done(part))
            proof = drill.prove()["verify"]
            torn = seams(drill.trial.settings.lake)
            for line in torn:
                say(f"  {line}")
            is_right = proof["equal"] and not torn
            for outcome in done:
                outcomes[outcome.fault].append(outcome.seconds)
                differences[outcome.fault] = differences.get(outcome.fault, 0) + (not is_right)
            if not is_right:
                break
            drill.resume()
        Console().print(as_table(outcomes, differences))
    if told := leaks(out):
        say(f"personal data in {', '.join(told)}")
    if told or any(differences.values()):
        raise typer.Exit(1)


def _done(faults: list[Drilled]) -> Iterator[Outcome]:
    for fault in faults:
        outcome = fault()
        say(f"  {outcome.fault}: {outcome.seconds} s")
        yield outcome


def as_table(outcomes: dict[str, list[float]], differences: dict[str, int]) -> Table:
    """One line a fault: how often, how long until the view said everything again, in how many proofs it differed."""
    table = Table("fault", "times", "median s", "worst s", "differences")
    for fault, seconds in outcomes.items():
        row = (len(seconds), statistics.median(seconds), max(seconds), differences[fault])
        table.add_row(fault, *(f"{value:g}" for value in row))
    every = [second for seconds in outcomes.values() for second in seconds]
    if len(every) > 1:
        p95 = statistics.quantiles(every, n=20, method="inclusive")[-1]
        table.add_section()
        table.add_row("all", f"{len(every)}", f"{statistics.median(every):g}", f"{max(every):g} (p95 {p95:g})", "")
    return table


if __name__ == "__main__":
    typer.run(main)
