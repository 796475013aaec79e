"""Gold reads the same in every engine: reader version 1, no features that one of them lacks."""

from __future__ import annotations

import polars as pl
from deltalake import DeltaTable

from customer_activity.catalog import Table, table_path
from support.pipeline import Pipeline
from support.records import profile, purchase, tombstone


def test_spark_deltalake_and_polars_read_the_same_rows(pipeline: Pipeline) -> None:
    pipeline.send(
        *[profile(f"C-{n}") for n in range(5)], *[purchase(f"P-{n}", f"C-{n % 4}", "0.10") for n in range(30)]
    )
    pipeline.run()
    pipeline.send(tombstone("C-0"), profile("C-1", updated=9_000, address=None), purchase("P-99", "C-2"))
    pipeline.run()

    path = table_path(pipeline.settings.lake, Table.ACTIVITY)
    in_spark = pipeline.rows(Table.ACTIVITY)
    table = DeltaTable(path)
    assert len(in_spark) == 4
    assert sorted(table.to_pyarrow_table().to_pylist(), key=str) == in_spark
    assert sorted(pl.read_delta(path).to_dicts(), key=str) == in_spark
    assert sorted(table.to_pandas()["customer_id"]) == [row["customer_id"] for row in in_spark]
    assert table.protocol().min_reader_version == 1
