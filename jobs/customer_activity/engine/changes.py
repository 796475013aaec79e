"""Streams that read change feeds: a batch in parts of whole versions, each left out where it is written already.

Spark plans which versions a batch has. Their rows are read from the files that commits added (`lake/feeds.py`), divided
into parts that fit in memory, and given to the stream's step. Each part's commits note up to where every source was
read, so what is done of a batch that is repeated after a crash is told by the tables that it writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from customer_activity.catalog import Table
from customer_activity.checkpoints.resumption import Written
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import placement
from customer_activity.engine.stream import Append, Context, Opened, Steps, Writer
from customer_activity.errors import ChangeFeedLost
from customer_activity.lake import commits, delta, deltalog, feeds, footers
from customer_activity.lake.feeds import Feed
from customer_activity.lake.microbatch import SMALL_BATCH_BYTES, SMALL_BATCH_ROWS, MicroBatch, Place, number_of
from customer_activity.settings import Settings
from customer_activity.state.keyed import State
from customer_activity.topology import Spec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOOK_SECONDS = 60.0  # one takes a listing of each table

Step = Callable[[Feed, MicroBatch], Steps]


class Spreadable(NamedTuple):
    """What a stream that keeps state of the past does with a part.

    Attributes:
        step: by the local state.
        spread: by tasks, which need no local state and leave it behind: on executors, or in this process.
        state: the local state.
        begin: tells which versions it has to be at for a part.
        is_near: whether the lake's sorted runs have nearly all that a part needs of the past.
        replaces: whether they have nearly all that the local state is for, whatever a part needs.
    """

    step: Step
    spread: Step
    state: State
    begin: Callable[[Feed], Mapping[Table, int | None]]
    is_near: Callable[[Feed], bool]
    replaces: Callable[[Feed], bool]


Begins = Mapping[Table, int | None]


@dataclass(frozen=True)
class ChangeStream:
    """A stream of change feeds.

    Attributes:
        spec: what it is.
        columns: what it reads of each source, in the order of `spec.reads`.
        prepare: returns what it does with a part, with the state that it keeps; what that opens closes with the
            context.
        begins: the first version that a first batch reads of each source; the log's beginning when not given.
    """

    spec: Spec
    columns: Mapping[Table, Sequence[str]]
    prepare: Callable[[Context], Step | Spreadable]
    begins: Callable[[Settings], Begins] | None = None

    def __post_init__(self) -> None:
        """Refuse columns in another order than the sources have: a checkpoint's offsets are told apart by it alone."""
        if list(self.columns) != self.spec.sources:
            told = " and ".join(table.label for table in self.spec.sources)
            raise ValueError(f"{self.spec.name} reads {told}: `columns` must have these tables, in this order")

    def open(self, context: Context) -> Opened:
        """Open it for a driver."""
        lake = context.settings.lake
        begins = delta.begins(lake, self.columns) if self.begins is None else self.begins(context.settings)
        source = partial(changes_of, context, begins)
        return Opened(self.spec, source, _Worker(self, context).work, begins)


def changes_of(context: Context, begins: Begins) -> DataFrame:
    """Stream the change feeds of some tables as one, for Spark to plan batches of: nobody reads its rows.

    Args:
        context: the session, the lake and its tables' ids.
        begins: the first version that a first batch reads of each; None: with the initial snapshot.
    """
    lake = context.settings.lake
    feeds_of = [
        delta.read_versions(context.spark, lake, table, context.ids[table], starting_version=first)
        for table, first in begins.items()
    ]
    together = feeds_of[0]
    for feed in feeds_of[1:]:
        together = together.union(feed)
    return together


