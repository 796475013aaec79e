"""What one micro-batch is: its identity for exactly-once writes, its accounting, and its rows held once.

A small batch is brought to the driver and continues as a local relation: its plans need no file listing, no shuffle
and no code generation. A large one is cached where it is. The steps that follow are the same.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from customer_activity.catalog import Query, Table

SMALL_BATCH_ROWS = 20_000

# Generated code pays from some hundred thousand rows on; below, compiling it costs more than interpreting the plan.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}

READ, ACCEPTED, QUARANTINED, DUPLICATE, STALE = "read", "accepted", "quarantined", "duplicate", "stale"


@dataclass
class MicroBatch:
    """One micro-batch of one query.

    Attributes:
        query: the query it belongs to.
        generation: id of the query's checkpoint; a new checkpoint has a new one.
        batch_id: Spark's number of the batch within the generation.
        counts: records by topic and outcome, stored with every commit of the batch.
        rows: how many rows came in.
        commits: how many writes it has made.
        extra: what else its commits tell, such as the versions that it read.
    """

    query: Query
    generation: str
    batch_id: int
    counts: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    rows: int = 0
    commits: int = 0
    extra: dict[str, int] = field(default_factory=dict)

    def application_id(self, table: Table) -> str:
        """Delta's `txnAppId` for a table: the checkpoint's generation is part of it.

        Delta skips a write whose version it has seen under the same id. Were the id the same for a new checkpoint,
        whose batches count from 0 again, all of its writes would be skipped in silence.
        """
        return f"{self.query}:{table.label}:{self.generation}"

    def count(self, topic: str, outcome: str, records: int) -> None:
        """Add to the batch's accounting."""
        self.counts[topic][outcome] += records

    def metadata(self) -> str:
        """Return what each commit of this batch carries as `userMetadata`."""
        return json.dumps(
            {
                "query": self.query.value,
                "generation": self.generation,
                "batch_id": self.batch_id,
                "counts": self.counts,
                **self.extra,
            },
            sort_keys=True,
        )


ArrowStep = Callable[[pa.RecordBatch], pa.RecordBatch]


@dataclass(frozen=True)
class Held:
    """Rows that were computed once.

    Attributes:
        frame: the rows, as a local relation when they are few, cached where they are when they are many.
        local: the same rows in this process, when they are few.
    """

    frame: DataFrame
    local: pa.Table | None

    @property
    def is_small(self) -> bool:
        """Whether the rows are in this process."""
        return self.local is not None

    def counts(self, *columns: str) -> dict[tuple[Any, ...], int]:
        """Count rows by columns, without a Spark job when they are here already."""
        if self.local is None:
            return {row[:-1]: row[-1] for row in map(tuple, self.frame.groupBy(*columns).count().collect())}
        grouped = self.local.group_by(list(columns)).aggregate([([], "count_all")])
        return {tuple(row[column] for column in columns): row["count_all"] for row in grouped.to_pylist()}

    def rows(self) -> int:
        """Count the rows."""
        return self.frame.count() if self.local is None else self.local.num_rows


def _each(step: ArrowStep) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Lift a step to iterators; Spark inspects the signature, so it must be a plain function."""

    def each(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return map(step, batches)

    return each


@contextmanager
def held(
    frame: DataFrame,
    step: ArrowStep | None = None,
    schema: StructType | None = None,
    *,
    cache: bool = True,
) -> Iterator[Held]:
    """Compute a frame once.

    The plans of whatever is done with it are interpreted when it is small and compiled when it is not.

    Args:
        frame: what to compute.
        step: what to do with its rows in Python first; in this process when they are few, in Spark's workers when many.
        schema: the rows after the step; the frame's own without one.
        cache: whether many rows are kept; not worth it where reading a few columns again is cheaper.
    """
    session = frame.sparkSession
    head = frame.limit(SMALL_BATCH_ROWS + 1).toArrow()
    is_small = head.num_rows <= SMALL_BATCH_ROWS
    for key, value in (INTERPRETED if is_small else COMPILED).items():
        session.conf.set(key, value)
    if is_small:
        if step is not None:
            rows = head.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], head.schema)]
            head = pa.Table.from_batches([step(rows[0])])
        yield Held(session.createDataFrame(head, schema or frame.schema), head)
        return
    if step is not None and schema is not None:
        frame = frame.mapInArrow(_each(step), schema)
    if not cache:
        yield Held(frame, None)
        return
    frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield Held(frame, None)
    finally:
        frame.unpersist()
