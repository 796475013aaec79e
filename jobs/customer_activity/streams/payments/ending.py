"""Purchases whose time to be paid ends with a part: which files may have some, and where a part with many is joined.

A small part may end the time of many: where one partition was hours behind, its next records move the watermark by
hours. The driver would hold all of these purchases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.columns import UTC_MICROS
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import placement
from customer_activity.lake.feeds import Added
from customer_activity.lake.microbatch import SMALL_BATCH_ROWS, Place, Placement
from customer_activity.settings import Settings
from customer_activity.streams.payments.joining import Due
from customer_activity.streams.payments.past import Past

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MICROS_A_MILLI = 1_000  # to which statistics are cut


def among(files: Sequence[Added], lake: str, version: int, due: Due) -> list[Added]:
    """Return those files of timed purchases, at a version, that may have purchases whose time ends with the part."""
    if not due.moves or not files:
        return []
    told = _may_have(DeltaTable(table_path(lake, Table.TIMED_PURCHASES), version=version), due)
    paths = set(map(unquote, told.column("path").to_pylist()))
    return [file for file in files if file.path in paths]


def placed(chosen: Placement, due: Due, landed_to: int, *, spark: SparkSession, settings: Settings) -> Placement:
    """Return where a part that is for the driver is joined: where it ends the time of many purchases, on executors.

    Without executors, and where settings choose, it stays in the driver.
    """
    if not due.moves or not placement.has_choice(settings, spark):
        return chosen
    rows = count(settings.lake, due, landed_to)
    if rows <= SMALL_BATCH_ROWS:
        return chosen
    return Placement(Place.EXECUTORS, f"the time to be paid of {rows:,} purchases ends")


def count(lake: str, due: Due, landed_to: int) -> int:
    """Return how many purchases have their time end with a part; of a few, how many might.

    Where the files that may have some have more rows than a small batch, as compacted ones do, event times are read;
    none is held.
    """
    table = DeltaTable(table_path(lake, Table.TIMED_PURCHASES))
    told = _may_have(table, due)
    if not told.num_rows:
        return 0
    rows = told.column("num_records")
    most = int(pc.sum(rows).as_py() or 0)
    if most <= SMALL_BATCH_ROWS and not rows.null_count:
        return most
    ends = Past.in_tables(lake, landed_to).are_between(due.before, due.after)
    return int(table.to_pyarrow_dataset(schema=arrow_schema(Table.TIMED_PURCHASES)).count_rows(filter=ends))


def _may_have(table: DeltaTable, due: Due) -> pa.Table:
    """Return what a log tells of the files that may have purchases whose time ends."""
    told = pa.table(table.get_add_actions(flatten=True))
    if not told.num_rows:
        return told
    least, most = (told.column(f"{end}.occurred_at").cast(UTC_MICROS).cast(pa.int64()) for end in ("min", "max"))
    may = pc.less_equal(least, due.after)
    if due.before is not None:
        may = pc.and_(may, pc.greater(pc.add(most, MICROS_A_MILLI), due.before))
    return told.filter(pc.fill_null(may, fill_value=True))
