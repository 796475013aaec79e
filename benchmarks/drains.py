"""Streams that take what waits, in a driver of their own: what driver and executors used of processor and memory.

Three sources, none of which asks the pipeline's own code: the driver's log says when its batches ended and how long
they took, `/proc` what each process tree used meanwhile, and Spark's event log which tasks ran where, for how long, and
how many bytes each of them brought into the driver.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from benchmarks.pipelines import PYTHON, Command, Pipeline
from benchmarks.trial import say
from benchmarks.usage import Sampler
from customer_activity.settings import Settings

RUN_SECONDS = 14_400.0
STOP_SECONDS = 60.0
LOOK_SECONDS = 0.25
POLL_SECONDS = 0.1
DRAINED = "drained"  # a line of the log
BEGIN = """
import json, os, sys
from customer_activity import application, settings
from customer_activity.engine import logs
logs.configure_logging(logs.JSON)
"""
RUN = f"{BEGIN}application.run(settings.load(), sys.argv[1:])"
# A Spark session for each line of its input, which has settings, in one and the same JVM.
DRAIN = f"""{BEGIN}
for line in sys.stdin:
    os.environ.update(json.loads(line))
    application.run(settings.load(), sys.argv[1:], available_now=True)
    print("{DRAINED}", flush=True)
"""
# What Spark's own settings say beside the pipeline's: the driver is refused more than this from its executors.
CONF = """
spark.driver.maxResultSize 64m
spark.eventLog.enabled true
spark.eventLog.dir {folder}
spark.eventLog.compress false
spark.eventLog.rolling.enabled false
"""


class Batch(NamedTuple):
    """A batch as the driver's log tells it.

    Attributes:
        query: whose.
        number: Spark's.
        start_ms: epoch milliseconds.
        end_ms: epoch milliseconds.
        rows: in it.
        told: phases, and where it was worked on.
    """

    query: str
    number: int
    start_ms: float
    end_ms: float
    rows: int
    told: str

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end_ms - self.start_ms) / 1000


class Tasks(NamedTuple):
    """What Spark's tasks were.

    Attributes:
        ended: how many.
        result_bytes: that came into the driver with those of batches, Spark's own accumulators included.
        result_bytes_with_start: with all, so also with those that asked executors whether they see the lake.
        busy_seconds: that tasks were at work, by executor.
    """

    ended: int
    result_bytes: int
    result_bytes_with_start: int
    busy_seconds: dict[str, float]


def batches(lines: Iterable[str]) -> Iterator[Batch]:
    """Yield the batches that a driver's log tells of."""
    for line in (line for line in lines if line.startswith("{")):
        event = json.loads(line)
        if "batch" in event and "phases" in event:
            end_ms = datetime.fromisoformat(event["time"]).timestamp() * 1000
            phases = (f"{name}={millis:.0f}ms" for name, millis in event["phases"].items())
            told = " ".join([*phases, f"{event['place']}: {event['why']}" if "place" in event else ""]).strip()
            yield Batch(event["query"], event["batch"], end_ms - event["seconds"] * 1000, end_ms, event["rows"], told)


def tasks(lines: Iterable[str], start_ms: float) -> Tasks:
    """Sum up the tasks that an event log tells of; one that failed has no result.

    Args:
        lines: of the log.
        start_ms: when the first batch began, epoch milliseconds.
    """
    ended, size, with_start, busy = 0, 0, 0, dict[str, float]()
    for line in lines:
        event = json.loads(line)
        if event["Event"] != "SparkListenerTaskEnd":
            continue
        ended += 1
        measured = event.get("Task Metrics") or {}
        with_start += measured.get("Result Size", 0)
        if event["Task Info"]["Launch Time"] >= start_ms:
            size += measured.get("Result Size", 0)
        executor = event["Task Info"]["Executor ID"]
        busy[executor] = busy.get(executor, 0.0) + measured.get("Executor Run Time", 0) / 1000
    return Tasks(ended, size, with_start, busy)


def conf(folder: Path) -> Path:
    """Write Spark's settings for a driver that is measured into a folder, its event log beside them; return it."""
    (folder / "events").mkdir(parents=True, exist_ok=True)
    (folder / "spark-defaults.conf").write_text(CONF.format(folder=(folder / "events").as_uri()), encoding="utf-8")
    return folder


def driver_of(queries: Sequence[str]) -> tuple[str, ...]:
    """Return the command line of a driver for these very streams: `activity stream` takes those behind them, too."""
    return str(PYTHON), "-c", RUN, *queries


Drain = Callable[[Settings], dict[str, Any]]


def drain(
    settings: Settings, queries: Sequence[str], folder: Path, workers: Sequence[psutil.Process] = ()
) -> dict[str, Any]:
    """Let some streams take what waits, one after the other, in a new driver; return what that took, as `draining`."""
    with draining(settings, queries, folder, workers) as drained:
        return drained(settings)


