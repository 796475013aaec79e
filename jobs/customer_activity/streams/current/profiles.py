"""Profiles: the current profile of each customer, merged behind the path to the view.

Reads      silver.profile_changes, change data feed
Writes     silver.customer_profiles (merge)
Grain      one row per customer_id with a profile
On restart what the newest commit notes as read is left out; a repeated merge would set the same absolute values
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from customer_activity.catalog import Table
from customer_activity.lake import delta
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.lake.schemas import SCHEMAS
from customer_activity.settings import Settings
from customer_activity.streams.current.merging import merge_changes, newest

SOURCE = Table.PROFILE_CHANGES
TARGET = Table.PROFILES
COLUMNS = SCHEMAS[SOURCE].fieldNames()
ORDER = ["landing", "partition", "offset"]  # of a key's records, on any partitions
GONE = "is_tombstone"


def read(spark: SparkSession, settings: Settings) -> DataFrame:
    """Stream the changes of profiles."""
    return delta.read_changes(spark, settings.lake, SOURCE)


def merge_batch(_changes: DataFrame, batch: MicroBatch, *, settings: Settings) -> None:
    """Merge one batch's newest changes."""
    reduce = newest(SOURCE, COLUMNS, ORDER)
    merge_changes(batch, settings.lake, SOURCE, TARGET, COLUMNS, reduce, delete_when=f"s.{GONE}")
