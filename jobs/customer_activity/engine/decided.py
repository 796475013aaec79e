"""The contract of a stream behind the hot path that appends what follows from a row and from what was in force then.

What comes from outside of the records (the version of a catalogue, the rules of a deployment) is not told by them, so
a batch that is repeated, or a table that is computed again, might follow another one. So it is decided once for each
landing, and stored before anything follows from it (`decisions.py`). What follows is derived by the driver, or, of a
large part, by tasks on executors (`decided_tasks.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import decided_tasks, spreading
from customer_activity.engine.changes import ChangeStream
from customer_activity.engine.decisions import BEFORE_ALL, LANDING, Decisions, landings_of
from customer_activity.engine.derived import OfOneTable
from customer_activity.engine.executors import OnProgress, Reports
from customer_activity.engine.merge_spread import kept
from customer_activity.engine.stream import Append, Context, Opened, Steps
from customer_activity.engine.workers import Executors, Workers
from customer_activity.lake import pieces
from customer_activity.lake.datafiles import DataFile, FileWriter, in_parts
from customer_activity.lake.feeds import Added, Feed
from customer_activity.lake.microbatch import SMALL_BATCH_ROWS, MicroBatch, Place, Placement
from customer_activity.settings import Settings
from customer_activity.state.keyed import Needs, State
from customer_activity.topology import Spec

ROWS_AT_A_TIME = 250_000  # a part is worked on in pieces: it is never in memory as a whole
SHARES_AT_A_TIME = 256  # on executors, or as many as they do at once: a first part may be the whole table


class TooMuch(Exception):
    """Raised where a small part needs more of what is outside than the driver is to hold for one; says of what."""


class Outside(Protocol):
    """What does not come from the records, as far as a stream uses it."""

    def in_force(self, last: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what is in force by now, as columns of a decision; `last` is the decision before, or empty."""

    def derive(self, rows: pa.Table, decided: pa.Table, *, is_bounded: bool = False) -> pa.Table:
        """Return what rows of the source lead to; `decided` has for each the decision that is for its landing.

        Raises:
            TooMuch: it takes more than the driver is to hold for a small part, and it is to be bounded.
        """

    def derive_by_tasks(
        self, work: decided_tasks.Work, files: Sequence[Added], workers: Workers, progress: OnProgress
    ) -> Reports:
        """Have tasks derive the same and write it; return what `decided_tasks.written` reports of each share.

        Args:
            work: what is to be done.
            files: that its shares are of.
            workers: do the tasks.
            progress: told, in words, when tasks are through.

        Raises:
            InputGone: a file that a task was to read is gone.
        """


