"""Records the runs of a driver and of its streams: a run each, from start to end, with an event now and then between.

A batch costs its stream some additions here. Events are made and sent by another thread (`sending.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from customer_activity.catalog import Table
from customer_activity.engine.observability import QueryStatus
from customer_activity.errors import ActivityError
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.lineage import sending
from customer_activity.lineage.sending import Sender
from customer_activity.lineage.told import Job, Moment, Parents, StreamRun, Told, Verdict, new_run, now
from customer_activity.settings import Settings
from customer_activity.topology import Spec

DRIVER, STREAM, QUALITY = "driver", "stream", "quality"  # kinds of jobs
FAILED = "failed"  # a query's state


class Recorder:
    """Is told of a driver's streams and their batches, and of its end; this one keeps it to itself."""

    def begin(self, spec: Spec, status: QueryStatus) -> None:
        """Begin a stream's run, or go on with it; its status says at the end what became of it."""

    def take(self, batch: MicroBatch) -> None:
        """Add a finished batch."""

    def __enter__(self) -> Self:
        """Return itself: the driver's run has begun."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all runs."""


NOBODY = Recorder()


class Telling(Recorder):
    """Tells of a driver's run and of its streams'."""

    def __init__(self, settings: Settings, sender: Sender, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin the driver's run."""
        self.settings = settings
        self.sender = sender
        self.clock = clock
        self.driver = new_run(namespace(settings), f"{settings.pipeline}.{DRIVER}")
        self.parents = parents(settings)
        self.runs: dict[str, StreamRun] = {}
        self.status: dict[str, QueryStatus] = {}
        self.told_at: dict[str, float] = {}
        self.lock = threading.Lock()
        sender.put(Told(Moment.START, now(), self.driver, DRIVER, self.parents))

    def begin(self, spec: Spec, status: QueryStatus) -> None:
        """Begin a stream's run, or go on with it."""
        self.status[spec.name] = status
        if spec.name not in self.runs:
            job = new_run(self.driver.namespace, f"{self.settings.pipeline}.{spec.name}")
            self.runs[spec.name] = StreamRun(spec, job)
            self._tell(spec.name, Moment.START)

    def take(self, batch: MicroBatch) -> None:
        """Add a finished batch, and tell of the run where it was not told of for a while."""
        with self.lock:
            self.runs[batch.query].take(batch)
        if self.clock() - self.told_at[batch.query] >= self.settings.lineage_seconds:
            self._tell(batch.query, Moment.RUNNING)

    def _tell(self, query: str, moment: Moment, error: str = "") -> None:
        self.told_at[query] = self.clock()
        run = self.runs[query]
        with self.lock:
            progress = run.progress()
        top = self.driver if self.parents is None else self.parents.root or self.parents.parent
        told = Told(moment, now(), run.job, STREAM, Parents(self.driver, top), run.stream, progress, error)
        self.sender.put(told)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all runs, and wait a moment until that is told."""
        for query in self.runs:
            status = self.status[query]
            has_failed = status.state == FAILED
            self._tell(query, Moment.FAIL if has_failed else Moment.COMPLETE, status.message if has_failed else "")
        moment = Moment.COMPLETE if error is None else Moment.FAIL
        self.sender.put(Told(moment, now(), self.driver, DRIVER, self.parents, error=words_of(error)))
        self.sender.close()


def recorder(settings: Settings) -> Recorder:
    """Return what records a driver's run; it tells nothing where lineage is off."""
    return Telling(settings, Sender(sending.opening(settings))) if settings.lineage else NOBODY


@contextmanager
def judging(settings: Settings) -> Iterator[Callable[[Mapping[str, int], Sequence[Verdict]], None]]:
    """Record a run of quality; the body hands over the versions of tables, by their labels, and the verdicts."""
    if not settings.lineage:
        yield lambda _versions, _verdicts: None
        return
    sender = Sender(sending.opening(settings))
    job, above = new_run(namespace(settings), f"{settings.pipeline}.{QUALITY}"), parents(settings)
    sender.put(Told(Moment.START, now(), job, QUALITY, above))
    found: list[tuple[Mapping[str, int], Sequence[Verdict]]] = []
    try:
        yield lambda versions, verdicts: found.append((versions, verdicts))
    except BaseException as error:
        sender.put(Told(Moment.FAIL, now(), job, QUALITY, above, error=words_of(error)))
        raise
    else:
        versions, verdicts = found[-1] if found else ({}, ())
        judged = {verdict.table for verdict in verdicts if verdict.table is not None}
        by_table = {table: versions[table.label] for table in Table if table in judged and table.label in versions}
        sender.put(Told(Moment.COMPLETE, now(), job, QUALITY, above, versions=by_table, verdicts=verdicts))
    finally:
        sender.close()


def words_of(error: BaseException | None) -> str:
    """Return why a run failed; of an error that is none of ours its kind alone: its words may hold anything."""
    if error is None:
        return ""
    return error.what if isinstance(error, ActivityError) else type(error).__name__


def namespace(settings: Settings) -> str:
    """Return the namespace of jobs."""
    return settings.lineage_namespace or settings.pipeline


def parents(settings: Settings) -> Parents | None:
    """Return who started this process, as the settings say; None: somebody at a terminal."""
    if settings.lineage_parent is None:
        return None
    root = settings.lineage_root
    return Parents(_job(settings.lineage_parent), None if root is None else _job(root))


def _job(text: str) -> Job:
    above, name, run_id = text.rsplit("/", 2)
    return Job(above, name, run_id)
