"""What a stream declares: a `Spec`, with what it reads and writes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from customer_activity.catalog import Table


@dataclass(frozen=True)
class Topic:
    """A Kafka topic, by its role in `infra/kafka/topics.yaml`; its name is a setting."""

    role: str


End = Table | Topic


class Reads(NamedTuple):
    """A source of a stream.

    Attributes:
        source: what is read.
        progress: where it is noted, exactly once, up to where this source was read: a table that the stream writes,
            whose commits tell it, or a topic whose records do.
    """

    source: End
    progress: End


class How(StrEnum):
    """How a column is made of others, as OpenLineage calls it; what is masked does not tell what it was made of."""

    IDENTITY = "IDENTITY"
    TRANSFORMATION = "TRANSFORMATION"
    AGGREGATION = "AGGREGATION"
    MASKED = "MASKED"


class Made(NamedTuple):
    """What a column is made of, where its name does not tell.

    Attributes:
        column: of the table that is written.
        of: columns of its sources; `layer.table:column` where one comes from a certain table. Empty: of none, but of a
            clock, a setting or a count of steps.
        how: they become it.
    """

    column: str
    of: tuple[str, ...] = ()
    how: How = How.TRANSFORMATION


class Writes(NamedTuple):
    """What a stream writes.

    Attributes:
        target: a table or a topic.
        key: the columns that tell one row from another, or whose changes they are; empty where rows are only appended.
        order: of a table of changes, the columns by which those of a key are in order. Of a topic whose records stand
            by themselves, the columns that tell those of a key apart.
        ended: of such a table, the column that says that a change leaves no row of its key.
        uneven: the columns that depend on how batches were cut: computed a second time, they may be others.
        frozen: a query for the keys whose newest row depends on that, too; `{tables}` stands for where the tables of
            the streams are, by their names without the layer. Empty where there are no such keys.
        with_every_batch: a commit to this table tells which batch is the stream's newest, as those to the tables of
            `Reads.progress` do. Of quarantine that is so where a batch may consist of nothing else.
        sources: of a table that is no source's progress, the sources whose rows come to it; empty: all of them.
        expected: what the table must hold, as a query over the purchases and profiles that `activity verify` recomputes
            from Kafka; see `verification/declared.py`. Empty where the verifier knows it by itself. Of a topic that
            publishes a table, which of its rows are there, as a query over `stored`.
        outdated: of a topic whose records stand by themselves, the table of those that were sent and that the published
            table no longer has so.
        made: what its columns are made of; one that is not listed is the sources' of the same name, as it is.
    """

    target: End
    key: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    ended: str = ""
    uneven: tuple[str, ...] = ()
    frozen: str = ""
    with_every_batch: bool = False
    sources: tuple[Table, ...] = ()
    expected: str = ""
    outdated: Table | None = None
    made: tuple[Made, ...] = ()


@dataclass(frozen=True)
class Spec:
    """What a stream is.

    Attributes:
        name: of its query, its checkpoint, its lease, and its label in logs and metrics.
        reads: its sources, in the order in which its checkpoint has their offsets.
        writes: in no order: a batch writes to quarantine first.
        promises: what holds whatever happens, in words.
        is_behind: whether it is behind the hot path, and so paced: what it writes is not on the way to the view.
        is_gated: whether its batches wait while quality holds publishing.
        is_spread: whether Spark's executors can do its batches, or a part of them.
        is_optional: whether it runs only where it is switched on by its name.
        uses_time_zone: whether its rows depend on where days begin in the time zone that is set.
        paced_by: the setting that tells how many seconds there are between two batches of a stream behind the hot path.
        on_with: the setting that switches an optional stream on where it is set, besides its name.
    """

    name: str
    reads: tuple[Reads, ...]
    writes: tuple[Writes, ...]
    promises: str
    is_behind: bool = False
    is_gated: bool = False
    is_spread: bool = False
    is_optional: bool = False
    uses_time_zone: bool = False
    paced_by: str = "merge_seconds"
    on_with: str = ""

    @property
    def sources(self) -> list[Table]:
        """The tables whose change feeds it reads."""
        return [read.source for read in self.reads if isinstance(read.source, Table)]

    @property
    def topics(self) -> list[str]:
        """The roles of the topics that it reads as input."""
        return [read.source.role for read in self.reads if isinstance(read.source, Topic)]

    @property
    def roles(self) -> list[str]:
        """The roles of the topics that it reads or writes."""
        return self.topics + [write.target.role for write in self.writes if isinstance(write.target, Topic)]

    @property
    def tables(self) -> list[Table]:
        """The tables that it writes."""
        return [write.target for write in self.writes if isinstance(write.target, Table)]

    @property
    def telling(self) -> list[Table]:
        """Those of them whose newest commit tells which batch is the newest."""
        progress = {read.progress for read in self.reads}
        return [
            write.target
            for write in self.writes
            if isinstance(write.target, Table) and (write.with_every_batch or write.target in progress)
        ]

    @property
    def is_publisher(self) -> bool:
        """Whether a topic, and no table, tells how far it is."""
        return not self.telling

    def sources_of(self, table: Table) -> list[Table] | None:
        """Return the sources whose rows come to one of its tables; None: all of them."""
        named = next((write.sources for write in self.writes if write.target is table), ())
        told = [read.source for read in self.reads if read.progress is table and isinstance(read.source, Table)]
        return list(named) or told or None

    def how(self, table: Table) -> Writes:
        """Return how it writes one of its tables."""
        return next(write for write in self.writes if write.target is table)

    @property
    def edges(self) -> list[Edge]:
        """Which of its tables is made from which."""
        return [
            Edge(self.name, read.progress, read.source)
            for read in self.reads
            if isinstance(read.source, Table) and isinstance(read.progress, Table)
        ]


class Edge(NamedTuple):
    """A table that is made from another one: by which stream, which table tells, and which one was read."""

    stream: str
    made: Table
    read: Table