class _Worker:
    """Works on a stream's batches."""

    def __init__(self, stream: ChangeStream, context: Context) -> None:
        self.spec = spec = stream.spec
        self.settings = context.settings
        self.executors = partial(placement.executors_of, context.spark)
        self.lake = context.settings.lake
        self.columns = stream.columns
        self.ids = {table: context.ids[table] for table in spec.sources}
        self.made = {
            read.source: read.progress
            for read in spec.reads
            if isinstance(read.source, Table) and isinstance(read.progress, Table)
        }
        self.written = Written(self.lake, spec.name, spec.telling, self.ids)
        self.writer = Writer(spec, context.spark, self.lake)
        self.refuses = Table.QUARANTINE in spec.tables
        self.of_refused = (spec.sources_of(Table.QUARANTINE) if self.refuses else None) or list(self.columns)
        self.prepared = stream.prepare(context)
        self.looks_again = 0.0  # at whether runs replace local state that is too large
        self.is_sure = False  # that nothing of a part is written whose commits do not tell it
        for table in spec.tables if spec.is_behind else ():
            footers.repair(self.lake, table)  # of a release before, or of a driver that ended right after a merge

    def work(self, _frame: DataFrame, batch: MicroBatch) -> None:
        """Do one batch, part by part.

        Raises:
            ChangeFeedLost: files or entries of a source are gone.
            ForeignCommit: a source has a commit that is not of the pipeline.
            LeaseLost: another driver has taken over.
        """
        batch.ids = self.ids
        with batch.phase("read"):
            feed = feeds.read(self.lake, self.columns, self.written.left(batch.versions, self.made))
            # Of a part that a crash ended, rows may be in quarantine already: then it is the same part once more.
            looks = self.refuses and not self.is_sure
            stop = commits.newest(self.lake, Table.QUARANTINE, batch, self.of_refused) if looks else None
        was_sure, self.is_sure = self.is_sure, False
        for part, of_part in batch.parts(feed.parts(stop=stop, of=self.of_refused)):
            if part.files:
                for table, added in part.added.items():
                    of_part.tally.read[table.label] += sum(file.rows for file in added)
                self._note(part, of_part)
                done = self.writer.make_all(self._step(part, of_part), of_part)
                self._tell(part, of_part, done)
                for table in self.written.read:
                    self.written.note(table, part.versions)
                batch.progress(_how_far(part, batch))
        # A batch that ends before what quarantine has (a recovered checkpoint repeats one) has not come to it yet.
        end = number_of(batch.versions[table][1] for table in self.of_refused)
        self.is_sure = was_sure or stop is None or end >= stop

    def _step(self, part: Feed, batch: MicroBatch) -> Steps:
        """Choose where a part is worked on, and by which state."""
        prepared = self.prepared
        if not (self.spec.is_spread or isinstance(prepared, Spreadable)):
            return prepared(part, batch)
        rows = sum(file.rows for file in part.files)
        is_small = rows <= SMALL_BATCH_ROWS and (part.is_small if isinstance(prepared, Spreadable) else _is_short(part))
        has_state = not isinstance(prepared, Spreadable) or self._has_state(prepared, part)
        batch.placement = placed = placement.decide(
            self.settings, _size(part, rows), self.executors, is_small=is_small, uses_threads=not has_state
        )
        if not isinstance(prepared, Spreadable):
            return prepared(part, batch)
        _, spread, state, begin, is_near, _ = prepared
        if placed.place is Place.EXECUTORS:
            return spread(part, batch)
        if not has_state:
            state_is = "the local state is too large" if state.is_kept else "no local state is kept"
            batch.placement = placed._replace(why=f"{placed.why}; {state_is}")
            return spread(part, batch)
        if is_small and self.settings.placement == "auto":
            with suppress(ChangeFeedLost):  # local state may know another way to what was there
                if not state.is_near(begin(part)) and is_near(part):
                    is_begun = state.catch_up(begin(part))
                    state_is = "is catching up" if is_begun else "has not caught up"
                    batch.placement = placed._replace(why=f"{placed.why}; the local state {state_is}")
                    return spread(part, batch)
        return prepared.step(part, batch)

    def _has_state(self, prepared: Spreadable, part: Feed) -> bool:
        """Whether a part is processed with local state. State above its limit is given up once sorted runs replace it.

        Until then it is kept: building runs may take minutes, and fail. It is used while there is no executor for that.
        """
        state = prepared.state
        if self.settings.placement == "executors" or not state.is_outgrown():
            return state.is_kept
        if self.settings.is_on_cluster and not self.executors():
            return state.can_follow(prepared.begin(part))
        if time.monotonic() >= self.looks_again:
            self.looks_again = time.monotonic() + LOOK_SECONDS
            with suppress(ChangeFeedLost):
                if prepared.replaces(part):
                    return state.fits()
        return False

    def _tell(self, part: Feed, batch: MicroBatch, done: Collection[Table]) -> None:
        """Have tables that tell how far sources are read tell it of a part of which the step wrote nothing to them."""
        for source, table in self.made.items():
            if part.added[source] and table not in done:
                self.writer.make(Append(table), batch)

    def _note(self, part: Feed, batch: MicroBatch) -> None:
        """Have the part's commits note up to where each source is read, and which landings that includes."""
        batch.extra[deltalog.READ] = deltalog.as_note({table: part.end(table, self.ids[table]) for table in self.ids})
        landed = self.written.landed
        landed |= {table.label: last for table in self.ids if (last := part.landing(table)) is not None}
        if landed:
            batch.extra[deltalog.LANDED] = landed


def _is_short(part: Feed) -> bool:
    """Whether it has few bytes to merge; however many files these are in, executors would write the whole table."""
    return sum(file.size for file in part.files) <= SMALL_BATCH_BYTES


def _size(part: Feed, rows: int) -> str:
    """Say what a part has, and by which measure it is large where rows are few."""
    if rows > SMALL_BATCH_ROWS or part.is_small:
        return f"{rows:,} rows"
    size = sum(file.size for file in part.files)
    return f"{rows:,} rows ({size / 1e6:,.1f} MB in {len(part.files):,} files)"


def _how_far(part: Feed, batch: MicroBatch) -> str:
    ends = ((table.label, upto, batch.versions[table][1]) for table, (_, upto) in part.versions.items())
    return ", ".join(f"{label} up to version {upto:,} of {last:,}" for label, upto, last in ends)


def table_of(part: Feed, table: Table, columns: Sequence[str]) -> pa.Table:
    """Bring a part's rows of one source together, with the types that the table has."""
    schema = pa.schema([arrow_schema(table).field(name) for name in columns])
    return pa.Table.from_batches([batch.cast(schema) for batch in part.batches(table, columns)], schema)