@dataclass
class Decided(OfOneTable):
    """A stream that appends what follows from each row of one source and from what was in force when it landed.

    Attributes:
        spec: what it is: one source, and beside its own table one of decisions.
        columns: what is read of the source.
        decisions: the table of decisions.
        connect: gives what is outside, by a lake; by settings where these decide, and with state where there is some.
        needs: what state it keeps where a driver runs it; None: it keeps none.
        lake, outside, known: once it is bound to a lake: where that is, what is outside of it, and what is decided.
        moved: what was decided for the rows that were made last, and is not stored.
    """

    spec: Spec
    columns: Sequence[str]
    decisions: Table
    connect: Callable[[str, Settings | None, State | None], Outside]
    needs: Needs | None = None
    lake: str = ""
    outside: Outside | None = None
    known: Decisions | None = None
    moved: pa.Table | None = None

    def open(self, context: Context) -> Opened:
        """Open it for a driver.

        Raises:
            SettingsError: what is outside is not as it has to be.
        """
        settings = context.settings
        state = None if self.needs is None else context.state(self.spec.name, self.needs)
        bound = self._bound_to(settings.lake, settings, state)
        step = partial(bound.step, settings=settings, workers=Executors(context.spark))
        return ChangeStream(self.spec, {self.source: self.columns}, lambda _: step).open(context)

    def as_noted(self, lake: str) -> Decided:
        """Return it with what is stored; only for landings after that something is decided."""
        return self._bound_to(lake, None)

    def as_set(self, settings: Settings) -> Decided:
        """Return the same; what is decided then is decided by the settings."""
        return self._bound_to(settings.lake, settings)

    def _bound_to(self, lake: str, settings: Settings | None, state: State | None = None) -> Decided:
        outside = self.connect(lake, settings, state)
        return replace(self, lake=lake, outside=outside, known=Decisions.stored(lake, self.decisions))

    def step(self, part: Feed, batch: MicroBatch, *, settings: Settings, workers: Workers) -> Steps:
        """Append what a part leads to: what is decided is stored before what follows from it."""
        with batch.phase("read"):
            decided = self._undecided(part.batches(self.source, [LANDING]))
        if decided.num_rows:
            yield Append(self.decisions, decided)
        self._learn(decided)
        with batch.phase("compute"):
            files = self._written(part, batch, settings, workers)
        batch.rows += sum(file.rows for file in files)
        yield from kept(Append(self.target, files=files), settings.lake)

    def _written(self, part: Feed, batch: MicroBatch, settings: Settings, workers: Workers) -> list[DataFile]:
        """Write what a part leads to where it was placed; a small one that takes much of what is outside, by tasks.

        Without an executor, and with `ACTIVITY_PLACEMENT=driver`, it stays in the driver.
        """
        if batch.placement is not None and batch.placement.place is Place.EXECUTORS:
            return self._by_tasks(part, batch, settings, workers)
        is_small = sum(file.rows for file in part.files) <= SMALL_BATCH_ROWS
        try:
            return self._here(part, is_bounded=is_small and settings.placement == "auto")
        except TooMuch as error:
            if not workers.are_there():
                return self._here(part)
            batch.placement = Placement(Place.EXECUTORS, str(error))
            return self._by_tasks(part, batch, settings, workers)

    def _here(self, part: Feed, *, is_bounded: bool = False) -> list[DataFile]:
        """Write what a part leads to, some rows at a time."""
        writer = FileWriter(self.lake, self.target)
        for rows in self._derived(part.batches(self.source, self.columns), is_bounded=is_bounded):
            writer.write(rows)
        file = writer.close()
        return [] if file is None else [file]

    def _by_tasks(self, part: Feed, batch: MicroBatch, settings: Settings, workers: Workers) -> list[DataFile]:
        """Have tasks write it, share by share, in rounds of so many that what their tasks hold is bounded.

        Raises:
            AssertionError: they have not come by as many rows as the part has.
            ChangeFeedLost: a file of the part is gone.
            SettingsError: an executor does not see the lake.
        """
        outside, known = self._bound()
        added = part.added[self.source]
        shares, count = pieces.divided(self.source, added), max(SHARES_AT_A_TIME, workers.at_once())
        rounds = []
        for begin in range(0, len(shares), count):
            some = shares[begin : begin + count]
            files = [added[number] for number in sorted({piece.file for share in some for piece in share})]
            work = decided_tasks.Work(self.lake, self.source, self.target, self.columns, some, known)
            rounds.append(partial(outside.derive_by_tasks, work, files, workers, batch.progress))
        return spreading.written(part, self.source, self.target, settings, rounds).files

    def rows(self, changes: Iterable[pa.RecordBatch]) -> pa.Table:
        """Return the rows that all of some changes lead to."""
        schema = pa.schema([arrow_schema(self.source).field(name) for name in self.columns])
        given = [batch.cast(schema) for batch in changes]
        self.moved = self._undecided(given)
        self._learn(self.moved)
        return pa.concat_tables([arrow_schema(self.target).empty_table(), *self._derived(given)])

    def besides(self) -> Mapping[Table, pa.Table]:
        """Return what was decided for the rows that were made last, and is not stored."""
        return {self.decisions: self.moved} if self.moved is not None and self.moved.num_rows else {}

    def note(self, rows: pa.Table) -> Mapping[str, Any]:  # noqa: ARG002 - as others have it
        """Return nothing: what was decided is in a table."""
        return {}

    def _bound(self) -> tuple[Outside, Decisions]:
        if self.outside is None or self.known is None:
            raise TypeError(f"{self.spec.name} is bound to no lake")
        return self.outside, self.known

    def _undecided(self, rows: Iterable[pa.RecordBatch]) -> pa.Table:
        """Return the row that decides for landings of these that are not decided yet; none where all are."""
        outside, known = self._bound()
        newest = max((int(landings_of(batch).max(initial=BEFORE_ALL)) for batch in rows), default=BEFORE_ALL)
        if newest <= known.newest:
            return arrow_schema(self.decisions).empty_table()
        return known.decide(newest, outside.in_force(known.last))

    def _learn(self, decided: pa.Table) -> None:
        _, known = self._bound()
        self.known = known.with_rows(decided)

    def _derived(self, rows: Iterable[pa.RecordBatch], *, is_bounded: bool = False) -> Iterator[pa.Table]:
        outside, known = self._bound()
        schema = arrow_schema(self.target)
        for some in in_parts(rows, ROWS_AT_A_TIME):
            found = outside.derive(some, known.at(landings_of(some)), is_bounded=is_bounded)
            yield found.select(schema.names).cast(schema)
