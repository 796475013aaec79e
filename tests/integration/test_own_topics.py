"""Inputs that are somebody else's: as Kafka makes them, with partition counts of their own."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from customer_activity.catalog import Table
from customer_activity.kafka import topics
from customer_activity.settings import Settings
from support.broker import assert_verified, create_topic, drain, rows, send
from support.records import profile, purchase, tombstone


@pytest.fixture
def theirs(settings: Settings) -> Settings:
    """Make input topics with Kafka's defaults, a week of retention among them: 3 and 2 partitions."""
    own = {"purchase_topic": f"{settings.purchase_topic}-own", "profile_topic": f"{settings.profile_topic}-own"}
    for name, partitions in zip(own.values(), (3, 2), strict=True):
        create_topic(settings, name, partitions)
    return settings.model_copy(update=own)


def test_inputs_with_kafkas_defaults_are_taken_and_verified(spark: SparkSession, theirs: Settings) -> None:
    assert topics.check(theirs, create=False) == []
    assert topics.warning(theirs).count("keeps records for 7 days") == 2
    customers = [f"C-{number}" for number in range(20)]
    send(theirs, *(profile(customer) for customer in customers))
    send(theirs, *(purchase(f"P-{number}", customer) for number, customer in enumerate(customers * 3)))
    drain(spark, theirs)
    send(theirs, profile("C-1", updated=2_000, address="2 New Street"), tombstone("C-2"), purchase("P-x", "C-1"))
    drain(spark, theirs)
    found = {row["customer_id"]: row["purchase_count"] for row in rows(theirs, Table.ACTIVITY)}
    assert found == {customer: 3 + (customer == "C-1") for customer in customers if customer != "C-2"}
    assert_verified(theirs)
