"""A batch that is read from files is what Spark's change feed gives."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from customer_activity import feeds, maintenance, microbatch
from customer_activity.catalog import Query, Table, table_path
from customer_activity.datafiles import arrow_schema
from customer_activity.gold import current
from customer_activity.gold import stream as gold
from customer_activity.merging import newest
from customer_activity.microbatch import MicroBatch
from customer_activity.publish import stream as publish
from customer_activity.settings import Settings
from customer_activity.silver import current_profiles, summaries
from customer_activity.silver import stream as silver
from support.pipeline import Pipeline
from support.records import profile, purchase, tombstone

ROUNDS = [
    [profile("C-1"), purchase("P-1", "C-1", "1.10")],
    [purchase("P-2", "C-2"), purchase("P-3", "C-1"), profile("C-9")],
    [tombstone("C-1"), profile("C-2", updated=2_000, address=None)],
    [purchase("P-4", "C-2")],
]
WANTED: dict[Query, Mapping[Table, Sequence[str]]] = {
    Query.SILVER: silver.SIDES,
    Query.GOLD: gold.SIDES,
    Query.PUBLISH: {Table.ACTIVITY_CHANGES: publish.COLUMNS[:-1]},
}


@pytest.fixture(scope="module")
def written(spark: SparkSession, empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """Return a pipeline whose tables have several versions, compacted in between; nobody changes it."""
    folder = tmp_path_factory.mktemp("written")
    shutil.copytree(empty_lake, folder / "lake")
    pipeline = Pipeline(spark, Settings(lake=str(folder / "lake"), run_dir=folder / "run"))
    for number, records in enumerate(ROUNDS):
        pipeline.send(*records)
        for query in (Query.BRONZE, *WANTED, Query.ACTIVITY):
            pipeline.hop(query)
        if number == 1:
            compacted = [maintenance.compact(pipeline.settings.lake, table) for table in (*silver.SIDES, *gold.SIDES)]
            assert None not in compacted
    return pipeline


def sorted_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=str)


@pytest.mark.parametrize("query", WANTED, ids=str)
@pytest.mark.parametrize("after", [-1, 1, 3], ids=["everything", "what is newer than version 1", "than version 3"])
def test_files_say_what_the_change_feed_says(spark: SparkSession, written: Pipeline, query: Query, after: int) -> None:
    lake, wanted = written.settings.lake, WANTED[query]
    written.cursors = {(query, table): after for table in wanted}
    frame = written._input(query)
    versions = {table: written.versions[query, table] for table in wanted}

    feed = feeds.appended(lake, wanted, versions)

    assert feed is not None
    found, expected = feed.rows(), frame.toArrow()
    names = [name for name in expected.column_names if name in found.column_names]
    assert {*names} >= {name for columns in wanted.values() for name in columns}
    assert found.select(names).schema.types == expected.select(names).schema.types
    assert sorted_rows(found.select(names).to_pylist()) == sorted_rows(expected.select(names).to_pylist())
    assert expected.num_rows > 0


@pytest.mark.parametrize("is_small", [True, False], ids=["small", "large"])
@pytest.mark.parametrize("after", [-1, 1, 2], ids=["everything", "after version 1", "after version 2"])
def test_parts_are_the_same_from_files_and_from_spark(
    written: Pipeline, is_small: bool, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_small:
        monkeypatch.setattr(microbatch, "SMALL_BATCH_BYTES", -1)
        monkeypatch.setattr(microbatch, "SMALL_BATCH_ROWS", -1)
    written.cursors = {}
    frame = written._input(Query.GOLD)
    read = [feeds.read(frame, written.settings.lake, gold.SIDES, known) for known in (_known(written), {})]
    assert [type(feed) for feed in read] == [feeds.Files, feeds.Rows]
    assert [feed.is_small for feed in read] == [is_small, is_small]
    for table, columns in gold.SIDES.items():
        files, spark = (
            [row for batch in feed.batches(table, columns, after=after) for row in batch.to_pylist()] for feed in read
        )
        assert sorted_rows(files) == sorted_rows(spark)
        assert files
        assert read[0].bounds(table, after=after) == read[1].bounds(table, after=after)
        assert read[0].bounds(table, after=9) is read[1].bounds(table, after=9) is None


def _known(written: Pipeline) -> dict[Table, tuple[int, int]]:
    return {table: written.versions[Query.GOLD, table] for table in gold.SIDES}


@pytest.mark.parametrize("knows_versions", [True, False], ids=["from files", "from Spark"])
def test_what_is_merged_is_the_newest_of_each_customer(written: Pipeline, knows_versions: bool) -> None:
    written.cursors = {}
    for query, module, order in (
        (Query.PROFILES, current_profiles, "offset"),
        (Query.ACTIVITY, current, "view_version"),
    ):
        frame = written._input(query)
        versions = {module.SOURCE: written.versions[query, module.SOURCE]} if knows_versions else {}
        batch = MicroBatch(query, "generation-1", 0, versions=versions)
        expected = {
            row["customer_id"]: row
            for row in sorted(frame.select(*module.COLUMNS).toArrow().to_pylist(), key=lambda row: row[order])
        }
        merged = newest(frame, written.settings.lake, module.SOURCE, module.COLUMNS, batch, order=order)
        assert sorted_rows(merged.to_pylist()) == sorted_rows([*expected.values()])
        assert len(expected) > 1


def test_purchases_are_summed_up_in_whatever_parts_they_come(written: Pipeline) -> None:
    rows = written.rows(Table.PURCHASES, *summaries.COLUMNS)
    schema = pa.schema([arrow_schema(Table.PURCHASES).field(name) for name in summaries.COLUMNS])
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
        summed = summaries.summarise(divided)
        assert summed.schema == arrow_schema(Table.SUMMARIES)
        assert sorted_rows(summed.to_pylist()) == sorted_rows(expected)
    assert summaries.summarise([]).num_rows == 0


def test_nothing_new_is_an_empty_table_with_its_types(written: Pipeline) -> None:
    feed = feeds.appended(written.settings.lake, gold.SIDES, dict.fromkeys(gold.SIDES, (4, 4)))
    assert feed is not None
    found = feed.rows()
    assert found.num_rows == 0
    assert {"side", "_commit_version", "amount", "updated_at"} <= {*found.column_names}


@pytest.mark.parametrize(
    ("setting", "value"), [("SMALL_BATCH_BYTES", 10), ("SMALL_BATCH_FILES", 1)], ids=["many bytes", "many files"]
)
def test_a_feed_of_much_is_not_small(
    written: Pipeline, setting: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {Table.PURCHASES: (-1, 4)}
    feed = feeds.appended(written.settings.lake, {Table.PURCHASES: ["customer_id"]}, versions)
    assert feed is not None
    assert feed.is_small
    monkeypatch.setattr(microbatch if "BYTES" in setting else feeds, setting, value)
    assert not feed.is_small


@pytest.mark.parametrize(
    "why",
    ["the versions are not known", "too many versions", "an entry is gone", "files are gone", "more than an append"],
)
def test_what_files_cannot_say_is_left_to_spark(
    written: Pipeline, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, table = str(tmp_path / "lake"), Table.PURCHASES
    shutil.copytree(written.settings.lake, lake)
    versions = {table: (-1, 4)}
    if why == "the versions are not known":
        versions = {}
    elif why == "too many versions":
        monkeypatch.setattr(feeds, "MANY_VERSIONS", 4)
    elif why == "an entry is gone":
        Path(table_path(lake, table), "_delta_log", f"{1:020}.json").unlink()
    elif why == "files are gone":
        for file in Path(table_path(lake, table)).glob("*.parquet"):
            file.unlink()
    else:
        table = Table.ACTIVITY  # merged, so its commits remove and have change files
        versions = {table: (-1, written.advance(Query.ACTIVITY, table)[1])}
    assert feeds.appended(lake, {table: ["customer_id"]}, versions) is None
