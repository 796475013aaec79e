"""Tables that delta-rs creates and compacts while Spark writes to them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.lake import delta, jvm
from customer_activity.lake.view_clock import ViewClock
from customer_activity.maintenance import maintenance
from customer_activity.settings import Settings
from support.pipeline import Pipeline
from support.records import profile, purchase, tombstone
from support.streams import Query

APPENDED = (
    Table.PURCHASE_EVENTS,
    Table.PROFILE_EVENTS,
    Table.PURCHASES,
    Table.PROFILE_CHANGES,
    Table.ACTIVITY_CHANGES,
)
ALWAYS_ON = topology.tables()
HISTORY = [
    [profile("C-1"), profile("C-2"), purchase("P-1", "C-1", "1.00")],
    [purchase("P-2", "C-1", "2.00"), purchase("P-1", "C-1", "1.00"), profile("C-1", updated=3_000)],
    [purchase("P-3", "C-2", "3.00"), tombstone("C-2"), purchase("P-2", "C-1", "2.50")],
    [purchase("P-4", "C-1", "4.00"), profile("C-2", updated=4_000)],
]


def is_valid(spark: SparkSession, lake: str, table: Table) -> bool:
    """Whether a table's newest version has a checksum that Delta itself finds right."""
    java = jvm.jvm(spark)
    snapshot = jvm.log_of(spark, table_path(lake, table)).update(False, *[java.scala.Option.empty()] * 2)
    assert snapshot.checksumOpt().isDefined()
    no_context = getattr(getattr(java.scala.collection.immutable, "Map$"), "MODULE$").empty()
    return bool(snapshot.validateChecksum(no_context))


@pytest.mark.parametrize(
    "table",
    [pytest.param(table, id=table.label, marks=() if table in ALWAYS_ON else pytest.mark.nightly) for table in Table],
)
def test_delta_accepts_the_checksum_of_a_new_table(spark: SparkSession, settings: Settings, table: Table) -> None:
    delta.create(settings.lake, table)  # where its stream is off
    assert is_valid(spark, settings.lake, table)


@pytest.mark.parametrize("loses_indexes", [False, True], ids=["indexes kept", "indexes lost"])
def test_no_hop_sees_a_compaction(
    spark: SparkSession, settings: Settings, pipeline: Pipeline, loses_indexes: bool
) -> None:
    for number, records in enumerate(HISTORY):
        pipeline.send(*records)
        pipeline.run()
        if number % 2:
            compacted = {table: maintenance.compact(settings.lake, table) for table in APPENDED}
            assert None not in compacted.values()
            # Of which the local state tells nothing: once is enough.
            assert loses_indexes or all(is_valid(spark, settings.lake, table) for table in APPENDED)
            pipeline.restart(loses_indexes=loses_indexes)
    for query in Query:
        assert pipeline.hop(query).rows == 0

    counted = {row["purchase_id"]: str(row["amount"]) for row in pipeline.rows(Table.PURCHASES)}
    assert counted == {"P-1": "1.00", "P-2": "2.00", "P-3": "3.00", "P-4": "4.00"}
    gold: dict[str, Any] = pipeline.gold()
    assert {key: (row["purchase_count"], str(row["total_amount"])) for key, row in gold.items()} == {
        "C-1": (3, "7.00"),
        "C-2": (1, "3.00"),
    }
    assert len(pipeline.rows(Table.QUARANTINE)) == 1


def test_a_compaction_leaves_few_files_and_their_statistics(
    settings: Settings, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "SMALL_FILES", len(HISTORY))
    for records in HISTORY:
        pipeline.send(*records)
        pipeline.run()
    before = ViewClock.of(settings.lake).newest
    table = Table.ACTIVITY_CHANGES
    assert maintenance.needs_compaction(maintenance.opened(settings.lake, table))
    assert maintenance.compact(settings.lake, table) is not None
    assert not maintenance.needs_compaction(maintenance.opened(settings.lake, table))
    files = pa.table(DeltaTable(table_path(settings.lake, table)).get_add_actions(flatten=True))
    assert files.num_rows == 1
    assert ViewClock.of(settings.lake).newest == before > 0
    assert maintenance.compact(settings.lake, table) is None, "one file is as few as it gets"
