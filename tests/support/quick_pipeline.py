"""The pipeline without plans: what a hop reads comes from where the product itself reads small batches.

That is the fetcher for bronze, and the files that commits added for the others: the plan that Spark makes for a batch
is then run by nobody, and to make it takes ten times as long as the rest of the hop. Rows are read without Spark, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from customer_activity.catalog import Table, table_path
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.streams.bronze.fetching import Sizes
from customer_activity.streams.bronze.stream import LARGE_RECORD_BYTES
from support.pipeline import LANDING, SOURCES, Pipeline, kafka_rows


@dataclass
class Fetched:
    """The records of bronze's batch, in the place of what fetches them from the broker."""

    rows: pa.Table = field(default_factory=lambda: kafka_rows([]))

    def fetch(self, _ranges: Mapping[str, Mapping[int, tuple[int, int]]]) -> list[pa.RecordBatch]:
        """Return them, as often as they are asked for."""
        found: list[pa.RecordBatch] = self.rows.to_batches()
        return found

    def sample(self, _ranges: Mapping[str, Mapping[int, tuple[int, int]]]) -> Sizes:
        """Have them come this way, wherever batches are worked on: there is no broker that Spark could read from."""
        return Sizes(LARGE_RECORD_BYTES + 1, LARGE_RECORD_BYTES + 1)


@dataclass
class QuickPipeline(Pipeline):
    """A pipeline of small batches."""

    fetched: Fetched = field(default_factory=Fetched)
    unread: DataFrame = field(init=False)

    def __post_init__(self) -> None:
        """Make the one plan that nobody runs."""
        super().__post_init__()
        self.unread = self.spark.range(0)

    def _input(self, query: str) -> DataFrame:
        if query in LANDING:
            self.fetched.rows = self._arrived(query)
        for table in SOURCES[query]:
            self.advance(query, table)
        return self.unread

    def _write(self, query: str, batch: MicroBatch) -> None:
        if query not in LANDING:
            super()._write(query, batch)
            return
        batch.ranges = {"every topic": {0: (0, self.fetched.rows.num_rows)}}
        self._land(self.unread, batch, self.fetched)

    def rows(self, table: Table, *columns: str) -> list[dict[str, Any]]:
        """Return a table's rows, some columns of them, in order."""
        read = DeltaTable(table_path(self.settings.lake, table)).to_pyarrow_table(columns=list(columns) or None)
        return sorted(read.to_pylist(), key=str)
