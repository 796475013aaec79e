"""Gold: the current profile of a customer joined with everything the customer bought.

Reads      silver.purchase_summaries and silver.customer_profiles, change data feeds, for *who* changed;
           both tables again at one pair of versions, for *what* they hold now
Writes     gold.customer_activity (merge)
Grain      one row per customer_id with a profile (profiles LEFT JOIN summaries)
On restart a repeated batch computes the same customers from versions at least as new; rows are absolute values, and
           the merge carries (txnAppId, batch_id)
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from customer_activity import delta
from customer_activity.catalog import Table
from customer_activity.microbatch import MicroBatch, held
from customer_activity.schemas import SCHEMAS
from customer_activity.settings import Settings

VALUES = tuple(name for name in SCHEMAS[Table.ACTIVITY].fieldNames() if name not in ("customer_id", "view_version"))
DIFFERS = " OR ".join(f"NOT (t.{name} <=> s.{name})" for name in VALUES)


def read(spark: SparkSession, settings: Settings) -> DataFrame:
    """Stream who changed on either side."""
    return changed(*(delta.read_changes(spark, settings.lake, table) for table in (Table.SUMMARIES, Table.PROFILES)))


def changed(summaries: DataFrame, profiles: DataFrame) -> DataFrame:
    """Both change feeds as `customer_id` and `is_gone` (its profile was deleted)."""
    return summaries.select("customer_id", F.lit(False).alias("is_gone")).union(
        profiles.select("customer_id", (F.col("_change_type") == "delete").alias("is_gone"))
    )


def join_sides(customers: DataFrame, profiles: DataFrame, summaries: DataFrame, currency: str) -> DataFrame:
    """Left join the sides for the customers that changed.

    Grain: one row per customer with a profile, and one per customer whose profile was deleted (`is_gone`). Those with
    purchases alone have none: they wait in silver. Produces gold's columns but view_version, and `is_gone`.
    """
    customers = customers.groupBy("customer_id").agg(F.max("is_gone").alias("was_deleted"))
    these = F.broadcast(customers.select("customer_id"))
    purchase_count = F.coalesce("purchase_count", F.lit(0).cast("bigint"))
    total_amount = F.coalesce("total_amount", F.lit(0).cast("decimal(18,2)"))
    current = profiles.join(these, on="customer_id", how="left_semi").withColumnsRenamed(
        {"updated_at": "profile_updated_at", "kafka_timestamp": "profile_kafka_timestamp"}
    )
    bought = summaries.join(these, on="customer_id", how="left_semi")
    return (
        customers.join(current, on="customer_id", how="left")
        .where(F.col("profile_kafka_timestamp").isNotNull() | F.col("was_deleted"))
        .join(bought, on="customer_id", how="left")
        .withColumns(
            {
                "purchase_count": purchase_count,
                "total_amount": total_amount,
                "currency": F.lit(currency),
                # greatest() passes over nulls: a customer without purchases is as new as the profile
                "as_of": F.greatest("profile_kafka_timestamp", "last_kafka_timestamp"),
                "is_gone": F.col("profile_kafka_timestamp").isNull(),
            }
        )
        .select("customer_id", *VALUES, "is_gone")
    )


def merge_batch(changes: DataFrame, batch: MicroBatch, *, settings: Settings, clock: ViewClock) -> None:
    """Write one batch: both silver tables at one pair of versions, one merge, unchanged rows left alone."""
    with held(changes) as customers:
        session = customers.frame.sparkSession
        versions = {table: delta.version(session, settings.lake, table) for table in (Table.PROFILES, Table.SUMMARIES)}
        profiles, summaries = (
            delta.read(session, settings.lake, table, as_of=version) for table, version in versions.items()
        )
        with held(join_sides(customers.frame, profiles, summaries, settings.currency)) as joined:
            batch.rows += joined.rows()
            if not batch.rows:
                return
            batch.extra = {table.label: version for table, version in versions.items()}
            delta.merge(
                joined.frame.withColumn("view_version", F.lit(clock.next()).cast("bigint")),
                settings.lake,
                Table.ACTIVITY,
                batch,
                key="customer_id",
                local_source=joined.is_small,
                update_when=DIFFERS,
                delete_when="s.is_gone",
            )


class ViewClock:
    """Gives each batch a view version greater than every one before.

    A hybrid logical clock: the time in milliseconds, or one more than the last version where time has not moved on.
    So versions grow over deletes, restarts and rebuilds of the table without being stored anywhere else.
    """

    def __init__(self, newest: int = 0, *, now: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        """Start above the newest version known; `now` counts milliseconds."""
        self.newest = newest
        self.now = now

    @classmethod
    def of(cls, spark: SparkSession, lake: str) -> ViewClock:
        """Start above the newest version in gold."""
        row = delta.read(spark, lake, Table.ACTIVITY).agg(F.max("view_version")).first()
        return cls(row[0] if row is not None and row[0] is not None else 0)

    def next(self) -> int:
        """Return the next version."""
        self.newest = max(self.now(), self.newest + 1)
        return self.newest
