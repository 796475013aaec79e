"""Activity: the one current row of each customer, merged behind the path to the view.

Reads      gold.activity_changes, change data feed
Writes     gold.customer_activity (merge)
Grain      one row per customer_id with a profile
On restart what the newest commit notes as read is left out; a repeated merge would set the same absolute values

The change is in the lake before it is on the topic, and on the topic before it is in this table, which follows within
`ACTIVITY_MERGE_SECONDS`: rewriting rows of a large table costs seconds that the view need not wait for.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from customer_activity.catalog import Table
from customer_activity.lake import delta
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.lake.schemas import SCHEMAS
from customer_activity.settings import Settings
from customer_activity.streams.current.merging import merge_changes, newest

SOURCE = Table.ACTIVITY_CHANGES
TARGET = Table.ACTIVITY
COLUMNS = [*SCHEMAS[Table.ACTIVITY].fieldNames(), "is_gone"]
ORDER = ["view_version"]
GONE = "is_gone"


def read(spark: SparkSession, settings: Settings) -> DataFrame:
    """Stream the changes of gold's rows."""
    return delta.read_changes(spark, settings.lake, SOURCE)


def merge_batch(_changes: DataFrame, batch: MicroBatch, *, settings: Settings) -> None:
    """Merge one batch's newest changes."""
    reduce = newest(SOURCE, COLUMNS, ORDER)
    merge_changes(batch, settings.lake, SOURCE, TARGET, COLUMNS, reduce, delete_when=f"s.{GONE}")
