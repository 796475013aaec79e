"""Tables that are made as files say what the pipeline would have made of the same purchases."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks import load
from benchmarks.held_tables import OF_CUSTOMERS, Held, purchase_ids, rows_of
from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.streams.current.summaries import summarise

HELD = Held(ids=60, customers=20)


@pytest.mark.parametrize("table", [Table.PURCHASES, *OF_CUSTOMERS])
def test_rows_are_as_the_table_declares_them(table: Table) -> None:
    rows = rows_of(HELD, table, np.arange(20))
    rows.validate(full=True)
    assert rows.schema == arrow_schema(table)
    without = {name for name in rows.column_names if rows.column(name).null_count}
    assert without <= {"risk_score", "trace_context"}  # as the load


def test_summaries_are_those_of_the_purchases() -> None:
    purchases = rows_of(HELD, Table.PURCHASES, np.arange(60))
    wanted = summarise(purchases.to_batches()).sort_by("customer_id")
    assert rows_of(HELD, Table.SUMMARIES, np.arange(20)).equals(wanted)


def test_gold_says_what_profiles_and_summaries_do() -> None:
    numbers = np.arange(20)
    gold, summaries = (rows_of(HELD, table, numbers) for table in (Table.ACTIVITY, Table.SUMMARIES))
    profiles = rows_of(HELD, Table.PROFILES, numbers)
    for name in ("purchase_count", "total_amount", "first_purchase_at", "last_purchase_at"):
        assert gold.column(name).equals(summaries.column(name))
    for name in ("name", "email", "address", "loyalty_status"):
        assert gold.column(name).equals(profiles.column(name))
    seen = zip(profiles["kafka_timestamp"].to_pylist(), summaries["last_kafka_timestamp"].to_pylist(), strict=True)
    assert gold.column("as_of").to_pylist() == list(map(max, seen))


def test_customers_are_those_whom_the_load_buys_for() -> None:
    customers = rows_of(HELD, Table.PROFILES, np.arange(20)).column("customer_id").to_pylist()
    assert [text.encode() for text in customers] == [load.customer_id(number) for number in range(20)]


def test_no_two_purchases_have_one_id() -> None:
    ids = pa.concat_arrays([purchase_ids(np.arange(first, first + 50_000)) for first in (0, 50_000, 10**9)])
    assert pc.count_distinct(ids).as_py() == len(ids)
    assert set(pc.binary_length(ids).to_pylist()) == {32}
