"""A trial: one pipeline on a broker of its own, from the first profile to the proof that its result is right."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import environment, lake, load, reading
from benchmarks.freshness import Floats, Purchases, quantiles, seconds_until_covered, summary, within
from benchmarks.pipelines import OURS, Command, Pipeline, verify
from benchmarks.usage import per_million
from customer_activity.settings import Settings

PRELOAD_SECONDS = 600.0  # until the profiles of 2 million customers are in the view
DRAIN_SECONDS = 60.0  # after the load, for what is under way
CATCH_UP_SECONDS = 300.0  # one that is further behind still gets the chance to be proved right
SETTLE_SECONDS = 2.0  # between the profiles in the view and the first purchase

# What most scenarios load a pipeline with; each customer has a profile.
CUSTOMERS = 20_000
PURCHASES_PER_SECOND = 500
PROFILES_PER_SECOND = 20


@dataclass(frozen=True)
class Options:
    """How long and how often scenarios run.

    Attributes:
        repeat: runs of the scenarios that are repeated.
        warmup_seconds: of load before a measurement.
        measure_seconds: of load that is measured.
        steady_minutes: length of `steady`.
        backlog_purchases: waiting in `backlog`.
        backlog_customers: with a profile each, in `backlog`.
        judged_purchases: in the lake before `judged` begins.
        growth_customers: table sizes of `growth`.
        rates: purchases per second that `rate` tries, in this order.
        keep: leave lakes and topics in the output folder.
    """

    repeat: int = 3
    warmup_seconds: float = 60.0
    measure_seconds: float = 60.0
    steady_minutes: float = 30.0
    backlog_purchases: int = 2_000_000
    backlog_customers: int = 200_000
    judged_purchases: int = 1_500_000
    growth_customers: tuple[int, ...] = (20_000, 200_000, 2_000_000)
    rates: tuple[int, ...] = (5_000, 10_000, 15_000, 20_000)
    keep: bool = False


def say(line: str) -> None:
    """Tell on standard error what is going on."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)  # noqa: T201 - progress is its purpose


