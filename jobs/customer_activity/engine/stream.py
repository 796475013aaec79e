"""The contract of a stream: what it declares, and the step that the engine calls for each batch.

A stream is one module: a `Spec` (what it reads, writes and promises), and `open`, which a driver calls when the query
starts. What it opens has a source and a step. A step is a generator: it yields what is to be written, in order, and is
given the version that came of it. It commits nothing itself: transaction ids, fencing epochs, fail points, accounting
and timing are the engine's, and so is where a batch is worked on.

A step that keeps state of the past (`state/keyed.py`) changes it around the write that it belongs to:

    with state.change() as connection:
        version = yield Append(Table.PURCHASES, rows)
        ...  # what the rows change
        state.advance(Table.PURCHASES, version, batch.attempt)

A write that fails is raised at its `yield`, so the state takes back what it took for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from customer_activity.catalog import Table
from customer_activity.contracts.trace import Headers
from customer_activity.lake import commits, merging
from customer_activity.lake.datafiles import DataFile
from customer_activity.lake.failpoints import FailPoint
from customer_activity.lake.feeds import Added
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.lake.tally import Tally
from customer_activity.settings import Settings
from customer_activity.state.keyed import Needs, State
from customer_activity.state.local import LocalState
from customer_activity.topology import Spec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AS_OF = "as_of"  # the column of a table that tells which input record is the newest that a row reflects
KAFKA = "kafka"  # what is written to topics, in counts


@dataclass(frozen=True)
class Append:
    """Rows for an append-only table: in this process, or in files of its that are written already.

    Without either the commit carries the batch's accounting alone. `by` is whose write it is, where that is not the
    batch at work. `reasons` counts the rows for quarantine by their reason.
    """

    table: Table
    rows: pa.Table | None = None
    files: Sequence[DataFile | None] = ()
    by: MicroBatch | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Merge:
    """Rows for a table of current rows, one a key; see `merging.merge`."""

    table: Table
    rows: pa.Table
    update: Mapping[str, str] | None = None
    delete_when: str | None = None


@dataclass(frozen=True)
class Rewrite:
    """All rows of a table of current rows, in files that are written already; without any its rows stay as they are.

    Attributes:
        table: which one.
        version: that was read, and that must be the newest one.
        removed: the files that it has at that version.
        files: those that take their place.
        changed: those with the rows that differ, for its change data feed.
        changes: how many were folded into its rows, one a key: as many as a merge would have.
    """

    table: Table
    version: int
    removed: Sequence[Added] = ()
    files: Sequence[DataFile] = ()
    changed: Sequence[DataFile] = ()
    changes: int = 0


# Key and value, which is null for a delete; and the topic, where a publisher writes to several.
Record = tuple[bytes, bytes | None] | tuple[bytes, bytes | None, str]


class Traced(NamedTuple):
    """A record for a publisher's first topic, with headers."""

    key: bytes
    value: bytes | None
    headers: Headers


@dataclass(frozen=True)
class Send:
    """Records for a topic and their progress marker, in one Kafka transaction of the stream's own publisher.

    `as_of` has the Kafka timestamps of the newest input that the records reflect, where they are known.
    """

    records: Iterable[Record | Traced]
    marker: Any
    as_of: pa.ChunkedArray | None = None


Write = Append | Merge | Rewrite | Send
Steps = Generator[Write, int | None, None]


@dataclass(frozen=True)
class Context:
    """What a stream is opened with.

    Attributes:
        spark: the session, which plans batches and commits appends.
        settings: which lake, which broker.
        ids: of all tables.
        resources: closes with the query.
    """

    spark: SparkSession
    settings: Settings
    ids: Mapping[Table, str]
    resources: ExitStack = field(default_factory=ExitStack)

    def state(self, name: str, needs: Needs) -> State:
        """Open what a stream must know of the past; closes with the query."""
        state = LocalState(self.settings, name, self.ids, needs)
        self.resources.callback(state.close)
        return state


class Publisher(Protocol):
    """Sends what a step yields as `Send`."""

    def publish(self, records: Iterable[Record | Traced], marker: Any) -> int:
        """Send records and their marker, or nothing; return how many went out."""


@dataclass
class Opened:
    """A stream that has been opened.

    Attributes:
        spec: what it is.
        source: makes the frame that Spark plans its batches from; a source looks at its table then.
        work: does one batch; the frame is only a plan where rows come to this process.
        begins: the first version that a first batch reads of each table, in the order of the sources (None: it begins
            with the initial snapshot); empty where the batches are Kafka's.
        refresh: called when something else than its steps has written to its tables, between two batches.
    """

    spec: Spec
    source: Callable[[], DataFrame]
    work: Callable[[DataFrame, MicroBatch], None]
    begins: Mapping[Table, int | None] = field(default_factory=dict)
    refresh: Callable[[], None] = lambda: None


