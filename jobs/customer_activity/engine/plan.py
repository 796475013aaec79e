"""What it takes to start a query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame

from customer_activity.catalog import Table
from customer_activity.lake.microbatch import MicroBatch


class Plan(NamedTuple):
    """What it takes to start one query.

    Attributes:
        source: what it reads.
        write: what to do with each of its batches.
        begins: the first version that a first batch reads of each table, in the order of the sources (None: it begins
            with the table as it is); empty where the query's batches are not read from files.
    """

    source: DataFrame
    write: Callable[[DataFrame, MicroBatch], None]
    begins: Mapping[Table, int | None] = {}
