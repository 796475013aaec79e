"""The join match rate of the real data set is what pandas says it is."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.demo.traffic import dataset
from customer_activity.lake import delta
from customer_activity.quality.run import run
from customer_activity.settings import Settings


def test_the_shares_of_the_real_data_set_are_those_of_pandas(settings: Settings, tmp_path: Path) -> None:
    lines = dataset.transactions()
    customers = lines["household_id"].cast(pa.string())
    households = {person.customer_id for person in dataset.persons(seed=0)}
    delta.ensure_tables(settings.lake)
    numbers = pa.array(range(lines.num_rows), pa.int64())
    append(
        settings,
        Table.PURCHASES,
        purchase_id=numbers.cast(pa.string()),
        customer_id=customers,
        amount=lines["sales_value"].cast(pa.decimal128(18, 2)),
        currency=pa.repeat("EUR", lines.num_rows),
        occurred_at=lines["transaction_timestamp"].cast(pa.timestamp("us", tz="UTC")),
        partition=pa.repeat(pa.scalar(0, pa.int32()), lines.num_rows),
        offset=numbers,
        kafka_timestamp=lines["transaction_timestamp"].cast(pa.timestamp("us", tz="UTC")),
    )
    append(
        settings,
        Table.PROFILE_CHANGES,
        customer_id=pa.array(sorted(households)),
        offset=pa.array(range(len(households)), pa.int64()),
        is_tombstone=pa.repeat(pa.scalar(False), len(households)),
    )

    served = {"quality_docs": str(tmp_path / "docs"), "quality_url": "https://quality.example.org"}
    report = run(settings.model_copy(update=served), ["across.join_match"])
    assert (tmp_path / "docs" / "index.html").exists()
    assert report.documents == "https://quality.example.org/index.html"
    found = {verdict.rule.rule: verdict.judged.observed for verdict in report.verdicts}

    frame = pd.DataFrame({"customer": customers.to_pandas(), "amount": lines["sales_value"].to_pandas()})
    frame["matched"] = frame["customer"].isin(households)
    bought = frame.groupby("customer")["matched"].first()
    assert (len(bought), int(bought.sum())) == (2_469, 801)
    assert found["customers_with_a_profile"] == pytest.approx(bought.mean(), abs=5e-5)
    assert found["purchases_with_a_profile"] == pytest.approx(frame["matched"].mean(), abs=5e-5)
    turnover = frame.loc[frame["matched"], "amount"].sum() / frame["amount"].sum()
    assert found["turnover_with_a_profile"] == pytest.approx(turnover, abs=5e-5)
    assert found["profiles_with_a_purchase"] == 1.0
    assert report.failing == []


def append(settings: Settings, table: Table, **columns: pa.Array) -> None:
    """Append rows with some columns; the others are null."""
    schema = arrow_schema(table)
    rows = len(next(iter(columns.values())))
    data = [columns[field.name] if field.name in columns else pa.nulls(rows, field.type) for field in schema]
    write_deltalake(table_path(settings.lake, table), pa.table(data, names=schema.names).cast(schema), mode="append")