class Stream(Protocol):
    """A stream, as the registry lists it."""

    @property
    def spec(self) -> Spec:
        """What it is."""

    def open(self, context: Context) -> Opened:
        """Open it for a driver."""


class Resynced(NamedTuple):
    """What a resync has sent.

    Attributes:
        rows: that the topic lacked or had otherwise.
        deletes: keys that the topic had and gold has not.
        unchanged: rows that were right.
        too_large: rows that the topic still does not take.
        outdated: records that stay as they were sent, and are noted, because the table no longer has them so.
    """

    rows: int
    deletes: int
    unchanged: int
    too_large: int
    outdated: int = 0


@runtime_checkable
class Resyncable(Stream, Protocol):
    """A stream that writes to a topic, and can make it say what the tables say without going through their changes."""

    def resync(self, settings: Settings, reason: str) -> Resynced:
        """Send what differs, and go on after it."""


class Writer:
    """Makes the writes of a stream's steps, each once and fenced."""

    def __init__(self, spec: Spec, spark: SparkSession, lake: str, publisher: Publisher | None = None) -> None:
        """Write to a lake, and by a publisher where the stream has one."""
        self.spec = spec
        self.spark = spark
        self.lake = lake
        self.publisher = publisher

    def make_all(self, steps: Steps, batch: MicroBatch) -> set[Table]:
        """Run a step to its end; return the tables that it has written to, now or in an attempt before.

        Raises:
            LeaseLost: another driver has taken over.
        """
        tables: set[Table] = set()
        write = next(steps, None)
        while write is not None:
            try:
                version = self.make(write, batch)
            except BaseException as error:
                with suppress(StopIteration):  # a step takes back what it took for the write, and cannot let it pass
                    steps.throw(error)
                raise
            if not isinstance(write, Send):
                tables.add(write.table)
                if version is not None:
                    batch.written[write.table] = version
            try:
                write = steps.send(version)
            except StopIteration:
                break
        return tables

    def make(self, write: Write, batch: MicroBatch) -> int | None:
        """Make one write; return a table's version that came of it, None where it had been made before."""
        if isinstance(write, Send):
            self._send(write, batch)
            return None
        with batch.phase("commit"):
            version = self._commit(write, batch)
        if version is not None:  # else the rows were there already, and were counted then
            _count(write, batch.tally)
        return version

    def _commit(self, write: Append | Merge | Rewrite, batch: MicroBatch) -> int | None:
        sources = self.spec.sources_of(write.table)
        if isinstance(write, Merge):
            return merging.merge(
                write.rows,
                self.lake,
                write.table,
                batch,
                key=self.spec.how(write.table).key,
                update=write.update,
                delete_when=write.delete_when,
            )
        if isinstance(write, Rewrite):
            replaced = commits.Replaced(write.version, write.removed, write.changed)
            return commits.commit(self.spark, self.lake, write.table, write.files, batch, sources, replaced=replaced)
        owner = write.by or batch
        if write.rows is not None:
            return commits.append(self.spark, self.lake, write.table, write.rows, owner, sources)
        return commits.commit(self.spark, self.lake, write.table, write.files, owner, sources)

    def _send(self, write: Send, batch: MicroBatch) -> None:
        if self.publisher is None:
            raise TypeError(f"{self.spec.name} has no publisher")
        with batch.phase("publish"):
            sent = self.publisher.publish(write.records, write.marker)
            batch.rows += sent
            batch.tally.written[KAFKA] += sent
            batch.tally.transactions += 1
            if write.as_of is not None:
                batch.tally.became_visible(write.as_of)
            batch.failpoint(FailPoint.PUBLISHED)


def _count(write: Append | Merge | Rewrite, tally: Tally) -> None:
    """Count what a write to a table has brought."""
    if isinstance(write, Rewrite):
        tally.written[write.table.label] += write.changes
        return
    rows = 0 if write.rows is None else write.rows.num_rows
    if isinstance(write, Append):
        rows += sum(file.rows for file in write.files if file is not None)
        tally.quarantined.update(write.reasons)
    if isinstance(write, Merge) and AS_OF in write.rows.column_names:
        tally.became_visible(write.rows.column(AS_OF))
    tally.written[write.table.label] += rows