def attempt(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run one of several measurements; a failure is its result, and the others still run."""
    try:
        return measure()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is recorded
        traceback.print_exc()
        return {"status": "failed", "error": f"{type(error).__name__}: {error}"}


def repeated(
    options: Options, folder: Path, measure: Callable[[Options, Path], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Measure as often as the options say, each time in a folder of its own."""
    return [attempt(partial(measure, options, folder / str(number))) for number in range(1, options.repeat + 1)]


class Trial:
    """A pipeline at work on its broker, with readers for what it is given and what it publishes."""

    def __init__(self, settings: Settings, command: Command, customers: int, folder: Path) -> None:
        """Start nothing yet."""
        self.settings = settings
        self.command = command
        self.customers = customers
        self.folder = folder
        self.starts = 0
        self.resources = ExitStack()
        self.input = reading.Input.of(settings)
        for reader in self.input:
            self.resources.enter_context(reader)
        self.view = self.resources.enter_context(reading.ViewReader(settings))

    def start(self) -> Pipeline:
        """Start the pipeline, on the lake that is there or not."""
        self.starts += 1
        log = self.folder / f"{self.command.name}-{self.starts}.log"
        return self.resources.enter_context(Pipeline(self.command, self.settings, log))

    def preload(self, purchases: int = 0) -> None:
        """Put a profile of every customer on its topic, and purchases behind them."""
        report = load.backlog(self.settings, self.customers, purchases, label="preload")
        say(f"  {report.profiles:,} profiles and {report.purchases:,} purchases are waiting ({report.seconds:.1f} s)")

    def begin(self, purchases: int = 0) -> Pipeline:
        """Preload and start; everything is in the view, and the machine at rest, when the pipeline is returned."""
        self.preload(purchases)
        pipeline = self.start()
        self.expect_covered(pipeline)
        time.sleep(SETTLE_SECONDS)
        return pipeline

    def wait_until_covered(self, pipeline: Pipeline, seconds: float) -> bool:
        """Wait until the view says what was sent so far; return False when time is over."""
        started = time.monotonic()
        expected = self.input.expected(self.customers)
        is_covered = self.view.wait_until_says(expected, seconds, pipeline.check)
        took = time.monotonic() - started
        say(f"  {'everything' if is_covered else 'NOT everything'} in the view after {took:.1f} s")
        return is_covered

    def quiesce(self, pipeline: Pipeline) -> None:
        """Give ours the time that it needs until its tables and the view say everything; a peer is taken as it is."""
        if self.command is not OURS:
            return
        expected = self.input.expected(self.customers)
        lake.wait_until_says(self.settings, expected, CATCH_UP_SECONDS, pipeline.check)
        self.view.wait_until_says(expected, CATCH_UP_SECONDS, pipeline.check)

    def expect_covered(self, pipeline: Pipeline, seconds: float = PRELOAD_SECONDS) -> None:
        """Wait until the view says what was sent so far.

        Raises:
            TimeoutError: it does not come to.
        """
        if not self.wait_until_covered(pipeline, seconds):
            raise TimeoutError(f"{self.command.name}: not everything was in the view after {seconds:.0f} s")

    def freshness(self, start_ms: float, end_ms: float) -> tuple[Purchases, Floats]:
        """Return the purchases sent in a window and each one's freshness in seconds."""
        self.view.read_on()
        purchases = self.input.all_purchases()
        chosen = within(purchases, start_ms, end_ms)
        seconds = seconds_until_covered(purchases, self.view.records())
        return Purchases(purchases.customer[chosen], purchases.sent_ms[chosen]), seconds[chosen]

    def finish(self, pipeline: Pipeline) -> dict[str, Any]:
        """Stop the pipeline; ours must then be proved right: `status`, `verify`, what is stored in its lake."""
        self.quiesce(pipeline)
        say(f"  stopping {self.command.name}")
        pipeline.stop()
        result: dict[str, Any] = {"lake": environment.stored(Path(self.settings.lake)), **pipeline.usage.peaks()}
        if self.command is not OURS:
            return {"status": "ok", **result}
        say("  verifying")
        proof = verify(self.settings, self.folder / "verify.log")
        say(f"  {proof['verdict']} ({proof['seconds']} s)")
        return {
            "status": "ok" if proof["equal"] else "invalid",
            "verify_equal": proof["equal"],
            "verify": proof,
            **result,
        }


@contextmanager
def opened(folder: Path, command: Command, customers: int, *, keep: bool = False) -> Iterator[Trial]:
    """Open a trial on a fresh broker; ends whatever it started."""
    with environment.opened(folder, keep=keep) as settings:
        trial = Trial(settings, command, customers, folder)
        with trial.resources:
            yield trial


class Measured(NamedTuple):
    """What a run under load brought.

    Attributes:
        result: for the results file.
        purchases: those sent while it was measured.
        seconds: freshness of each of them; infinite where it never was in the view.
        start_ms: begin of the measurement, epoch milliseconds.
        end_ms: its end.
        pipeline: what was measured, ended.
    """

    result: dict[str, Any]
    purchases: Purchases
    seconds: Floats
    start_ms: float
    end_ms: float
    pipeline: Pipeline


def under_load(
    folder: Path,
    command: Command,
    options: Options,
    *,
    profiles_per_second: int = PROFILES_PER_SECOND,
) -> Measured:
    """Run one pipeline under steady load after a warm-up and sum its freshness up.

    Every customer's profile is in the view before the load starts.
    """
    with opened(folder, command, CUSTOMERS, keep=options.keep) as trial:
        pipeline = trial.begin()
        seconds = options.warmup_seconds + options.measure_seconds
        schedule = load.Schedule(CUSTOMERS, PURCHASES_PER_SECOND, profiles_per_second, seconds)
        say(f"  {command.name}: {PURCHASES_PER_SECOND}/s + {profiles_per_second}/s for {seconds:.0f} s")
        with load.running(trial.settings, schedule) as sending:
            report = watched(sending, pipeline)
        is_covered = trial.wait_until_covered(pipeline, DRAIN_SECONDS)
        observed_ms = time.time() * 1000
        start_ms = report.started_ms + options.warmup_seconds * 1000
        end_ms = start_ms + options.measure_seconds * 1000
        used = pipeline.usage.between(start_ms, end_ms)
        purchases, freshness = trial.freshness(start_ms, end_ms)
        # Whoever is not in the view yet has waited at least until now.
        at_least = np.minimum(freshness, (observed_ms - purchases.sent_ms) / 1000)
        result = {
            "freshness": summary(freshness),
            "p50_at_least_seconds": round(float(np.median(at_least)), 3),
            "quantiles_seconds": quantiles(freshness),
            "view_covers_everything": is_covered,
            "load": report._asdict(),
            "used": used,
            "per_million_purchases": per_million(used, PURCHASES_PER_SECOND),
        }
        say(f"  {result['freshness']}")
        ending = trial.finish(pipeline)
        if command is OURS:
            result["gold_freshness"] = gold_freshness(trial, start_ms, end_ms)
        if "publish_alerts" in trial.settings.optional_streams:
            result["alert_freshness"] = alert_freshness(trial, start_ms, end_ms)
        return Measured({**ending, **result}, purchases, freshness, start_ms, end_ms, pipeline)


def watched(sending: Future[load.LoadReport], pipeline: Pipeline) -> load.LoadReport:
    """Wait for the end of the load.

    Raises:
        PipelineEnded: the pipeline did not live to see it.
    """
    while not sending.done():
        pipeline.check()
        time.sleep(1.0)
    return sending.result()


def gold_freshness(trial: Trial, start_ms: float, end_ms: float) -> dict[str, Any]:
    """Sum up how long the purchases of a window took to be readable in gold."""
    purchases = trial.input.all_purchases()
    seconds = seconds_until_covered(purchases, lake.gold_records(trial.settings))
    return summary(seconds[within(purchases, start_ms, end_ms)])


def alert_freshness(trial: Trial, start_ms: float, end_ms: float) -> dict[str, Any]:
    """Sum up how long after the purchases of a window that caused an alert it was on its topic."""
    sent_ms, published_ms = reading.alerts(trial.settings)
    chosen = (sent_ms >= start_ms) & (sent_ms < end_ms)
    return summary((published_ms - sent_ms)[chosen] / 1000)
