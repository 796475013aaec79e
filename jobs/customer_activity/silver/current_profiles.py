"""Profiles: the current profile of each customer, merged behind the path to the view.

Reads      silver.profile_changes, change data feed
Writes     silver.customer_profiles (merge)
Grain      one row per customer_id with a profile
On restart a repeated merge sets the same absolute values; it carries (txnAppId, batch_id)
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from customer_activity import delta
from customer_activity.catalog import Table
from customer_activity.merging import merge, newest
from customer_activity.microbatch import MicroBatch
from customer_activity.schemas import SCHEMAS
from customer_activity.settings import Settings

SOURCE = Table.PROFILE_CHANGES
COLUMNS = SCHEMAS[SOURCE].fieldNames()


def read(spark: SparkSession, settings: Settings) -> DataFrame:
    """Stream the changes of profiles."""
    return delta.read_changes(spark, settings.lake, SOURCE)


def merge_batch(changes: DataFrame, batch: MicroBatch, *, settings: Settings) -> None:
    """Merge one batch's newest changes."""
    with batch.phase("compute"):
        # A customer's changes are in one partition of the topic: offsets order them.
        source = newest(changes, settings.lake, SOURCE, COLUMNS, batch, order="offset")
    with batch.phase("commit"):
        merge(source, settings.lake, Table.PROFILES, batch, key="customer_id", delete_when="s.is_tombstone")
