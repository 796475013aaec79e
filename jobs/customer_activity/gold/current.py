"""Activity: the one current row of each customer, merged behind the path to the view.

Reads      gold.activity_changes, change data feed
Writes     gold.customer_activity (merge)
Grain      one row per customer_id with a profile
On restart a repeated merge sets the same absolute values; it carries (txnAppId, batch_id)

The change is in the lake before it is on the topic, and on the topic before it is in this table, which follows within
`ACTIVITY_MERGE_SECONDS`: rewriting rows of a large table costs seconds that the view need not wait for.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from customer_activity import delta
from customer_activity.catalog import Table
from customer_activity.merging import merge, newest
from customer_activity.microbatch import MicroBatch
from customer_activity.schemas import SCHEMAS
from customer_activity.settings import Settings

SOURCE = Table.ACTIVITY_CHANGES
COLUMNS = [*SCHEMAS[Table.ACTIVITY].fieldNames(), "is_gone"]


def read(spark: SparkSession, settings: Settings) -> DataFrame:
    """Stream the changes of gold's rows."""
    return delta.read_changes(spark, settings.lake, SOURCE)


def merge_batch(changes: DataFrame, batch: MicroBatch, *, settings: Settings) -> None:
    """Merge one batch's newest changes."""
    with batch.phase("compute"):
        source = newest(changes, settings.lake, SOURCE, COLUMNS, batch, order="view_version")
    with batch.phase("commit"):
        merge(source, settings.lake, Table.ACTIVITY, batch, key="customer_id", delete_when="s.is_gone")
