"""What is told of a run, as plain values: recording it costs a batch next to nothing, and events are made elsewhere."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from customer_activity.catalog import Table
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.topology import Spec


class Moment(StrEnum):
    """What has become of a run, in OpenLineage's words."""

    START = "START"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"


class Job(NamedTuple):
    """A run of a job."""

    namespace: str
    name: str
    run_id: str


class Parents(NamedTuple):
    """Who started a run: the run above it, and the one at the top."""

    parent: Job
    root: Job | None = None


class Verdict(NamedTuple):
    """What came of a rule of quality."""

    table: Table | None  # None: it is about several, or about a topic
    rule: str
    is_passed: bool
    severity: str


class Progress(NamedTuple):
    """How far a stream has come in a run.

    Attributes:
        offsets: by topic and partition, the first offset that was read and the one after the last.
        versions: by table, the version that had been read before and the last one that was read.
        written: by table, the newest version that it wrote.
        batches: that it has finished.
        rows: that came in with them.
    """

    offsets: Mapping[str, Mapping[int, tuple[int, int]]]
    versions: Mapping[Table, tuple[int, int]]
    written: Mapping[Table, int]
    batches: int
    rows: int


class Told(NamedTuple):
    """One event.

    Attributes:
        moment: what has become of the run.
        at: when.
        job: which run.
        kind: of job: `driver`, `stream` or `quality`.
        parents: who started it.
        stream: what it is, of a stream.
        progress: how far it has come, of a stream.
        error: why it failed; empty where it did not.
        versions: of the tables that were judged, of quality.
        verdicts: what came of the rules, of quality.
    """

    moment: Moment
    at: datetime
    job: Job
    kind: str
    parents: Parents | None = None
    stream: Spec | None = None
    progress: Progress | None = None
    error: str = ""
    versions: Mapping[Table, int] = {}
    verdicts: Sequence[Verdict] = ()


Emit = Callable[[Told], None]  # sends one


@dataclass
class StreamRun:
    """A stream in one life of a driver: what it has read and written since its start."""

    stream: Spec
    job: Job
    offsets: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    versions: dict[Table, tuple[int, int]] = field(default_factory=dict)
    written: dict[Table, int] = field(default_factory=dict)
    batches: int = 0
    rows: int = 0

    def take(self, batch: MicroBatch) -> None:
        """Add a finished batch."""
        for topic, ranges in batch.ranges.items():
            known = self.offsets.setdefault(topic, {})
            for partition, (begin, end) in ranges.items():
                if begin < end:
                    known[partition] = (known.get(partition, (begin, end))[0], end)
        for table, (after, upto) in batch.versions.items():
            self.versions[table] = (self.versions.get(table, (after, upto))[0], upto)
        self.written |= batch.written
        self.batches += 1
        self.rows += batch.rows

    def progress(self) -> Progress:
        """Return how far it has come, as it is now."""
        offsets = {topic: dict(ranges) for topic, ranges in self.offsets.items()}
        return Progress(offsets, dict(self.versions), dict(self.written), self.batches, self.rows)


def new_run(namespace: str, name: str) -> Job:
    """Return a run that begins."""
    return Job(namespace, name, str(uuid.uuid4()))


def now() -> datetime:
    """Return the time, UTC."""
    return datetime.now(UTC)
