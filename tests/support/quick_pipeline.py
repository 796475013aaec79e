"""The pipeline without plans: what a hop reads comes from where the product itself reads small batches.

That is the fetcher for bronze, and the files that commits added for the others: the plan that Spark makes for a batch
is then run by nobody, and to make it takes ten times as long as the rest of the hop. Rows are read without Spark, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame

from customer_activity.catalog import Table, table_path
from support.pipeline import LANDING, SOURCES, Pipeline


@dataclass
class QuickPipeline(Pipeline):
    """A pipeline of small batches."""

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

    def rows(self, table: Table, *columns: str) -> list[dict[str, Any]]:
        """Return a table's rows, some columns of them, in order."""
        read = DeltaTable(table_path(self.settings.lake, table)).to_pyarrow_table(columns=list(columns) or None)
        return sorted(read.to_pylist(), key=str)
