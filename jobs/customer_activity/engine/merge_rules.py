"""The rules of a stream behind the hot path: how changes of one feed come to one current row a key.

They are pure but for what a table's newest commit notes, and the same wherever a part is merged: in the driver
(`current_rows.py`), and on Spark's executors (`merge_tasks.py`), which import this module and need little for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import closing, derived
from customer_activity.engine.closing import Closing
from customer_activity.engine.derived import Definition, Windowed
from customer_activity.engine.regrouping import GONE, Regrouping
from customer_activity.lake import folding
from customer_activity.lake.folding import Aggregates
from customer_activity.lake.reducing import Reduce
from customer_activity.topology import Spec

if TYPE_CHECKING:
    from customer_activity.lake.feeds import Feed


@dataclass(frozen=True)
class MergeRules(Windowed):
    """What one current row a key comes from: the columns that are read, and how rows are reduced and joined.

    Attributes:
        spec: what it is: one source, one table with its key.
        columns: what is read of the source.
        reduce: makes one row a key of a part's rows. Without `aggregates` it takes rows that it has reduced, too.
        aggregates: how each column but the key's joins the one of the row that is there; when not given, a reduced row
            takes that row's place.
        gone: the column of the reduced rows that tells that a row is to be deleted; None where none ever is.
        regrouping: how rows are joined that are no windows beforehand (sessions): then `reduce` makes rows of the
            table's form, and there is a `closing`.
        closing: of a table of windows, when its rows are final.
        definition, define: of such a table, what its windows are, and what makes the stream for others and for late
            purchases that are taken in.
        taken_in: how many these are.
    """

    spec: Spec
    columns: Sequence[str]
    reduce: Reduce
    aggregates: Aggregates | None = None
    gone: str | None = None
    closing: Closing | None = None
    definition: Definition | None = None
    define: Callable[[Definition, frozenset[str]], Any] | None = None
    taken_in: int = 0
    regrouping: Regrouping | None = None

    def __post_init__(self) -> None:
        """Refuse aggregates that leave it open what becomes of a column."""
        columns = set(arrow_schema(self.target).names).difference(self.key)
        if self.aggregates is not None and columns != set(self.aggregates):
            raise ValueError(f"{self.spec.name}: aggregates are of each column but the key's")
        if self.regrouping is not None and (self.closing is None or self.aggregates is not None):
            raise ValueError(f"{self.spec.name}: rows that are regrouped close, and have no aggregates")

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that tell its rows apart."""
        return self.spec.how(self.target).key

    @property
    def lane_key(self) -> tuple[str, ...]:
        """The columns by which its rows can be worked on apart."""
        return self.key if self.regrouping is None else (self.regrouping.by,)

    @property
    def deletes(self) -> str | None:
        """The column of the changes to its rows that tells that one is to be deleted; None where none ever is."""
        return self.gone if self.regrouping is None else GONE

    def together(self, reduced: pa.Table) -> pa.Table:
        """Make one row a key of rows that were reduced apart."""
        if self.regrouping is not None:
            return self.regrouping.merge(reduced)
        if self.aggregates is None:
            return self.reduce(reduced.to_batches())
        return folding.together(reduced, self.key, self.aggregates)

    def closed(self, lake: str) -> Self:
        """Return it with the windows closed that its table notes."""
        if self.closing is None:
            return self
        upto = derived.noted(lake, self.spec, self.target).get(closing.NOTE)
        return replace(self, closing=self.closing._replace(upto=upto))

    def after(self, part: Feed) -> Self:
        """Return it with the windows closed that a part closes."""
        if self.closing is None:
            return self
        columns = [closing.WATERMARK]
        watermarks = (batch.column(0) for batch in part.batches(self.source, columns))
        return replace(self, closing=self.closing.moved(watermarks))

    def marked(self, reduced: pa.Table) -> pa.Table:
        """Say of reduced rows whether they are final, where they are of windows."""
        return reduced if self.closing is None else self.closing.marked(reduced)

    def with_held(self, reduced: pa.Table, held: pa.Table) -> pa.Table:
        """Return what reduced rows, one a key, come to with those of the table: which of these close, or are joined."""
        if self.regrouping is not None and self.closing is not None:
            return self.regrouping.changed(held, reduced, self.key, self.closing)
        if self.closing is None or self.aggregates is None:
            return reduced
        ended = self.closing.closing(held, self.aggregates)
        return self.together(pa.concat_tables([reduced, ended.cast(reduced.schema)])) if ended.num_rows else reduced

    def rows(self, changes: Iterable[pa.RecordBatch]) -> pa.Table:
        """Return the current rows that all changes come to."""
        watermarks: list[pa.Array] = []
        rows = self.reduce(changes if self.closing is None else _watched(changes, watermarks))
        if self.closing is not None:
            rows = self.closing.moved(watermarks).marked(rows)
        if self.gone is not None:
            rows = rows.filter(pc.invert(rows.column(self.gone)))
        schema = arrow_schema(self.target)
        return rows.select(schema.names).cast(schema)

    def besides(self) -> Mapping[Table, pa.Table]:
        """Return nothing: it has one table."""
        return {}

    def note(self, rows: pa.Table) -> Mapping[str, Any]:
        """Return what a commit notes that leaves the table with these rows."""
        if self.closing is None:
            return {}
        final = rows.filter(rows.column(closing.IS_FINAL)).column(closing.END)
        return self.noted(pc.max(final.cast(pa.int64())).as_py())

    def noted(self, upto: int | None) -> Mapping[str, Any]:
        """Return what a commit notes: by which definition the table is computed, and which windows are closed."""
        return self.defined() if upto is None else {**self.defined(), closing.NOTE: upto}


def _watched(changes: Iterable[pa.RecordBatch], watermarks: list[pa.Array]) -> Iterator[pa.RecordBatch]:
    """Note the watermarks of rows that go by: of each batch the newest one."""
    for batch in changes:
        values = batch.column(closing.WATERMARK)
        watermarks.append(pa.array([pc.max(values.cast(pa.int64())).as_py()], pa.int64()))
        yield batch
