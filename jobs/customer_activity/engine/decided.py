"""The contract of a stream behind the hot path that appends what follows from a row and from what was in force then.

What comes from outside of the records (the version of a catalogue, the rules of a deployment) is not told by them, so
a batch that is repeated, or a table that is computed again, might follow another one. So it is decided once for each
landing, and stored before anything follows from it. A table of decisions is append-only: a row is for the landings
after those of the row before, up to its own, and holds what was in force for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.changes import ChangeStream
from customer_activity.engine.derived import OfOneTable
from customer_activity.engine.stream import Append, Context, Opened, Steps
from customer_activity.lake.datafiles import FileWriter, in_parts
from customer_activity.lake.feeds import Feed
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.settings import Settings
from customer_activity.state.columns import UNNUMBERED
from customer_activity.state.keyed import Needs, State
from customer_activity.topology import Spec

LANDING, DECIDED_AT = "landing", "decided_at"
BEFORE_ALL = UNNUMBERED - 1  # no landing comes before it
ROWS_AT_A_TIME = 250_000  # a part is worked on in pieces: it is never in memory as a whole

Numbers = npt.NDArray[np.int64]


def landings_of(rows: pa.Table | pa.RecordBatch) -> Numbers:
    """Return the landing of each row; those of before landings were numbered come first."""
    return np.asarray(pc.fill_null(rows.column(LANDING), UNNUMBERED).to_numpy(zero_copy_only=False), np.int64)


class Decisions(NamedTuple):
    """What was decided, in the order of landings.

    Attributes:
        table: where it is stored.
        rows: as the table has them, sorted by landing; of neighbours that decide alike the last one alone, since the
            table grows with every batch and what is in force changes seldom.
    """

    table: Table
    rows: pa.Table

    @classmethod
    def none(cls, table: Table) -> Self:
        """Return those of a table that has none."""
        return cls(table, arrow_schema(table).empty_table())

    @classmethod
    def stored(cls, lake: str, table: Table) -> Self:
        """Read what is stored."""
        schema = arrow_schema(table)
        rows = DeltaTable(table_path(lake, table)).to_pyarrow_dataset().to_table(columns=schema.names)
        return cls.none(table).with_rows(rows.cast(schema).sort_by(LANDING))

    @property
    def last(self) -> Mapping[str, Any]:
        """The newest decision; empty where nothing is decided."""
        rows = self.rows.slice(max(0, self.rows.num_rows - 1)).to_pylist()
        return rows[0] if rows else {}

    @property
    def newest(self) -> int:
        """The newest landing that is decided."""
        return int(self.last.get(LANDING, BEFORE_ALL))

    def decide(self, landing: int, in_force: Mapping[str, Any]) -> pa.Table:
        """Return the row that decides for the landings up to one, after all that are decided."""
        row = {LANDING: landing, DECIDED_AT: datetime.now(UTC), **in_force}
        return pa.Table.from_pylist([row], arrow_schema(self.table))

    def with_rows(self, rows: pa.Table) -> Self:
        """Return it with what was decided since."""
        rows = pa.concat_tables([self.rows, rows])
        is_last = np.ones(rows.num_rows, bool)
        is_last[:-1] = False
        for name in set(rows.column_names) - {LANDING, DECIDED_AT}:
            values = rows.column(name)
            is_last[:-1] |= pc.fill_null(pc.not_equal(values[:-1], values[1:]), fill_value=True).to_numpy()
        return self._replace(rows=rows.filter(pa.array(is_last)))

    def at(self, landings: Numbers) -> pa.Table:
        """Return for each landing the row that decides for it; all of them must be decided."""
        return self.rows.take(pa.array(np.searchsorted(self.rows.column(LANDING).to_numpy(), landings)))


class Outside(Protocol):
    """What does not come from the records, as far as a stream uses it."""

    def in_force(self, last: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what is in force by now, as columns of a decision; `last` is the decision before, or empty."""

    def derive(self, rows: pa.Table, decided: pa.Table) -> pa.Table:
        """Return what rows of the source lead to; `decided` has for each the decision that is for its landing."""


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
        state = None if self.needs is None else context.state(self.spec.name, self.needs)
        bound = self._bound_to(context.settings.lake, context.settings, state)
        return ChangeStream(self.spec, {self.source: self.columns}, lambda _: bound.step).open(context)

    def as_noted(self, lake: str) -> Decided:
        """Return it with what is stored; only for landings after that something is decided."""
        return self._bound_to(lake, None)

    def as_set(self, settings: Settings) -> Decided:
        """Return the same; what is decided then is decided by the settings."""
        return self._bound_to(settings.lake, settings)

    def _bound_to(self, lake: str, settings: Settings | None, state: State | None = None) -> Decided:
        outside = self.connect(lake, settings, state)
        return replace(self, lake=lake, outside=outside, known=Decisions.stored(lake, self.decisions))

    def step(self, part: Feed, batch: MicroBatch) -> Steps:
        """Append what a part leads to, some rows at a time: what is decided is stored before what follows from it."""
        with batch.phase("read"):
            decided = self._undecided(part.batches(self.source, [LANDING]))
        if decided.num_rows:
            yield Append(self.decisions, decided)
        self._learn(decided)
        writer = FileWriter(self.lake, self.target)
        with batch.phase("compute"):
            for rows in self._derived(part.batches(self.source, self.columns)):
                writer.write(rows)
                batch.rows += rows.num_rows
        yield Append(self.target, files=[writer.close()])

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

    def _derived(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        outside, known = self._bound()
        schema = arrow_schema(self.target)
        for some in in_parts(rows, ROWS_AT_A_TIME):
            yield outside.derive(some, known.at(landings_of(some))).select(schema.names).cast(schema)
