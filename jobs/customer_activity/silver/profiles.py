"""Which profile update is current. Pure steps, no IO.

A customer's records are in one partition, so their offsets are their order. A tombstone ends the life of a profile;
the updates after it start a new one. Within a life the greatest (updated_at, offset) wins.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from customer_activity.microbatch import ACCEPTED, DUPLICATE, STALE
from customer_activity.schemas import POSITION, PROFILE_FIELDS

CONTENT = tuple(name for name in PROFILE_FIELDS.fieldNames() if name != "customer_id")
COLUMNS = (*PROFILE_FIELDS.fieldNames(), *POSITION.fieldNames())


def judge(events: DataFrame, current: DataFrame) -> DataFrame:
    """Add `verdict` (accepted, duplicate, stale), `life` and `is_new` to the batch's profile records.

    The customers' current profiles take part as the first record of their life; `is_new` tells the batch's own.

    Args:
        events: bronze profile records of the batch, tombstones included.
        current: silver.customer_profiles rows of the same customers (others do no harm).
    """
    before = (
        current.join(events.select("customer_id").distinct(), on="customer_id", how="left_semi")
        .withColumn("is_tombstone", F.lit(False))
        .withColumn("is_new", F.lit(False))
    )
    in_order = Window.partitionBy("customer_id").orderBy("is_new", "offset")
    earlier_in_life = (
        Window.partitionBy("customer_id", "life").orderBy("is_new", "offset").rowsBetween(Window.unboundedPreceding, -1)
    )
    content = F.struct(*CONTENT)
    is_update = ~F.col("is_tombstone")
    is_stale = F.coalesce(F.col("updated_at") < F.max("updated_at").over(earlier_in_life), F.lit(False))
    # Of the earlier records that were not stale the last one was current: only that can be repeated.
    held = F.last(F.when(is_update & ~F.col("is_stale"), content), ignorenulls=True).over(earlier_in_life)
    is_repeat = is_update & content.eqNullSafe(F.col("held"))
    return (
        events.select(*COLUMNS, "is_tombstone")
        .withColumn("is_new", F.lit(True))
        .unionByName(before.select(*COLUMNS, "is_tombstone", "is_new"))
        .withColumn("life", F.sum(F.col("is_tombstone").cast("int")).over(in_order))
        .withColumn("is_stale", is_stale)
        .withColumn("held", held)
        .withColumn("verdict", F.when(F.col("is_stale"), STALE).when(is_repeat, DUPLICATE).otherwise(ACCEPTED))
        .select(*COLUMNS, "is_tombstone", "is_new", "life", "verdict")
    )


def changes(judged: DataFrame) -> DataFrame:
    """Reduce judged records to what changes per customer.

    Grain: one row per customer whose profile begins, is replaced or ends (`is_tombstone`: it ends). A customer whose
    current profile stays as it is has no row; nor has one whose profile was not there and is not there after.
    """
    of_customer = Window.partitionBy("customer_id")
    latest = of_customer.orderBy(F.desc("is_new"), F.desc("offset"))
    return (
        judged.where(F.col("verdict") == ACCEPTED)
        .withColumn("existed", ~F.min("is_new").over(of_customer))
        .withColumn("rank", F.row_number().over(latest))
        .where((F.col("rank") == 1) & F.col("is_new") & (~F.col("is_tombstone") | F.col("existed")))
        .select(*COLUMNS, "is_tombstone")
    )
