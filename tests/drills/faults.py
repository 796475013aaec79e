"""Faults done to a running pipeline under load, each with the time until the view says everything again.

A drill is worth something when the fault could have done harm: there is progress before it, it is seen to happen, and
there is work left after it. Whether harm was done is for `activity verify` to say, which knows nothing of any of this.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks import environment, load
from benchmarks.pipelines import OURS, Pipeline, PipelineEnded, family
from benchmarks.trial import Trial
from customer_activity.demo.broker import process as broker
from customer_activity.errors import EXIT_TRY_AGAIN
from customer_activity.lake.failpoints import ORDER, REACHED
from customer_activity.settings import Settings
from drills.others import Others
from drills.placements import Placed
from drills.proxy import Fault, Proxy, in_front_of_the_broker
from support.streams import Query

CUSTOMERS = 2_000
PURCHASES_A_LOT, PROFILES_A_LOT = 200, 20
BACKLOG_LOTS = 50  # more than 10,000 records wait for the driver that comes after one that died somewhere
PAUSE_SECONDS = 0.5  # between two lots
FAULT_SECONDS = 90.0  # in which a fault has to happen, load going on
COVERED_SECONDS = 180.0
END_SECONDS = 60.0  # for a driver that must not go on
MERGE_SECONDS = 1.0
# A black hole lasts longer than either Kafka client waits for an answer (30 and 60 s).
DISTURBED_SECONDS = {Fault.LATENCY: 15.0, Fault.RESET: 10.0, Fault.BLACK_HOLE: 70.0}

# Every place that a query's batch comes to. The second commit of a batch is that of its other topic.
PLACES_OF: dict[Query, tuple[str, ...]] = {
    **dict.fromkeys(Query, ("planned", "staged", "committed", "written")),
    **dict.fromkeys((Query.BRONZE, Query.SILVER), ("planned", "staged", "committed", "committed 2", "written")),
    Query.PUBLISH: ("planned", "sending", "published", "written"),
}
PLACES = tuple(f"{query}:{place}" for query, places in PLACES_OF.items() for place in places)


class Outcome(NamedTuple):
    """A fault that happened, and how long it took from the next start until the view said everything again."""

    fault: str
    seconds: float


class Index(StrEnum):
    """What becomes of the local index while the driver is dead."""

    KEPT = "index as it was"
    REMOVED = "index removed"
    EARLIER = "index of earlier put back"
    ELSEWHERE = "new run folder, and no index"


class FaultMissed(Exception):
    """Raised when a fault did not happen, or did not end as it has to: the drill has shown nothing."""


class ProxiedTrial(Trial):
    """A trial whose pipeline reaches the broker through the proxy, and everything else reaches it directly."""

    def __init__(self, settings: Settings, folder: Path, proxy: Proxy, placements: Sequence[Placed]) -> None:
        """Start nothing yet; each start has the next of the placements."""
        super().__init__(settings, OURS, CUSTOMERS, folder)
        self.proxy, self.placements = proxy, placements
        self.run_dir = settings.run_dir

    def start(self) -> Pipeline:
        """Start the pipeline, on the lake that is there or not."""
        self.starts += 1
        changes = {"kafka_bootstrap_servers": self.proxy.address, "run_dir": self.run_dir}
        placed = self.placements[self.starts % len(self.placements)]
        proxied = self.settings.model_copy(update={**changes, **placed})
        return self.resources.enter_context(Pipeline(OURS, proxied, self.folder / f"ours-{self.starts}.log"))


class Drill:
    """A pipeline under load, and what can be done to it."""

    def __init__(self, trial: ProxiedTrial, seed: int) -> None:
        """Fill the lake and start; from here on the view says everything between two faults."""
        self.trial = trial
        self.sender = load.Sender(trial.settings, f"drill{seed}", seed)
        self.others = Others(trial.settings, seed)
        self.saved_index = trial.folder / "index-of-earlier"
        trial.preload()
        self.pipeline = trial.start()
        self._expect_covered()

    def send(self) -> None:
        """Send a lot of everybody's records, and see them confirmed.

        The load's come last: what is waited for is theirs, and a batch that has them has all before them.
        """
        self.others.send()
        random = self.sender.random
        self.sender.send_purchases(random.integers(CUSTOMERS, size=PURCHASES_A_LOT))
        self.sender.send_profiles(random.integers(CUSTOMERS, size=PROFILES_A_LOT))
        self.sender.flush()

    def kill_at(self, place: str, index: Index = Index.KEPT) -> Outcome:
        """End the driver at a fail point; something may become of its index before the next one starts."""
        order = self.trial.run_dir / ORDER
        reached = order.with_name(REACHED)
        reached.unlink(missing_ok=True)
        order.write_text(place, encoding="utf-8")
        deadline = time.monotonic() + FAULT_SECONDS
        while self.pipeline.process.poll() is None:
            if time.monotonic() > deadline:
                raise FaultMissed(f"{place}: not reached in {FAULT_SECONDS:.0f} s")
            self.send()
            time.sleep(PAUSE_SECONDS)
        if not reached.exists() or self.pipeline.process.returncode != -signal.SIGKILL:
            raise FaultMissed(f"{place}: the driver ended by itself: {self.pipeline.last_lines()}")
        self.pipeline.kill()
        self._change_index(index)
        return self._go_on(place if index is Index.KEPT else f"{place}, {index}")

    def _change_index(self, index: Index) -> None:
        """Do what becomes of the index; keep a copy for one who comes back with it later."""
        folder = self.trial.settings.index_dir
        if index is Index.KEPT:
            if folder.exists() and not self.saved_index.exists():
                shutil.copytree(folder, self.saved_index)
            return
        shutil.rmtree(folder)
        if index is Index.EARLIER:
            shutil.copytree(self.saved_index, folder)
        if index is Index.ELSEWHERE:
            self.trial.run_dir = self.trial.settings.run_dir.with_name(f"run-{self.trial.starts}")

    def add_partitions(self) -> Outcome:
        """Give the input topics one more partition each under load; the driver has to find it by itself."""
        self.send()
        self.others.add_partitions()
        self.sender.connect()
        for reader in self.trial.input:
            reader.find_partitions()
        started = time.monotonic()
        self.send()
        self._expect_covered()
        return Outcome("partitions added", round(time.monotonic() - started, 1))

    def kill_somewhen(self) -> Outcome:
        """End the driver and all its processes at a random moment of its work."""
        self.send()
        time.sleep(float(self.sender.random.uniform(0.0, 2.0)))
        return self._go_on("kill -9 at a random moment", lots=BACKLOG_LOTS)

    def freeze(self, *, turns_away: bool = True) -> Outcome:
        """Freeze the driver, let a successor take over, and wake it up again.

        With `turns_away` a second one is started before, while it is at work. A successor of the frozen one waits until
        the lease is over, and the one that wakes then must end by itself. It may have planned a batch in Spark's own
        log before it does: then its successor ends, too, and is started again.
        """
        frozen = self.pipeline
        if turns_away:
            self._expect_end(self.trial.start(), "already runs")
        self.send()
        _signal(frozen, signal.SIGSTOP)
        self.send()
        outcome = self._started("frozen, and woken up after its successor's start")
        _signal(frozen, signal.SIGCONT)
        self.send()
        self._expect_end(frozen, "another driver has taken over")
        try:
            self._expect_covered()
        except PipelineEnded:
            self._expect_end(self.pipeline, "planned a batch in this stream's checkpoint")
            self._started("started again")
        return outcome

    def bounce_broker(self, *, hard: bool) -> Outcome:
        """End the broker under load and start it again; the driver has to live through it."""
        self.send()
        (broker.kill if hard else broker.stop)(self.trial.settings)
        started = time.monotonic()
        broker.start(self.trial.settings)
        self.send()
        self._expect_covered()
        return Outcome(f"broker {'killed' if hard else 'stopped'} and started", round(time.monotonic() - started, 1))

    def disturb(self, fault: Fault) -> Outcome:
        """Disturb every connection of the driver to the broker for a while; it may give up, and is started again."""
        proxy = self.trial.proxy
        hits = proxy.hits
        with proxy.at_fault(fault):
            until = time.monotonic() + DISTURBED_SECONDS[fault]
            while time.monotonic() < until:
                self.send()
                time.sleep(PAUSE_SECONDS)
        if proxy.hits == hits:
            raise FaultMissed(f"{fault}: nothing passed through the proxy meanwhile")
        started = time.monotonic()
        if (code := self.pipeline.process.poll()) is not None:
            if code != EXIT_TRY_AGAIN:
                raise FaultMissed(f"{fault}: the driver ended with {code}: {self.pipeline.last_lines()}")
            self.pipeline.kill()
            self.pipeline = self.trial.start()
        self._expect_covered()
        return Outcome(f"network: {fault}", round(time.monotonic() - started, 1))

    def prove(self) -> dict[str, Any]:
        """Stop the driver and let `activity verify` compare; start it again with `resume`."""
        return self.trial.finish(self.pipeline)

    def resume(self) -> None:
        """Start again after a proof, and see that the driver is at work."""
        self.send()
        self.pipeline = self.trial.start()
        self._expect_covered()

    def _go_on(self, fault: str, *, lots: int = 1) -> Outcome:
        """Make sure that nothing is left of the driver, leave work for the next one, and start that."""
        self.pipeline.kill()
        for _ in range(lots):
            self.send()
        return self._started(fault)

    def _started(self, fault: str) -> Outcome:
        started = time.monotonic()
        self.pipeline = self.trial.start()
        self._expect_covered()
        return Outcome(fault, round(time.monotonic() - started, 1))

    def _expect_covered(self) -> None:
        self.trial.expect_covered(self.pipeline, COVERED_SECONDS)

    def _expect_end(self, pipeline: Pipeline, message: str) -> None:
        code = pipeline.process.wait(END_SECONDS)
        pipeline.kill()  # its sampler, and whatever it left
        if code != EXIT_TRY_AGAIN or message not in pipeline.log.read_text(encoding="utf-8"):
            raise FaultMissed(f"a driver that must not run ended with {code}: {pipeline.last_lines()}")


@contextmanager
def opened(folder: Path, seed: int, placements: Sequence[Placed] = ({},)) -> Iterator[Drill]:
    """Open a drill on a broker and a lake of its own; ends whatever it started.

    Args:
        folder: of the lake, the broker and all logs.
        seed: of the load.
        placements: where drivers work on batches, in turn.
    """
    with in_front_of_the_broker() as proxy, environment.opened(folder) as settings:
        trial = ProxiedTrial(drilled(settings), folder, proxy, placements)
        with trial.resources:
            yield Drill(trial, seed)


def drilled(settings: Settings) -> Settings:
    """Return settings with fail points on, and merges often enough to be hit."""
    return settings.model_copy(update={"fail_points": True, "merge_seconds": MERGE_SECONDS})


def _signal(pipeline: Pipeline, number: signal.Signals) -> None:
    for process in family(pipeline.process.pid):
        try:
            os.kill(process.pid, number)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
