"""Silver: count each purchase once, keep its customer's running summary, and keep the current profile.

Reads      bronze.purchase_events and bronze.customer_profiles, change data feeds, one batch cut over both
Writes     silver.purchases (append), bronze.quarantine (append: repeats with other content),
           silver.purchase_summaries (merge, additive), silver.customer_profiles (merge), in this order
Grain      one row per purchase_id; one row per customer_id that bought; one row per customer_id with a profile
On restart a repeated batch judges every record as before: purchases know their own rows by coordinates, and profiles
           are merged last; each write carries (txnAppId, batch_id), so those that were made are skipped
"""

from __future__ import annotations

from contextlib import ExitStack

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from customer_activity import delta
from customer_activity.catalog import Reason, Table
from customer_activity.microbatch import ACCEPTED, QUARANTINED, Held, MicroBatch, held
from customer_activity.schemas import POSITION, PROFILE_FIELDS, PURCHASE_FIELDS, SCHEMAS
from customer_activity.settings import Settings
from customer_activity.silver import profiles, purchases

EVENT_COLUMNS = list(
    dict.fromkeys(
        [
            *PURCHASE_FIELDS.fieldNames(),
            *PROFILE_FIELDS.fieldNames(),
            "is_tombstone",
            "topic",
            *POSITION.fieldNames(),
        ]
    )
)


def read(spark: SparkSession, settings: Settings) -> DataFrame:
    """Stream what landed on either topic."""
    feeds = [delta.read_changes(spark, settings.lake, table) for table in (Table.PURCHASE_EVENTS, Table.PROFILE_EVENTS)]
    return landed(*feeds)


def landed(purchase_events: DataFrame, profile_events: DataFrame) -> DataFrame:
    """Both change feeds as one, without the raw bytes; `topic` tells them apart."""
    rows = [feed.where(F.col("_change_type") == "insert") for feed in (purchase_events, profile_events)]
    return rows[0].unionByName(rows[1], allowMissingColumns=True).select(*EVENT_COLUMNS)


def merge_batch(events: DataFrame, batch: MicroBatch, *, settings: Settings) -> None:
    """Write one batch.

    Every record is judged and counted before anything is written, so each commit carries the whole accounting.
    """
    with held(events, cache=False) as new, ExitStack() as judging:
        topics = new.counts("topic")
        purchase_verdicts = profile_verdicts = None
        if (settings.purchase_topic,) in topics:
            purchase_verdicts = judging.enter_context(held(judge_purchases(new, settings)))
            count_verdicts(purchase_verdicts, settings.purchase_topic, batch)
        if (settings.profile_topic,) in topics:
            profile_verdicts = judging.enter_context(held(judge_profiles(new.frame, settings)))
            count_verdicts(profile_verdicts, settings.profile_topic, batch)
        if purchase_verdicts is not None:
            write_purchases(purchase_verdicts, batch, settings)
        if profile_verdicts is not None:
            write_profiles(profile_verdicts, batch, settings)
        delta.account(new.frame.sparkSession, settings.lake, Table.PURCHASES, batch)


def judge_purchases(events: Held, settings: Settings) -> DataFrame:
    """Judge the batch's purchases against those counted before."""
    bought = events.frame.where(F.col("topic") == settings.purchase_topic)
    counted = delta.read(bought.sparkSession, settings.lake, Table.PURCHASES)
    if events.is_small:  # few ids go to the table's files; many meet its rows in a shuffle that judging needs anyway
        counted = counted.join(F.broadcast(bought.select("purchase_id")), on="purchase_id", how="left_semi")
    return purchases.judge(bought, counted)


def judge_profiles(events: DataFrame, settings: Settings) -> DataFrame:
    """Judge the batch's profile records against the current profiles."""
    updated = events.where(F.col("topic") == settings.profile_topic)
    return profiles.judge(updated, delta.read(events.sparkSession, settings.lake, Table.PROFILES))


def write_purchases(judged: Held, batch: MicroBatch, settings: Settings) -> None:
    """Append the purchases that count, add them to the summaries, quarantine the conflicting repeats."""
    outcome = batch.counts[settings.purchase_topic]
    if outcome.get(ACCEPTED):
        accepted = purchases.accepted(judged.frame)
        delta.append(accepted, settings.lake, Table.PURCHASES, batch)
        delta.merge(
            purchases.summarise(accepted),
            settings.lake,
            Table.SUMMARIES,
            batch,
            key="customer_id",
            local_source=judged.is_small,
            update=purchases.ADD_TO_SUMMARY,
        )
    if outcome.get(QUARANTINED):
        quarantine(judged.frame.where(F.col("verdict") == QUARANTINED), batch, settings)


def write_profiles(judged: Held, batch: MicroBatch, settings: Settings) -> None:
    """Merge what changed among the current profiles."""
    with held(profiles.changes(judged.frame)) as changed:
        if changed.rows():
            delta.merge(
                changed.frame,
                settings.lake,
                Table.PROFILES,
                batch,
                key="customer_id",
                local_source=changed.is_small,
                delete_when="s.is_tombstone",
            )


def quarantine(conflicts: DataFrame, batch: MicroBatch, settings: Settings) -> None:
    """Append conflicting repeats to quarantine with the raw bytes that bronze kept of them."""
    at = conflicts.select("topic", "partition", "offset")
    low, high = at.agg(F.min("offset"), F.max("offset")).first() or (0, 0)
    raw = delta.read(conflicts.sparkSession, settings.lake, Table.PURCHASE_EVENTS).where(
        F.col("offset").between(low, high)
    )
    rows = (
        raw.join(F.broadcast(at), on=["topic", "partition", "offset"], how="left_semi")
        .withColumn("reason", F.lit(Reason.CONFLICTING_DUPLICATE.value))
        .withColumn("detail", F.lit("$.purchaseId: counted before with other content"))
        .withColumn("quarantined_at", F.current_timestamp())
    )
    delta.append(rows.select(*SCHEMAS[Table.QUARANTINE].fieldNames()), settings.lake, Table.QUARANTINE, batch)


def count_verdicts(judged: Held, topic: str, batch: MicroBatch) -> None:
    """Add the verdicts on a topic's records to the batch's accounting."""
    for (verdict, is_new), count in judged.counts("verdict", "is_new").items():
        if is_new:
            batch.count(topic, verdict, count)
            batch.rows += count
