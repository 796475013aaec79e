"""Kill drivers and workers, kill and freeze executors of a standalone cluster, and prove that nothing differs.

    .venv/bin/python tests/drills/on_cluster.py [--seed N] [--rounds 20] [--only driver ...] [--speculation] [--out DIR]

All rounds live in one lake: each sends more purchases than a small batch has, of which some were sent before and some
say something else, and small batches besides. A fault comes at a random moment; then another driver, with another
placement, takes the rest: driver, executors, automatic, or automatic without local state. `activity verify` compares
the lake and the topic with the input after every few rounds. A fault that comes too late is tried again. Exit 1 when
anything differs, or too many came too late. A worker is killed with its executor, as a machine that is gone, and comes
back for the next round.

With --speculation Spark starts a task that takes long a second time elsewhere, so that an executor that is frozen in
its first stage is overtaken, and its own attempt goes on when it wakes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated

if not __package__:  # run as a file: only its own folder is searched, and packages lie in the two above
    sys.path[:1] = [str(folder) for folder in Path(__file__).resolve().parents[1:3]]

import psutil
import typer

from benchmarks import environment
from benchmarks.trial import say
from customer_activity.lake import failpoints
from customer_activity.settings import PROJECT, Settings
from customer_activity.verification.verify import verify
from drills.placements import PLACED
from support import cluster
from support.broker import send
from support.cluster import Cluster
from support.cluster_work import (
    MANY,
    backlog,
    drain,
    executor_of,
    is_at_work,
    profiles,
    streams,
    until_between_stages,
)
from support.records import profile, purchase, tombstone
from support.streams import Query
from support.waiting import until

KILLED, ALL_KILLED, FROZEN, WORKER = "killed", "all killed", "frozen", "worker"  # executors; one with its worker
FROZEN_SECONDS = 60.0
# Of a batch's beginning: it takes as long, at least.
WITHIN_SECONDS = {
    Query.BRONZE: 1.0,
    Query.SILVER: 1.5,
    Query.GOLD: 0.5,
    Query.SUMMARIES: 0.5,
    Query.PROFILES: 0.5,
    Query.ACTIVITY: 0.5,
}
SPECULATION = """
spark.speculation true
spark.speculation.interval 100ms
spark.speculation.minTaskRuntime 100ms
spark.speculation.multiplier 1.1
spark.speculation.quantile 0.1
spark.speculation.task.duration.threshold 2s
"""
BEHIND = (Query.SUMMARIES, Query.PROFILES, Query.ACTIVITY)
VERIFIED = 5  # after so many rounds, and at the end
BETWEEN_COMMITS = [
    *(f"{query}:{point}" for query in ("bronze", "gold") for point in ("planned", "staged", "committed", "written")),
    *(f"silver:{point} {times}" for point in ("staged", "committed") for times in (1, 2, 3)),
    *("silver:planned", "silver:written", "publish:sending", "publish:published"),
    *(f"{query}:{point}" for query in BEHIND for point in ("planned", "staged", "committed", "written")),
]

Fault = Callable[[Settings, Cluster, Path, Random], bool]  # whether it came in time


def kill_driver(settings: Settings, found: Cluster, log: Path, chance: Random) -> bool:
    """End the driver between two commits; return whether it came to that."""
    order = chance.choice(BETWEEN_COMMITS)
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    (settings.run_dir / failpoints.REACHED).unlink(missing_ok=True)
    (settings.run_dir / failpoints.ORDER).write_text(order, encoding="utf-8")
    placed = chance.choice(PLACED)
    with streams(settings, found, log, fail_points=True, **placed) as driver:
        driver.wait(300)
    is_reached = (settings.run_dir / failpoints.REACHED).exists()
    (settings.run_dir / failpoints.ORDER).unlink(missing_ok=True)
    # Without a second commit of silver's to quarantine, for one, the third is never reached, and the driver drains.
    say(f"  driver, {order}, {placed}: {'killed' if is_reached else 'not reached'}")
    if not is_reached and driver.returncode != 0:
        raise AssertionError(log.read_text(encoding="utf-8")[-2_000:])
    return is_reached


def lose_executors(settings: Settings, found: Cluster, log: Path, chance: Random, done: str) -> bool:
    """Kill or freeze one of the executors, kill all, or one and its worker, while a batch is at work; return if it was.

    It is at a random moment, or, where rows have to come together, as soon as the executor has some for other tasks.
    """
    query = chance.choice(list(WITHIN_SECONDS))
    placed = PLACED[1] if query in BEHIND else chance.choice(PLACED[:2])
    lost = found.workers if done == ALL_KILLED else [chance.choice(found.workers)]
    is_between = query != Query.BRONZE and chance.random() < 0.5
    with streams(settings, found, log, **placed) as driver:
        until(lambda: is_at_work(log, query) or driver.poll() is not None, 300, every=0.02)
        if is_at_it := is_at_work(log, query):
            executors = [executor_of(worker) for worker in lost]  # those of the driver before are gone by now
            if is_between:
                until_between_stages(log, query, executors[0])
            else:
                time.sleep(chance.random() * WITHIN_SECONDS[query])
            is_at_it = is_at_work(log, query)
        if is_at_it and done == FROZEN:
            is_at_it = freeze(executors[0], driver) or found.conf is not None
        elif is_at_it:
            for process in (*(lost if done == WORKER else ()), *executors):
                process.kill()
        if driver.wait(300) != 0:
            raise AssertionError(log.read_text(encoding="utf-8")[-2_000:])
    for worker in lost:
        if done == WORKER and is_at_it:
            found.restart(found.workers.index(worker))
    moment = "between two stages" if is_between else "at some moment"
    say(f"  executor, in {query}'s batch, {moment}, {placed}: {done if is_at_it else 'too late'}")
    return is_at_it


def freeze(executor: psutil.Process, driver: subprocess.Popen[bytes]) -> bool:
    """Suspend an executor for a minute, or until it is overtaken; return whether the driver had to wait for it."""
    executor.suspend()
    with suppress(subprocess.TimeoutExpired):
        driver.wait(FROZEN_SECONDS)
    is_awaited = driver.poll() is None
    say(f"  frozen executor: {'awaited' if is_awaited else 'overtaken'}")
    with suppress(psutil.NoSuchProcess):  # its worker ends it when the driver has ended
        executor.resume()
    return is_awaited


FAULTS: dict[str, Fault] = {
    "driver": kill_driver,
    **{done: partial(lose_executors, done=done) for done in (KILLED, ALL_KILLED, FROZEN, WORKER)},
}


def main(
    *,
    seed: Annotated[int, typer.Option()] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Of each fault.")] = 20,
    only: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(FAULTS)}.")] = None,
    speculation: Annotated[bool, typer.Option("--speculation", help="Start slow tasks twice.")] = False,
    out: Annotated[Path, typer.Option()] = PROJECT / "var" / "on_cluster",
) -> None:
    """Do all faults; exit 1 where anything differs, or as many came too late as came in time."""
    out = out.resolve()
    chance = Random(seed)
    say(f"seed {seed}")
    left = [fault for fault in only or FAULTS for _ in range(rounds)]
    chance.shuffle(left)
    with ExitStack() as stack:
        settings = stack.enter_context(environment.opened(out))
        conf = conf_in(out) if speculation else None
        found = stack.enter_context(cluster.running(out, conf, workers=2))
        send(settings, *profiles())
        for number in range(2 * len(left)):
            begun, log = time.monotonic(), out / f"round-{number}.log"
            send_round(settings, number, chance)
            fault = left.pop()
            if not FAULTS[fault](settings, found, log, chance):
                left.append(fault)
            placed = chance.choice(PLACED)
            drain(settings, found, log.with_suffix(".rest.log"), **placed)
            say(f"round {number}: {fault}, rest by {placed}, {time.monotonic() - begun:.0f} s")
            if (number + 1) % VERIFIED == 0 or not left:
                prove(settings)
            if not left:
                return
    say(f"{len(left)} faults came too late")
    raise typer.Exit(1)


def conf_in(out: Path) -> Path:
    """Write Spark's settings into a folder; return it."""
    folder = out / "conf"
    folder.mkdir(exist_ok=True)
    (folder / "spark-defaults.conf").write_text(SPECULATION, encoding="utf-8")
    return folder


def send_round(settings: Settings, number: int, chance: Random) -> None:
    """Send a large batch's purchases, new ones and some of all rounds before, and what profiles may do."""
    new = backlog(number * MANY, MANY)
    send(settings, *chance.sample(new, MANY // 3))  # which comes twice
    send(settings, *new)
    known = [chance.randrange((number + 1) * MANY) for _ in range(2_000)]
    send(settings, *(purchase(f"P-{which}", "C-hot" if which % 3 == 0 else f"C-{which % 500}") for which in known))
    others = [purchase(f"P-{which}", f"C-{which % 500}", "0.01") for which in known[:20]]
    customer = f"C-{chance.randrange(400)}"
    send(settings, *others, tombstone(customer), profile(f"C-{chance.randrange(400)}", updated=5_000 + number))


def prove(settings: Settings) -> None:
    """Compare the lake and the topic with the input.

    Raises:
        Exit: they differ.
    """
    report = verify(settings, settle_seconds=0)
    wrong = [check.name for check in report.checks if not check.ok]
    say(f"  verify: {report.purchases:,} purchases, {', '.join(wrong) or 'equal'}")
    if wrong:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
