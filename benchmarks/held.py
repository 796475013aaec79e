"""What starts, small and large batches cost where silver and gold hold much, beside the same where they hold little.

    .venv/bin/python benchmarks/held.py [--ids 1000000 --ids 100000000] [--way auto] [--large 1000000]
        [--bursts 20] [--workers 0] [--keep] [--out DIR]

For each number of purchase ids, with a tenth as many customers: a fresh broker and lake, and tables made as files
(`held_tables.py`). Then in each way of placing batches: what large batches need of the past is made by the pipeline's
own code (`catch_up`); the streams of the hot path start seven times with a purchase waiting, take bursts of 500
purchases one by one in three lots, two large batches, merge what came into the tables of current rows, and start once
more, when local state, where there is any, has the large batches to take in. The sizes take turns at each of these, so
that a machine that slows down meanwhile slows down all of them. All are asked for purchases of the same customers,
those of the smallest, except for the second large batch: that is of all customers that a size has, so of more rows in
gold where there are more. At the end the largest is compared with the smallest.
"""

from __future__ import annotations

import json
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

if not __package__:  # run as a file: only its own folder is searched; the tests have a cluster
    sys.path[:1] = [str(Path(__file__).resolve().parents[1] / folder) for folder in ("", "tests")]

import numpy as np
import psutil
import typer
from rich.console import Console

from benchmarks import drains, environment, held_tables, lag, load, reading
from benchmarks.drains import drain
from benchmarks.held_figures import BURST, as_table
from benchmarks.held_tables import Held
from benchmarks.pipelines import Command, Pipeline
from benchmarks.trial import attempt, say
from benchmarks.usage import MEGABYTE, Sampler
from customer_activity.settings import PROJECT, Settings
from support import cluster

SIZES = (1_000_000, 100_000_000)
IDS_A_CUSTOMER = 10
FEWEST = BURST * IDS_A_CUSTOMER  # the purchases of a burst are of different customers
STARTS = 7  # odd, and so many, since single ones differ by a factor of two
LOTS = 3  # of bursts, each with a start
WARM_UP = 5  # bursts of a lot that do not count
IN_VIEW_SECONDS = 600.0
LOOK_SECONDS = 0.05
HOT_PATH = ("bronze", "silver", "gold", "publish")
BEHIND = ("summaries", "profiles", "activity")
HOT = Command("hot path", drains.driver_of(HOT_PATH))
# By name, how batches are placed, and how what they need of the past is made before.
WAYS: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "auto": ({}, {}),  # as settings have it: with little held silver keeps local state, with much it does not
    "driver": ({"placement": "driver"}, {"placement": "driver"}),
    "executors": ({"placement": "executors"}, {"placement": "executors"}),
    "no local state": ({"placement": "auto", "local_state_gb": 0.0}, {"placement": "executors", "local_state_gb": 0.0}),
}


class World(NamedTuple):
    """Where one way of placing batches is measured.

    Attributes:
        settings: for the way.
        held: what the tables hold.
        drawn: so many customers' purchases are sent.
        folder: of logs.
        workers: of a cluster.
        view: reads the view's topic on.
    """

    settings: Settings
    held: Held
    drawn: int
    folder: Path
    workers: Sequence[psutil.Process]
    view: reading.ViewReader


