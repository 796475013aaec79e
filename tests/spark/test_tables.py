"""Tables that delta-rs creates and Spark writes to."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from customer_activity import commits, session
from customer_activity.catalog import Table
from customer_activity.settings import Settings


@pytest.mark.parametrize("table", Table, ids=lambda table: table.label)
def test_delta_accepts_the_checksum_of_a_new_table(spark: SparkSession, settings: Settings, table: Table) -> None:
    snapshot = commits.log_of(spark, settings.lake, table).update(False, *[session.jvm(spark).scala.Option.empty()] * 2)
    assert snapshot.version() == 0
    assert snapshot.checksumOpt().isDefined()
    no_context = getattr(getattr(session.jvm(spark).scala.collection.immutable, "Map$"), "MODULE$").empty()
    assert snapshot.validateChecksum(no_context), "what the checksum says differs from what the log says"
