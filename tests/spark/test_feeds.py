"""A batch that is read from the files of commits is what Spark's change feed gives: whole, and part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from customer_activity.catalog import Table
from customer_activity.contracts.columns import SUMMED
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.current_rows import CurrentRows
from customer_activity.lake import feeds, microbatch
from customer_activity.maintenance import maintenance
from customer_activity.streams.current import activity, profiles, summaries
from customer_activity.streams.gold import stream as gold
from customer_activity.streams.publish.records import COLUMNS
from customer_activity.streams.silver import stream as silver
from support.pipeline import Pipeline, copied_lake
from support.records import profile, purchase, tombstone
from support.streams import Query

ROUNDS = [
    [profile("C-1"), purchase("P-1", "C-1", "1.10")],
    [purchase("P-2", "C-2"), purchase("P-3", "C-1"), profile("C-9")],
    [tombstone("C-1"), profile("C-2", updated=2_000, address=None)],
    [purchase("P-4", "C-2")],
]
WANTED: dict[Query, Mapping[Table, Sequence[str]]] = {
    Query.SILVER: silver.SIDES,
    Query.GOLD: gold.SIDES,
    Query.PUBLISH: {Table.ACTIVITY_CHANGES: COLUMNS},
}


@pytest.fixture(scope="module")
def written(spark: SparkSession, empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """Return a pipeline whose tables have several versions, compacted in between; nobody changes it."""
    pipeline = Pipeline(spark, copied_lake(empty_lake, tmp_path_factory.mktemp("written")))
    for number, records in enumerate(ROUNDS):
        pipeline.send(*records)
        for query in (Query.BRONZE, *WANTED, Query.ACTIVITY):
            pipeline.hop(query)
        if number == 1:
            compacted = [maintenance.compact(pipeline.settings.lake, table) for table in (*silver.SIDES, *gold.SIDES)]
            assert None not in compacted
    return pipeline


def given_by_spark(written: Pipeline, query: Query, columns: Mapping[Table, Sequence[str]]) -> dict[Table, pa.Table]:
    """Return what Spark's change feeds have for a query's next batch, by table."""
    return {
        table: written.changes(query, table).where("_change_type = 'insert'").select(*names).toArrow()
        for table, names in columns.items()
    }


def sorted_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=str)


@pytest.mark.parametrize("query", WANTED, ids=str)
@pytest.mark.parametrize("after", [-1, 1, 3], ids=["everything", "what is newer than version 1", "than version 3"])
def test_files_say_what_the_change_feed_says(written: Pipeline, query: Query, after: int) -> None:
    lake, wanted = written.settings.lake, WANTED[query]
    written.cursors = {(query, table): after for table in wanted}
    given = given_by_spark(written, query, wanted)
    versions = {table: written.versions[query, table] for table in wanted}

    feed = feeds.read(lake, wanted, versions)

    for table, columns in wanted.items():
        found = pa.Table.from_batches([*feed.batches(table, columns)], given[table].schema)
        assert sorted_rows(found.to_pylist()) == sorted_rows(given[table].to_pylist())
    assert sum(rows.num_rows for rows in given.values()) > 0


@pytest.mark.parametrize("is_small", [True, False], ids=["small", "large"])
@pytest.mark.parametrize("files", [1, 2, None], ids=["a file a part", "two files a part", "one part"])
def test_parts_are_together_what_spark_gives(
    written: Pipeline, is_small: bool, files: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_small:
        monkeypatch.setattr(microbatch, "SMALL_BATCH_BYTES", -1)
    written.cursors = {}
    expected = given_by_spark(written, Query.GOLD, gold.SIDES)
    versions = {table: written.versions[Query.GOLD, table] for table in gold.SIDES}
    parts = list(feeds.read(written.settings.lake, gold.SIDES, versions).parts(files))
    assert {part.is_small for part in parts} == {is_small}
    assert (len(parts) == 1) == (files is None)
    for table, columns in gold.SIDES.items():
        found = [row for part in parts for batch in part.batches(table, columns) for row in batch.to_pylist()]
        assert sorted_rows(found) == sorted_rows(expected[table].to_pylist())
        assert found


@pytest.mark.parametrize(
    ("stream", "order"),
    [
        pytest.param(profiles.STREAM, profiles.ORDER, id="profiles"),
        pytest.param(activity.STREAM, ["view_version"], id="activity"),
    ],
)
def test_what_is_merged_is_the_newest_of_each_customer(
    written: Pipeline, stream: CurrentRows, order: Sequence[str]
) -> None:
    written.cursors = {}
    query, wanted = Query(stream.spec.name), {stream.source: stream.columns}
    rows = given_by_spark(written, query, wanted)[stream.source].to_pylist()
    rows.sort(key=lambda row: [-1 if row[name] is None else row[name] for name in order])
    feed = feeds.read(written.settings.lake, wanted, {stream.source: written.versions[query, stream.source]})
    merged = stream.reduce(feed.batches(stream.source, stream.columns))
    expected = {row["customer_id"]: row for row in rows}
    assert sorted_rows(merged.to_pylist()) == sorted_rows([*expected.values()])
    assert 1 < len(expected) < len(rows)


def test_purchases_are_summed_up_in_whatever_parts_they_come(written: Pipeline) -> None:
    rows = written.rows(Table.PURCHASES, *SUMMED)
    schema = pa.schema([arrow_schema(Table.PURCHASES).field(name) for name in SUMMED])
    parts = [pa.Table.from_pylist([row], schema) for row in rows]
    expected = [
        {
            "customer_id": customer,
            "purchase_count": len(bought),
            "total_amount": sum(row["amount"] for row in bought),
            "first_purchase_at": min(row["occurred_at"] for row in bought),
            "last_purchase_at": max(row["occurred_at"] for row in bought),
            "last_kafka_timestamp": max(row["kafka_timestamp"] for row in bought),
        }
        for customer in {row["customer_id"] for row in rows}
        if (bought := [row for row in rows if row["customer_id"] == customer])
    ]
    for divided in (parts, [pa.concat_tables(parts)]):
        summed = summaries.summarise(batch for part in divided for batch in part.to_batches())
        assert summed.schema == arrow_schema(Table.SUMMARIES)
        assert sorted_rows(summed.to_pylist()) == sorted_rows(expected)
    assert summaries.summarise([]).num_rows == 0
