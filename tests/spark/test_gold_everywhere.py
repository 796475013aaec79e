"""Gold reads the same in every engine: reader version 1, no features that one of them lacks."""

from __future__ import annotations

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from customer_activity.catalog import Table, table_path
from customer_activity.lake import delta
from customer_activity.maintenance import maintenance
from support.pipeline import Pipeline
from support.records import profile, purchase, tombstone


@pytest.fixture
def merged(planned: Pipeline) -> Pipeline:
    """Return a lake whose gold has been merged twice, with a delete."""
    planned.send(*[profile(f"C-{n}") for n in range(5)], *[purchase(f"P-{n}", f"C-{n % 4}", "0.10") for n in range(30)])
    planned.run()
    planned.send(tombstone("C-0"), profile("C-1", updated=9_000, address=None), purchase("P-99", "C-2"))
    planned.run()
    return planned


def test_spark_deltalake_and_polars_read_the_same_rows(merged: Pipeline) -> None:
    path = table_path(merged.settings.lake, Table.ACTIVITY)
    in_spark = merged.rows(Table.ACTIVITY)
    table = DeltaTable(path)
    assert len(in_spark) == 4
    assert sorted(table.to_pyarrow_table().to_pylist(), key=str) == in_spark
    assert sorted(pl.read_delta(path).to_dicts(), key=str) == in_spark
    assert sorted(table.to_pandas()["customer_id"]) == [row["customer_id"] for row in in_spark]
    assert table.protocol().min_reader_version == 1


@pytest.mark.parametrize("is_compacted", [False, True], ids=["as merged", "compacted"])
def test_one_customer_is_found_by_id_in_every_engine(merged: Pipeline, is_compacted: bool) -> None:
    lake = merged.settings.lake
    path = table_path(lake, Table.ACTIVITY)
    if is_compacted:
        merged.send(profile("C-9"))
        merged.run()
        maintenance.compact(lake, Table.ACTIVITY)
    table = DeltaTable(path)
    gold = table.to_pyarrow_dataset()  # noqa: F841 - the query names it
    for customer, rows in (("C-2", 1), ("C-0", 0)):
        in_duckdb = duckdb.sql(f"SELECT * FROM gold WHERE customer_id = '{customer}'")  # noqa: S608
        assert in_duckdb is not None  # as for a statement that returns no rows
        found = {
            "Spark": delta.read(merged.spark, lake, Table.ACTIVITY).where(F.col("customer_id") == customer).count(),
            "pandas": len(table.to_pandas(filters=[("customer_id", "=", customer)])),
            "Polars": pl.scan_delta(path).filter(pl.col("customer_id") == customer).collect().height,
            "DuckDB": in_duckdb.to_arrow_table().num_rows,
        }
        assert found == dict.fromkeys(found, rows)
