"""The contract of a stream behind the hot path that only appends: a row of its source leads to some rows, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.changes import ChangeStream
from customer_activity.engine.derived import Definition, Windowed
from customer_activity.engine.stream import Append, Context, Opened, Steps
from customer_activity.lake.feeds import Feed
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.topology import Spec


@dataclass(frozen=True)
class Appended(Windowed):
    """A stream behind the hot path that appends what follows from each row of one source, taken alone.

    Attributes:
        spec: what it is: one source, one table.
        columns: what is read of the source.
        derive: makes the rows of some rows of the source, with the table's columns.
        definition, define: what the rows are by, and what makes the stream for another definition and for late
            purchases that are taken in.
        taken_in: how many these are.
    """

    spec: Spec
    columns: Sequence[str]
    derive: Callable[[Iterable[pa.RecordBatch]], pa.Table]
    definition: Definition | None = None
    define: Callable[[Definition, frozenset[str]], Appended] | None = None
    taken_in: int = 0

    def open(self, context: Context) -> Opened:
        """Open it for a driver.

        Raises:
            SettingsError: its table was computed by another definition.
            TerminalError: it lacks late purchases that were taken in.
        """
        bound = self.bound(context.settings)
        return ChangeStream(self.spec, {self.source: self.columns}, lambda _: bound.step).open(context)

    def step(self, part: Feed, batch: MicroBatch) -> Steps:
        """Append what a part leads to; without rows the commit carries the batch's notes alone."""
        with batch.phase("compute"):
            rows = self.rows(part.batches(self.source, self.columns))
        batch.rows += rows.num_rows
        batch.extra |= self.note(rows)
        yield Append(self.target, rows)

    def rows(self, changes: Iterable[pa.RecordBatch]) -> pa.Table:
        """Return the rows that all of some changes lead to."""
        schema = arrow_schema(self.target)
        return self.derive(changes).select(schema.names).cast(schema)

    def besides(self) -> Mapping[Table, pa.Table]:
        """Return nothing: it has one table."""
        return {}

    def note(self, rows: pa.Table) -> Mapping[str, Any]:  # noqa: ARG002 - as others have it
        """Return what a commit notes."""
        return self.defined()
