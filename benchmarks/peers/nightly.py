"""The view as a nightly batch: read both topics whole, compute every row anew, overwrite the table.

Reads      Kafka: purchases and profiles, from the first offset to the last
Writes     delta <lake>/nightly/customer_activity (overwrite)
Grain      one row per customer with a profile (profiles LEFT JOIN purchases)
Prints     JSON: purchases (distinct), rows, seconds from the process's start to the table's commit
"""

from __future__ import annotations

import json
import time

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from customer_activity import settings
from customer_activity.engine import session

CONFIGURED = settings.load()
TABLE = f"{CONFIGURED.lake}/nightly/customer_activity"
PURCHASE = "purchaseId STRING, customerId STRING, amount DECIMAL(18,2), occurredAtEpochMillis BIGINT"
PROFILE = (
    "customerId STRING, name STRING, email STRING, address STRING, loyaltyStatus STRING, updatedAtEpochMillis BIGINT"
)


def start_session() -> SparkSession:
    """Start Spark with Delta and three gigabytes; settings left as they come suit a batch of this kind."""
    return (
        SparkSession.builder.appName("nightly")
        .master("local[*]")
        .config("spark.driver.memory", "3g")
        .config("spark.driver.extraClassPath", ":".join(str(jar) for jar in session.jars(CONFIGURED)))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )


def read_topic(spark: SparkSession, topic: str, schema: str) -> DataFrame:
    """Read a whole topic, parsed."""
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", CONFIGURED.kafka_bootstrap_servers)
        .option("subscribe", topic)
        .load()
        .select(F.from_json(F.col("value").cast("string"), schema).alias("record"), "offset", "timestamp")
        .select("record.*", "offset", F.col("timestamp").alias("kafka_timestamp"))
    )


def newest_profiles(profiles: DataFrame) -> DataFrame:
    """Keep each customer's newest profile; of two with one time the later on the topic."""
    return (
        profiles.groupBy("customerId")
        .agg(F.max_by(F.struct("*"), F.struct("updatedAtEpochMillis", "offset")).alias("row"))
        .select("row.*")
        .drop("offset")
        .withColumnRenamed("kafka_timestamp", "profile_timestamp")
    )


def summaries(purchases: DataFrame) -> DataFrame:
    """Sum each customer's purchases up; a purchase id counts once."""
    return (
        purchases.dropDuplicates(["purchaseId"])
        .groupBy("customerId")
        .agg(
            F.count("*").alias("purchaseCount"),
            F.sum("amount").cast("decimal(18,2)").alias("totalAmount"),
            F.min("occurredAtEpochMillis").alias("firstPurchaseAtEpochMillis"),
            F.max("occurredAtEpochMillis").alias("lastPurchaseAtEpochMillis"),
            F.max("kafka_timestamp").alias("kafka_timestamp"),
        )
    )


def join_sides(profiles: DataFrame, sums: DataFrame) -> DataFrame:
    """Left join profiles and summaries, as rows of the view."""
    return profiles.join(sums, "customerId", "left").select(
        *("customerId", "name", "email", "address", "loyaltyStatus"),
        F.col("updatedAtEpochMillis").alias("profileUpdatedAtEpochMillis"),
        F.coalesce("purchaseCount", F.lit(0)).cast("bigint").alias("purchaseCount"),
        F.coalesce("totalAmount", F.lit(0)).cast("decimal(18,2)").alias("totalAmount"),
        F.lit(CONFIGURED.currency).alias("currency"),
        *("firstPurchaseAtEpochMillis", "lastPurchaseAtEpochMillis"),
        F.unix_millis(F.greatest("profile_timestamp", "kafka_timestamp")).alias("asOfEpochMillis"),
    )


def main() -> None:
    """Recompute the table and say how long that took."""
    spark = start_session()
    purchases = read_topic(spark, CONFIGURED.purchase_topic, PURCHASE)
    profiles = read_topic(spark, CONFIGURED.profile_topic, PROFILE)
    rows = join_sides(newest_profiles(profiles), summaries(purchases))
    rows.write.format("delta").mode("overwrite").save(TABLE)
    seconds = time.time() - psutil.Process().create_time()
    written = spark.read.format("delta").load(TABLE).agg(F.count("*"), F.sum("purchaseCount")).first()
    if written is None:
        raise SystemExit(f"{TABLE} holds nothing")
    print(json.dumps({"purchases": written[1], "rows": written[0], "seconds": round(seconds, 2)}))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main()
