"""What one micro-batch is: its identity for exactly-once writes, and its accounting.

What a small batch reads comes to this process: a plan, a job and a shuffle cost more than its data.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeVar

from customer_activity.catalog import Table, lease_id
from customer_activity.lake.failpoints import FailPoint, nowhere
from customer_activity.lake.tally import Tally

SMALL_BATCH_ROWS = 50_000
SMALL_BATCH_BYTES = 2 << 20  # of Parquet, where the size is known from the files

READ, ACCEPTED, QUARANTINED, DUPLICATE, STALE = "read", "accepted", "quarantined", "duplicate", "stale"
REPLAYED, REMOVED = "replayed", "removed"  # from quarantine: appended to bronze, and taken out there
COUNTED = "counted"  # in a correction's note: what a table's batches have counted by then, in place of their own notes


class Place(StrEnum):
    """Where a batch is worked on."""

    DRIVER = "driver"
    EXECUTORS = "executors"


class Placement(NamedTuple):
    """Where a batch is worked on, and why there."""

    place: Place
    why: str

    @classmethod
    def of_all(cls, parts: Sequence[Placement]) -> Placement | None:
        """Return where the parts of a batch were worked on, as one: on executors where any was, and why that was."""
        if not parts:
            return None
        first = next((part for part in parts if part.place is Place.EXECUTORS), parts[0])
        if (others := len(parts) - 1) == 0:
            return first
        return first._replace(why=f"{first.why}; {others} other part{'s' if others > 1 else ''}")

    def __str__(self) -> str:
        """Say it as people read it: `on executors: 60,000 rows are many`."""
        return f"{'on executors' if self.place is Place.EXECUTORS else 'in the driver'}: {self.why}"


class HasVersions(Protocol):
    """A part of a batch's feed."""

    versions: dict[Table, tuple[int, int]]


Part = TypeVar("Part", bound=HasVersions)


def _counter() -> dict[str, dict[str, int]]:
    return defaultdict(lambda: defaultdict(int))


@dataclass
class MicroBatch:
    """One micro-batch of one stream."""

    query: str
    generation: str  # id of the query's checkpoint; a new checkpoint has a new one
    batch_id: int  # Spark's number of the batch within the generation
    # Records by topic and outcome, stored with every commit of the batch.
    counts: dict[str, dict[str, int]] = field(default_factory=_counter)
    rows: int = 0  # that came in
    commits: int = 0  # that it has made
    tally: Tally = field(default_factory=Tally)  # what metrics are made of; its parts count in the same one
    # What else its commits tell, such as the versions that it read, or the topics' ids.
    extra: dict[str, Any] = field(default_factory=dict)
    # The sources' offsets at its begin and end, as its checkpoint notes them: enough to write that again.
    cut: dict[str, Any] = field(default_factory=dict)
    # Its Kafka offsets, begin and end by topic and partition, where it reads from Kafka.
    ranges: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    # The version read last and the newest of the batch, by table, where it reads change feeds.
    versions: dict[Table, tuple[int, int]] = field(default_factory=dict)
    ids: Mapping[Table, str] = field(default_factory=dict)  # of the tables that it reads change feeds of
    # An id that this attempt at the batch alone has; its commits carry it.
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex)
    written: dict[Table, int] = field(default_factory=dict)  # by table, the newest version that came of it, in any part
    # Milliseconds by phase: read, compute, write, commit, publish.
    phases: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    # Tells the epoch of the driver's lease, which every commit carries; None where there is no lease.
    fencing_epoch: Callable[[], int | None] = lambda: None
    # Called at each place where a drill may end the batch; see failpoints.py.
    failpoint: Callable[[FailPoint], None] = nowhere
    # Told, in words, how far a batch is that takes its time: supervision looks at it.
    progress: Callable[[str], None] = lambda _: None
    placement: Placement | None = None  # None: where its stream always works

    def parts(self, feeds: Iterable[Part]) -> Iterator[tuple[Part, MicroBatch]]:
        """Yield the parts of the batch's feed, each with a batch of its own, whose accounting becomes this one's."""
        placements: list[Placement] = []
        for feed in feeds:
            own = replace(self, rows=0, commits=0, placement=None)
            part = replace(own, versions=dict(feed.versions), extra=dict(self.extra), counts=_counter())
            yield feed, part
            self.rows += part.rows
            self.commits += part.commits
            placements += [] if part.placement is None else [part.placement]
            self.placement = Placement.of_all(placements)
            for topic, outcomes in part.counts.items():
                for outcome, records in outcomes.items():
                    self.count(topic, outcome, records)

    @property
    def upto(self) -> int:
        """A number that grows with each part of each batch: the newest versions that it reads, added up."""
        return number_of(upto for _, upto in self.versions.values())

    @property
    def records(self) -> int | None:
        """How many Kafka records it has at most; None where that is not known."""
        offsets = (end - begin for of_topic in self.ranges.values() for begin, end in of_topic.values())
        return sum(offsets) if self.ranges else None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a part of the batch; what is told under one name adds up."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] += (time.perf_counter() - started) * 1000

    def transaction(self, table: Table, sources: Iterable[Table] | None = None) -> tuple[str, int]:
        """Return Delta's `txnAppId` and `txnVersion` of the batch's write to a table.

        The checkpoint's generation is part of the id. Delta skips a write whose version it has seen under the same id:
        were it the same for a new checkpoint, whose batches count from 0 again, all of its writes would be skipped in
        silence. What reads change feeds is worked on in parts: its number is that of the versions which it reads, of
        those `sources` alone whose rows come to the table, where they are given.
        """
        application = f"{self.query}:{table.label}:{self.generation}"
        if not self.versions:
            return application, self.batch_id
        read = self.versions if sources is None else {source: self.versions[source] for source in sources}
        # Versions start at 0 again where another table is read, one that was restored.
        names = ":".join(self.ids.get(source, "")[:8] for source in read)
        return f"{application}:{names}", number_of(upto for _, upto in read.values())

    @property
    def lease_id(self) -> str:
        """Delta's `txnAppId` for the epoch of the query's lease."""
        return lease_id(self.query)

    def count(self, topic: str, outcome: str, records: int) -> None:
        """Add to the batch's accounting."""
        self.counts[topic][outcome] += records

    def metadata(self) -> str:
        """Return what each commit of this batch carries as `userMetadata`."""
        return json.dumps(
            {
                "query": self.query,
                "generation": self.generation,
                "batch_id": self.batch_id,
                "commit": self.attempt,
                "counts": self.counts,
                **({"upto": self.upto} if self.versions else {}),
                **({"cut": self.cut} if self.cut else {}),
                **({"placement": self.placement._asdict()} if self.placement else {}),
                **self.extra,
            },
            sort_keys=True,
        )


def number_of(versions: Iterable[int]) -> int:
    """Return one number for the newest versions that were read of some tables: it grows with each of them."""
    return sum(version + 1 for version in versions)


def metadata_of(text: str | None) -> dict[str, Any]:
    """Return what a commit's `userMetadata` says; empty where it is none of ours."""
    try:
        parsed = json.loads(text or "null")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
