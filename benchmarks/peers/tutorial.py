"""The pipeline as tutorials teach it: one query a table, foreachBatch with a MERGE, settings left as they come.

    purchases topic -> bronze purchases -> silver purchases (MERGE: insert if absent) -> silver summaries (MERGE: add)
    profiles topic  -> bronze profiles  -> silver profiles (MERGE: newest wins)
    change feeds of both -> gold (MERGE of the join for the customers that changed) -> view topic (Spark's Kafka sink)

Between a purchase and the view lie four Delta commits. In the good case it is right; a batch that is repeated after a
crash may be added to a summary twice or published twice. There are no tombstones, no quarantine and no accounting.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from customer_activity import settings
from customer_activity.engine import session

CONFIGURED = settings.load()
LAKE = CONFIGURED.lake

PURCHASE = (
    "purchaseId STRING, customerId STRING, productId STRING, amount DECIMAL(18,2), currency STRING, "
    "occurredAtEpochMillis BIGINT"
)
PROFILE = (
    "customerId STRING, name STRING, email STRING, address STRING, loyaltyStatus STRING, updatedAtEpochMillis BIGINT"
)
TABLES = {
    "bronze/purchases": f"{PURCHASE}, kafka_timestamp TIMESTAMP",
    "bronze/profiles": f"{PROFILE}, kafka_timestamp TIMESTAMP",
    "silver/purchases": f"{PURCHASE}, kafka_timestamp TIMESTAMP",
    "silver/profiles": f"{PROFILE}, kafka_timestamp TIMESTAMP",
    "silver/summaries": (
        "customerId STRING, purchaseCount BIGINT, totalAmount DECIMAL(18,2), firstPurchaseAtEpochMillis BIGINT, "
        "lastPurchaseAtEpochMillis BIGINT, kafka_timestamp TIMESTAMP"
    ),
    "gold/customer_activity": (
        "customerId STRING, name STRING, email STRING, address STRING, loyaltyStatus STRING, "
        "profileUpdatedAtEpochMillis BIGINT, purchaseCount BIGINT, totalAmount DECIMAL(18,2), currency STRING, "
        "firstPurchaseAtEpochMillis BIGINT, lastPurchaseAtEpochMillis BIGINT, viewVersion BIGINT, "
        "asOfEpochMillis BIGINT"
    ),
}


def start_session() -> SparkSession:
    """Start Spark with Delta, three gigabytes and nothing else that matters."""
    return (
        SparkSession.builder.appName("tutorial")
        .master("local[*]")
        .config("spark.driver.memory", "3g")
        .config("spark.ui.showConsoleProgress", "false")  # keeps its log readable
        .config("spark.driver.extraClassPath", ":".join(str(jar) for jar in session.jars(CONFIGURED)))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )


def create_tables(spark: SparkSession) -> None:
    """Create the tables, change data feed on."""
    for name, columns in TABLES.items():
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS delta.`{LAKE}/{name}` ({columns}) USING delta "
            "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        )


def read_topic(spark: SparkSession, topic: str, schema: str) -> DataFrame:
    """Stream a topic's records, parsed."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", CONFIGURED.kafka_bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .select(
            F.from_json(F.col("value").cast("string"), schema).alias("record"),
            F.col("timestamp").alias("kafka_timestamp"),
        )
        .select("record.*", "kafka_timestamp")
    )


def read_changes(spark: SparkSession, name: str) -> DataFrame:
    """Stream what a table's rows became."""
    return (
        spark.readStream.format("delta")
        .option("readChangeFeed", "true")
        .load(f"{LAKE}/{name}")
        .where("_change_type IN ('insert', 'update_postimage')")
    )


def append(stream: DataFrame, name: str) -> StreamingQuery:
    """Start a query that appends to a table."""
    return (
        stream.writeStream.queryName(name)
        .format("delta")
        .option("checkpointLocation", f"{LAKE}/_checkpoints/{name}")
        .start(f"{LAKE}/{name}")
    )


def merge(stream: DataFrame, name: str, write: Callable[[DataFrame, int], None]) -> StreamingQuery:
    """Start a query that merges each batch into a table."""
    return (
        stream.writeStream.queryName(name)
        .foreachBatch(write)
        .option("checkpointLocation", f"{LAKE}/_checkpoints/{name}")
        .start()
    )


def table(spark: SparkSession, name: str) -> DeltaTable:
    """Return a table to merge into."""
    return DeltaTable.forPath(spark, f"{LAKE}/{name}")


def merge_purchases(batch: DataFrame, _: int) -> None:
    """Insert the purchases that are not there yet."""
    purchases = batch.select(table(batch.sparkSession, "silver/purchases").toDF().columns)
    (
        table(batch.sparkSession, "silver/purchases")
        .alias("t")
        .merge(purchases.dropDuplicates(["purchaseId"]).alias("s"), "t.purchaseId = s.purchaseId")
        .whenNotMatchedInsertAll()
        .execute()
    )


