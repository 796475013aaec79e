"""A small batch that is read from files is what Spark's change feed gives."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from customer_activity import feeds, maintenance, microbatch
from customer_activity.catalog import Query, Table, table_path
from customer_activity.gold import current
from customer_activity.gold import stream as gold
from customer_activity.merging import newest_here, newest_in_spark
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

    found = feeds.appended(lake, wanted, versions)

    assert found is not None
    expected = frame.toArrow()
    names = [name for name in expected.column_names if name in found.column_names]
    assert {*names} >= {name for columns in wanted.values() for name in columns}
    assert found.select(names).schema.types == expected.select(names).schema.types
    assert sorted_rows(found.select(names).to_pylist()) == sorted_rows(expected.select(names).to_pylist())
    assert expected.num_rows > 0


def test_what_is_merged_is_the_same_from_files_and_from_spark(written: Pipeline) -> None:
    lake = written.settings.lake
    written.cursors = {}
    frames = {query: written._input(query) for query in (Query.SUMMARIES, Query.PROFILES, Query.ACTIVITY)}

    def here(query: Query, table: Table, columns: Sequence[str]) -> pa.Table:
        few = feeds.appended(lake, {table: columns}, {table: written.versions[query, table]})
        assert few is not None
        return few

    def compared(from_spark: DataFrame, from_files: pa.Table) -> None:
        expected = from_spark.toArrow()
        assert from_files.schema.names == expected.schema.names
        assert from_files.schema.types == expected.schema.types
        assert sorted_rows(from_files.to_pylist()) == sorted_rows(expected.to_pylist())
        assert expected.num_rows > 0

    few = here(Query.SUMMARIES, summaries.SOURCE, summaries.COLUMNS)
    compared(summaries.summarise(frames[Query.SUMMARIES]), summaries.summarise_here(few))
    for query, module, order in (
        (Query.PROFILES, current_profiles, "offset"),
        (Query.ACTIVITY, current, "view_version"),
    ):
        few = here(query, module.SOURCE, module.COLUMNS)
        compared(newest_in_spark(frames[query], module.COLUMNS, order), newest_here(few, module.COLUMNS, order))


def test_nothing_new_is_an_empty_table_with_its_types(written: Pipeline) -> None:
    found = feeds.appended(written.settings.lake, gold.SIDES, dict.fromkeys(gold.SIDES, (4, 4)))
    assert found is not None
    assert found.num_rows == 0
    assert {"side", "_commit_version", "amount", "updated_at"} <= {*found.column_names}


@pytest.mark.parametrize(
    "why",
    [
        "the versions are not known",
        "too many bytes",
        "too many files",
        "an entry is gone",
        "files are gone",
        "more than an append",
    ],
)
def test_what_files_cannot_say_is_left_to_spark(
    written: Pipeline, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, table = str(tmp_path / "lake"), Table.PURCHASES
    shutil.copytree(written.settings.lake, lake)
    versions = {table: (-1, 4)}
    if why == "the versions are not known":
        versions = {}
    elif why == "too many bytes":
        monkeypatch.setattr(microbatch, "SMALL_BATCH_BYTES", 10)
    elif why == "too many files":
        monkeypatch.setattr(feeds, "SMALL_BATCH_FILES", 1)
    elif why == "an entry is gone":
        Path(table_path(lake, table), "_delta_log", f"{1:020}.json").unlink()
    elif why == "files are gone":
        for file in Path(table_path(lake, table)).glob("*.parquet"):
            file.unlink()
    else:
        table = Table.ACTIVITY  # merged, so its commits remove and have change files
        versions = {table: (-1, written.advance(Query.ACTIVITY, table)[1])}
    assert feeds.appended(lake, {table: ["customer_id"]}, versions) is None
