"""The columns of every Delta table, as Spark types. All times are UTC; amounts are exact decimals."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from customer_activity.catalog import Table

AMOUNT = DecimalType(18, 2)

COORDINATES = (
    StructType()
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("kafka_timestamp", TimestampType())
)
HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
RAW = StructType().add("key", BinaryType()).add("value", BinaryType()).add("headers", HEADERS)

PURCHASE_FIELDS = (
    StructType()
    .add("purchase_id", StringType())
    .add("customer_id", StringType())
    .add("product_id", StringType())
    .add("amount", AMOUNT)
    .add("currency", StringType())
    .add("occurred_at", TimestampType())
)
PROFILE_FIELDS = (
    StructType()
    .add("customer_id", StringType())
    .add("name", StringType())
    .add("email", StringType())
    .add("address", StringType())
    .add("loyalty_status", StringType())
    .add("updated_at", TimestampType())
)
# Records are in the order of (landing, partition, offset). A landing is a batch of bronze, or a replay, numbered over
# the life of the lake; null: landed before they were numbered, and so before all others.
LANDING = StructType().add("landing", LongType())
POSITION = (
    StructType()
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("kafka_timestamp", TimestampType())
    .add("landing", LongType())
)

ACTIVITY = (
    StructType()
    .add("customer_id", StringType())
    .add("name", StringType())
    .add("email", StringType())
    .add("address", StringType())
    .add("loyalty_status", StringType())
    .add("profile_updated_at", TimestampType())
    .add("purchase_count", LongType())
    .add("total_amount", AMOUNT)
    .add("currency", StringType())
    .add("first_purchase_at", TimestampType())
    .add("last_purchase_at", TimestampType())
    .add("view_version", LongType())
    .add("as_of", TimestampType())
)


def _joined(*parts: StructType) -> StructType:
    return StructType([field for part in parts for field in part.fields])


SCHEMAS: dict[Table, StructType] = {
    Table.PURCHASE_EVENTS: _joined(
        PURCHASE_FIELDS, RAW, COORDINATES, StructType().add("ingested_at", TimestampType()), LANDING
    ),
    Table.PROFILE_EVENTS: _joined(
        PROFILE_FIELDS,
        StructType().add("is_tombstone", BooleanType()),
        RAW,
        COORDINATES,
        StructType().add("ingested_at", TimestampType()),
        LANDING,
    ),
    Table.QUARANTINE: _joined(
        StructType().add("reason", StringType()).add("detail", StringType()),
        RAW,
        COORDINATES,
        StructType().add("quarantined_at", TimestampType()),
        LANDING,
    ),
    Table.PURCHASES: _joined(PURCHASE_FIELDS, POSITION),
    # One row a change, in the order of records; a tombstone ends the profile.
    Table.PROFILE_CHANGES: _joined(PROFILE_FIELDS, POSITION).add("is_tombstone", BooleanType()),
    Table.SUMMARIES: StructType()
    .add("customer_id", StringType())
    .add("purchase_count", LongType())
    .add("total_amount", AMOUNT)
    .add("first_purchase_at", TimestampType())
    .add("last_purchase_at", TimestampType())
    .add("last_kafka_timestamp", TimestampType()),
    Table.PROFILES: _joined(PROFILE_FIELDS, POSITION),
    # One row a change, in the order of commits; `existed`: the row was there before, `is_gone`: it is not there after.
    Table.ACTIVITY_CHANGES: _joined(ACTIVITY).add("existed", BooleanType()).add("is_gone", BooleanType()),
    Table.ACTIVITY: ACTIVITY,
}

# The columns whose file statistics somebody reads: lookups by key, continuity by offset, freshness by time.
STATISTICS: dict[Table, str] = {
    Table.PURCHASE_EVENTS: "partition,offset,kafka_timestamp",
    Table.PROFILE_EVENTS: "partition,offset,kafka_timestamp",
    Table.QUARANTINE: "partition,offset,kafka_timestamp",
    Table.PURCHASES: "kafka_timestamp",
    Table.PROFILE_CHANGES: "kafka_timestamp",
    Table.SUMMARIES: "customer_id,last_kafka_timestamp",
    Table.PROFILES: "customer_id,kafka_timestamp",
    Table.ACTIVITY_CHANGES: "view_version,as_of",
    Table.ACTIVITY: "customer_id,view_version,as_of",
}
