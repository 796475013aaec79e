"""The contract of a stream behind the hot path: one current row a key, merged from one change feed.

A module that declares such a stream is imported by Spark's executors, too, which do its large parts
(`merge_tasks.py`), and which need little for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import folding
from customer_activity.lake.folding import Aggregates
from customer_activity.lake.microbatch import MicroBatch, Place
from customer_activity.lake.reducing import Reduce
from customer_activity.topology import Spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from customer_activity.engine.stream import Context, Opened, Steps
    from customer_activity.lake.feeds import Feed
    from customer_activity.settings import Settings


@dataclass(frozen=True)
class CurrentRows:
    """A stream behind the hot path: one current row a key, merged from one change feed.

    Attributes:
        spec: what it is: one source, one table with its key.
        columns: what is read of the source.
        reduce: makes one row a key of a part's rows. Without `aggregates` it takes rows that it has reduced, too.
        aggregates: how each column but the key's joins the one of the row that is there; when not given, a reduced row
            takes that row's place.
        gone: the column of the reduced rows that tells that a row is to be deleted; None where none ever is.
    """

    spec: Spec
    columns: Sequence[str]
    reduce: Reduce
    aggregates: Aggregates | None = None
    gone: str | None = None

    def __post_init__(self) -> None:
        """Refuse aggregates that leave it open what becomes of a column."""
        columns = set(arrow_schema(self.target).names).difference(self.key)
        if self.aggregates is not None and columns != set(self.aggregates):
            raise ValueError(f"{self.spec.name}: aggregates are of each column but the key's")

    @property
    def source(self) -> Table:
        """The table that it follows."""
        (source,) = self.spec.sources
        return source

    @property
    def target(self) -> Table:
        """The table that has the current rows."""
        (target,) = self.spec.tables
        return target

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that tell its rows apart."""
        return self.spec.how(self.target).key

    def open(self, context: Context) -> Opened:
        """Open it for a driver."""
        from customer_activity.engine.changes import ChangeStream  # noqa: PLC0415 - executors open none

        step = partial(self.step, spark=context.spark, settings=context.settings)
        return ChangeStream(self.spec, {self.source: self.columns}, lambda _: step).open(context)

    def step(self, part: Feed, batch: MicroBatch, *, spark: SparkSession, settings: Settings) -> Steps:
        """Merge a part's changes, in the driver or on executors."""
        from customer_activity.engine import merge_spread  # noqa: PLC0415 - executors merge nothing
        from customer_activity.engine.stream import Merge  # noqa: PLC0415 - likewise

        if batch.placement is not None and batch.placement.place is Place.EXECUTORS:
            yield from merge_spread.steps(self, part, batch, spark=spark, settings=settings)
            return
        with batch.phase("compute"):
            rows = self.reduce(part.batches(self.source, self.columns))
        update = None if self.aggregates is None else folding.as_sql(arrow_schema(self.target), self.aggregates)
        yield Merge(self.target, rows, update, None if self.gone is None else f"s.{self.gone}")

    def together(self, reduced: pa.Table) -> pa.Table:
        """Make one row a key of rows that were reduced apart."""
        if self.aggregates is None:
            return self.reduce(reduced.to_batches())
        return folding.together(reduced, self.key, self.aggregates)

    def rows(self, changes: Iterable[pa.RecordBatch]) -> pa.Table:
        """Return the current rows that all changes come to."""
        rows = self.reduce(changes)
        if self.gone is not None:
            rows = rows.filter(pc.invert(rows.column(self.gone)))
        schema = arrow_schema(self.target)
        return rows.select(schema.names).cast(schema)