def merge_profiles(batch: DataFrame, _: int) -> None:
    """Keep each customer's newest profile."""
    row = F.struct(*table(batch.sparkSession, "silver/profiles").toDF().columns)
    newest = batch.groupBy("customerId").agg(F.max_by(row, "updatedAtEpochMillis").alias("row")).select("row.*")
    (
        table(batch.sparkSession, "silver/profiles")
        .alias("t")
        .merge(newest.alias("s"), "t.customerId = s.customerId")
        .whenMatchedUpdateAll("s.updatedAtEpochMillis > t.updatedAtEpochMillis")
        .whenNotMatchedInsertAll()
        .execute()
    )


def merge_summaries(batch: DataFrame, _: int) -> None:
    """Add new purchases to their customers' sums."""
    added = batch.groupBy("customerId").agg(
        F.count("*").alias("purchaseCount"),
        F.sum("amount").cast("decimal(18,2)").alias("totalAmount"),
        F.min("occurredAtEpochMillis").alias("firstPurchaseAtEpochMillis"),
        F.max("occurredAtEpochMillis").alias("lastPurchaseAtEpochMillis"),
        F.max("kafka_timestamp").alias("kafka_timestamp"),
    )
    (
        table(batch.sparkSession, "silver/summaries")
        .alias("t")
        .merge(added.alias("s"), "t.customerId = s.customerId")
        .whenMatchedUpdate(
            set={
                "purchaseCount": "t.purchaseCount + s.purchaseCount",
                "totalAmount": "t.totalAmount + s.totalAmount",
                "firstPurchaseAtEpochMillis": "least(t.firstPurchaseAtEpochMillis, s.firstPurchaseAtEpochMillis)",
                "lastPurchaseAtEpochMillis": "greatest(t.lastPurchaseAtEpochMillis, s.lastPurchaseAtEpochMillis)",
                "kafka_timestamp": "greatest(t.kafka_timestamp, s.kafka_timestamp)",
            }
        )
        .whenNotMatchedInsertAll()
        .execute()
    )


def merge_activity(batch: DataFrame, _: int) -> None:
    """Join both sides for the customers that changed, merge the rows into gold, and publish them."""
    spark = batch.sparkSession
    rows = join_sides(
        batch.select("customerId").distinct(),
        spark.read.format("delta").load(f"{LAKE}/silver/profiles"),
        spark.read.format("delta").load(f"{LAKE}/silver/summaries"),
    ).persist()
    (
        table(spark, "gold/customer_activity")
        .alias("t")
        .merge(rows.alias("s"), "t.customerId = s.customerId")
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll()
        .execute()
    )
    (
        rows.select(
            F.col("customerId").alias("key"), F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("value")
        )
        .write.format("kafka")
        .option("kafka.bootstrap.servers", CONFIGURED.kafka_bootstrap_servers)
        .option("topic", CONFIGURED.view_topic)
        .save()
    )
    rows.unpersist()


def join_sides(changed: DataFrame, profiles: DataFrame, summaries: DataFrame) -> DataFrame:
    """Left join profiles and summaries of these customers, as rows of the view."""
    return (
        profiles.withColumnRenamed("kafka_timestamp", "profile_timestamp")
        .join(changed, "customerId")
        .join(summaries, "customerId", "left")
        .select(
            *("customerId", "name", "email", "address", "loyaltyStatus"),
            F.col("updatedAtEpochMillis").alias("profileUpdatedAtEpochMillis"),
            F.coalesce("purchaseCount", F.lit(0)).cast("bigint").alias("purchaseCount"),
            F.coalesce("totalAmount", F.lit(0)).cast("decimal(18,2)").alias("totalAmount"),
            F.lit(CONFIGURED.currency).alias("currency"),
            *("firstPurchaseAtEpochMillis", "lastPurchaseAtEpochMillis"),
            F.unix_millis(F.current_timestamp()).alias("viewVersion"),
            F.unix_millis(F.greatest("profile_timestamp", "kafka_timestamp")).alias("asOfEpochMillis"),
        )
    )


def main() -> None:
    """Run the six queries until SIGTERM."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    spark = start_session()
    create_tables(spark)
    changed = read_changes(spark, "silver/summaries").select("customerId")
    changed = changed.union(read_changes(spark, "silver/profiles").select("customerId"))
    queries = [
        append(read_topic(spark, CONFIGURED.purchase_topic, PURCHASE), "bronze/purchases"),
        append(read_topic(spark, CONFIGURED.profile_topic, PROFILE), "bronze/profiles"),
        merge(read_changes(spark, "bronze/purchases"), "silver/purchases", merge_purchases),
        merge(read_changes(spark, "bronze/profiles"), "silver/profiles", merge_profiles),
        merge(read_changes(spark, "silver/purchases"), "silver/summaries", merge_summaries),
        merge(changed, "gold/customer_activity", merge_activity),
    ]
    while not stopping.wait(0.5):
        for query in queries:
            if not query.isActive:
                raise SystemExit(f"{query.name} ended: {query.exception()}")
    for query in queries:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