def main(
    *,
    ids: Annotated[list[int] | None, typer.Option(min=FEWEST, help="Purchase ids that the tables hold.")] = None,
    way: Annotated[list[str] | None, typer.Option(help=f"There are: {', '.join(WAYS)}.")] = None,
    large: Annotated[int, typer.Option(min=1, help="Purchases of the large batch.")] = 1_000_000,
    bursts: Annotated[int, typer.Option(min=WARM_UP + 1, help=f"Of {BURST} purchases a lot; {WARM_UP} warm up.")] = 20,
    workers: Annotated[int, typer.Option(min=0, help="Of a cluster; 0: executors are the driver's threads.")] = 0,
    keep: Annotated[bool, typer.Option("--keep", help="Leave lakes and topics in the folder.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of results, logs and data.")] = PROJECT / "var" / "held",
) -> None:
    """Measure, print the figures of each size beside each other, and write all of them to <out>/held.json.

    Exit 1 where a way of placing batches could not be measured.
    """
    ways = way or ["auto"]
    if unknown := set(ways) - set(WAYS):
        raise typer.BadParameter(f"no such way: {', '.join(sorted(unknown))}; there are {', '.join(WAYS)}")
    sizes = sorted(set(ids or SIZES))  # each has a folder of its own
    if odd := [size for size in sizes if size % IDS_A_CUSTOMER]:
        raise typer.BadParameter(f"{odd[0]} ids are no multiple of {IDS_A_CUSTOMER}, the purchases of each customer")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that whatever was started is ended
    out = out.resolve()
    found: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        master, processes = stack.enter_context(cluster_of(workers, out))
        worlds, made = [], {}
        for size in sizes:
            settings = stack.enter_context(environment.opened(out / str(size), keep=keep))
            held = Held(size, size // IDS_A_CUSTOMER, settings.currency)
            made[str(size)] = fill(settings, held)
            here = settings.model_copy(update={**master, "max_offsets_per_trigger": 2 * large})
            view = stack.enter_context(reading.ViewReader(settings))
            worlds.append(World(here, held, sizes[0] // IDS_A_CUSTOMER, out / str(size), processes, view))
        for name in ways:
            found[name] = attempt(partial(measure, name, worlds, large, bursts))
            (out / "held.json").write_text(json.dumps({"made": made, "ways": found}, indent=1), encoding="utf-8")
    for name, of_way in found.items():
        if of_way["status"] == "ok":
            Console(width=160).print(as_table(name, of_way["sizes"]))
    if any(of_way["status"] != "ok" for of_way in found.values()):
        raise typer.Exit(1)


@contextmanager
def cluster_of(workers: int, out: Path) -> Iterator[tuple[dict[str, Any], Sequence[psutil.Process]]]:
    """Run a cluster of so many workers, if any; yield settings that name it, and its workers."""
    out.mkdir(parents=True, exist_ok=True)
    with cluster.running(out, workers=workers) if workers else nullcontext() as found:
        yield ({}, ()) if found is None else ({"spark_master": found.address}, found.workers)


def fill(settings: Settings, held: Held) -> dict[str, Any]:
    """Have all streams read something, make tables that hold much, and have the streams go past that."""
    lag.run(settings, *lag.TRAFFIC)
    lag.run(settings, "stream", "--available-now")
    made = held_tables.make(settings, held)
    lag.run(settings, *lag.TRAFFIC, "--seed", "2")
    lag.run(settings, "stream", "--available-now")
    held_tables.forget(settings)
    return made


def measure(name: str, worlds: Sequence[World], large: int, bursts: int) -> dict[str, Any]:
    """Measure one way of placing batches on tables that are filled, the worlds in turn; return figures by size."""
    usual, before = WAYS[name]
    own = [world._replace(folder=world.folder / name) for world in worlds]
    of_past = in_turn([placed(world, before) for world in own], catch_up)
    here = [placed(world, usual) for world in own]
    starts = [in_turn(here, partial(start_and_stop, number=number)) for number in range(STARTS)]
    small = [in_turn(here, partial(small_batches, bursts=bursts)) for _ in range(LOTS)]
    taken = in_turn(here, partial(large_batch, purchases=large))
    spread = in_turn(here, partial(large_batch, purchases=large, of_all=True))
    behind = in_turn(here, merge)
    after = in_turn(here, partial(start_and_stop, number=STARTS + 1))
    sizes = {
        size: {
            **of_past[size],
            "starts": [start[size] for start in starts],
            "small": [lot[size] for lot in small],
            "large": taken[size],
            "spread": spread[size],
            "behind": behind[size],
            "after": after[size],
        }
        for size in of_past
    }
    return {"status": "ok", "sizes": sizes}


def in_turn(worlds: Sequence[World], step: Callable[[World], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Take a step in each of the worlds; return what they brought by the size of the tables."""
    found = {}
    for world in worlds:
        say(f"{world.held.ids:,} ids, {world.folder.name}")
        found[str(world.held.ids)] = step(world)
    return found


def placed(world: World, update: Mapping[str, Any]) -> World:
    """Return the world with batches placed another way.

    Raises:
        ValueError: this version has no such setting.
    """
    if unknown := set(update) - set(Settings.model_fields):
        raise ValueError(f"there is no setting {', '.join(sorted(unknown))} here")
    return world._replace(settings=world.settings.model_copy(update=dict(update)))


def catch_up(world: World) -> dict[str, Any]:
    """Have silver and gold make what they need of the past, for a purchase and a profile; return what that took."""
    sender = sender_of(world)
    other = np.array([STARTS])  # what waits for publishing at the first start is not what that waits for
    sender.send_purchases(other)
    sender.send_profiles(other)
    sender.flush()
    drain(world.settings, ["bronze"], world.folder, world.workers)
    took = {query: drain(world.settings, [query], world.folder, world.workers) for query in ("silver", "gold")}
    runs, local = Path(world.settings.lake, "_state"), world.settings.index_dir
    return {"catch_up": took, "sorted_runs_mb": megabytes(runs), "local_state_mb": megabytes(local)}


def megabytes(folder: Path) -> int:
    """Return what a folder holds, if it is there."""
    return round(environment.stored(folder)["bytes"] / MEGABYTE) if folder.exists() else 0


def sender_of(world: World) -> load.Sender:
    """Return a producer whose purchases have ids that none had before, anywhere among those that are held."""
    return load.Sender(world.settings, f"held{time.time_ns() // 1_000_000}", mixed=True)


@contextmanager
def streams(world: World, name: str) -> Iterator[tuple[Pipeline, dict[str, Any]]]:
    """Run the hot path; stop it, and fill in what it used of memory."""
    world.folder.mkdir(parents=True, exist_ok=True)
    log = world.folder / f"{name}.log"
    log.unlink(missing_ok=True)
    with ExitStack() as stack:
        samplers = [Sampler(worker.pid) for worker in world.workers]
        for sampler in samplers:
            stack.callback(sampler.stop)
        pipeline = stack.enter_context(Pipeline(HOT, world.settings, log))
        used: dict[str, Any] = {}
        yield pipeline, used
        pipeline.stop()
        peaks = [sampler.peaks() for sampler in (pipeline.usage, *samplers)]
        used["peak_mb"] = sum(peak["total_megabytes"] for peak in peaks)
        used["own_mb"] = sum(peak["own_megabytes"] for peak in peaks)


def start_and_stop(world: World, number: int) -> dict[str, Any]:
    """Start the hot path with a purchase waiting; return the seconds until that is in the view."""
    sender = sender_of(world)
    sender.send_purchases(np.array([number]))
    sender.flush()
    world.view.read_on()
    known = len(world.view.customers)
    with streams(world, f"start-{number}") as (pipeline, used):
        seen_ms = in_view(world.view, pipeline, known, {number})
        seconds = round((seen_ms - pipeline.started_ms) / 1000, 2)
    say(f"  start {number + 1}: in the view after {seconds} s")
    return {"seconds": seconds, **used}


def in_view(view: reading.ViewReader, pipeline: Pipeline, known: int, wanted: set[int]) -> int:
    """Wait until each of some customers has a record behind those known; return when the last one came, epoch ms.

    Raises:
        AssertionError: it does not count what the tables hold.
        TimeoutError: that takes too long.
    """
    deadline = time.monotonic() + IN_VIEW_SECONDS
    while not wanted.issubset(view.customers[known:]):
        pipeline.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"not in the view after {IN_VIEW_SECONDS:.0f} s")
        time.sleep(LOOK_SECONDS)
        view.read_on()
    if (fewest := min(view.counts[known:])) <= IDS_A_CUSTOMER:
        raise AssertionError(f"the view counts {fewest} purchases of a customer who has {IDS_A_CUSTOMER} and one more")
    return max(view.timestamps[known:])


def small_batches(world: World, bursts: int) -> dict[str, Any]:
    """Send a lot of bursts, each when the one before is in the view; return the seconds until then, and of batches."""
    sender, latencies = sender_of(world), []
    with streams(world, "bursts") as (pipeline, used):
        for _ in range(bursts):
            chosen = sender.random.choice(world.drawn, size=BURST, replace=False)
            world.view.read_on()
            known = len(world.view.customers)
            sender.send_purchases(chosen)
            sent_ms = time.time() * 1000
            sender.flush()
            latencies.append((in_view(world.view, pipeline, known, set(chosen.tolist())) - sent_ms) / 1000)
        lines = pipeline.log.read_text(encoding="utf-8").splitlines()
    figures: dict[str, Any] = {"in_view_seconds": latencies[WARM_UP:], **used}
    for query in HOT_PATH:
        seconds = [batch.seconds for batch in drains.batches(lines) if batch.query == query and batch.rows > BURST // 2]
        figures[f"{query}_seconds"] = seconds[WARM_UP:]
    say(f"  {BURST} purchases: {statistics.median(figures['in_view_seconds']):.3f} s")
    return figures


def large_batch(world: World, purchases: int, *, of_all: bool = False) -> dict[str, Any]:
    """Send a large batch, of all customers that the tables hold if asked; let silver and gold take it as one each."""
    customers = world.held.customers if of_all else world.drawn
    label = f"large{time.time_ns() // 1_000_000}"
    load.backlog(world.settings, customers, purchases, label, profiles=False, mixed=True)
    drain(world.settings, ["bronze"], world.folder, world.workers)
    return {query: drain(world.settings, [query], world.folder, world.workers) for query in ("silver", "gold")}


def merge(world: World) -> dict[str, Any]:
    """Publish what waits, and merge what came into the tables of current rows; return what that took."""
    return drain(world.settings, [HOT_PATH[-1], *BEHIND], world.folder, world.workers)


if __name__ == "__main__":
    typer.run(main)