@contextmanager
def draining(
    settings: Settings, queries: Sequence[str], folder: Path, workers: Sequence[psutil.Process] = ()
) -> Iterator[Drain]:
    """Start a driver for some streams; yield what lets them take what waits, one after the other, and tells its cost.

    It may be called again: each time the driver starts a Spark session with these settings, and so has new executors,
    but its own JVM is the one that it has. Processor seconds of a batch are those of a process tree between its begin
    and its end, so without the session's start, and bytes into the driver are those of tasks that began since then;
    `…_with_start` has all. The driver's peak is that since it was started.

    Args:
        settings: of the pipeline.
        queries: which streams.
        folder: of logs and of Spark's settings.
        workers: of a cluster, whose executors are their children.
    """
    log = folder / f"{'-'.join(queries)}.log"
    log.unlink(missing_ok=True)
    line = ("env", f"SPARK_CONF_DIR={conf(folder / 'conf')}", str(PYTHON), "-c", DRAIN, *queries)
    with Pipeline(Command(queries[0], line), settings, log, LOOK_SECONDS, is_told=True) as driver:

        def drained(given: Settings) -> dict[str, Any]:
            with ExitStack() as stack:
                there = [Sampler(worker.pid, LOOK_SECONDS) for worker in workers]
                for sampler in there:
                    stack.callback(sampler.stop)
                return _drained(given, driver, there, folder / "conf" / "events")

        yield drained
        driver.tell(None)
        driver.wait(STOP_SECONDS)


def _drained(settings: Settings, driver: Pipeline, there: Sequence[Sampler], events: Path) -> dict[str, Any]:
    for former in events.iterdir():
        former.unlink()
    before = written(settings.lake)
    logged = len(_lines(driver.log))
    started_ms = time.time() * 1000
    driver.tell(json.dumps(settings.environment()))
    while DRAINED not in (lines := _lines(driver.log)[logged:]):
        driver.check()
        if time.time() * 1000 - started_ms > RUN_SECONDS * 1000:
            raise TimeoutError(f"{driver.command.name} has not drained in {RUN_SECONDS:,.0f} s: {driver.last_lines()}")
        time.sleep(POLL_SECONDS)
    ended_ms = time.time() * 1000
    time.sleep(2 * LOOK_SECONDS)  # for samples of its last moments
    made = list(batches(lines))
    for batch in made:
        say(f"  {batch.query}: {batch.rows:,} rows, {batch.seconds:.1f} s, {batch.told}")
    window = (
        min((batch.start_ms for batch in made), default=ended_ms),
        max((b.end_ms for b in made), default=ended_ms),
    )
    told = tasks((line for file in events.iterdir() for line in _lines(file)), window[0])
    of_executors = [_cpu(sampler, *window) for sampler in there]
    files = written(settings.lake) - before
    return {
        "rows": sum(batch.rows for batch in made),
        "batches": len(made),
        "seconds": round((ended_ms - started_ms) / 1000, 1),
        "batch_seconds": round(sum(batch.seconds for batch in made), 2),
        "driver_cpu": _cpu(driver.usage, *window),
        "executors_cpu": round(sum(of_executors), 1),
        "busier_cpu": max(of_executors, default=0.0),
        "driver_cpu_with_start": _cpu(driver.usage, started_ms, ended_ms),
        "executors_cpu_with_start": round(sum(_cpu(sampler, started_ms, ended_ms) for sampler in there), 1),
        "driver_mb": driver.usage.peaks()["total_megabytes"],
        "executors_mb": round(sum(sampler.peaks()["total_megabytes"] for sampler in there)),
        "own_mb": round(sum(sampler.peaks()["own_megabytes"] for sampler in (driver.usage, *there))),
        "tasks": told.ended,
        "result_bytes": told.result_bytes,
        "result_bytes_with_start": told.result_bytes_with_start,
        "busier_task_seconds": round(max(told.busy_seconds.values(), default=0.0), 1),
        "files": len(files),
        "told": made[-1].told if made else "",
    }


def _lines(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8", errors="replace").splitlines()  # the last may be half written


def _cpu(sampler: Sampler, start_ms: float, end_ms: float) -> float:
    """Return the processor seconds of a process tree between two moments; it had used some before it was watched."""
    samples = sampler.samples[1:] or sampler.samples
    at = [sample.at_ms for sample in samples]
    used = [sample.jvm_seconds + sample.python_seconds for sample in samples]
    begin, end = np.interp([start_ms, end_ms], at, used)
    return round(float(end - begin), 2)


def written(lake: str) -> set[Path]:
    """Return the data files and sorted runs that a lake has, whether or not something names them."""
    return {path for pattern in ("*/*/*.parquet", "_state/*/*.arrow") for path in Path(lake).glob(pattern)}
