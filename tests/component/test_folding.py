"""Changes are folded into current rows by one rule: as delta-rs merges them in SQL, and as executors do in Arrow."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from customer_activity.catalog import Table
from customer_activity.contracts.columns import SUMMED, Declaration
from customer_activity.contracts.tables import TABLES, arrow_schema
from customer_activity.lake import delta, folding, merging
from customer_activity.lake.folding import AFTER, BEFORE, Aggregate, Folded
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.lake.reducing import newest_of
from customer_activity.streams.current import activity, summaries
from support import tables
from support.streams import Query

MOST = Decimal("9999999999999999.99")
AMOUNTS = (
    st.none()
    | st.sampled_from([Decimal("0.00"), Decimal("0.01"), Decimal("5000000000000000.00"), MOST])
    | st.decimals(0, MOST, places=2)
)
TIMES = st.none() | st.integers(0, 3).map(lambda second: datetime.fromtimestamp(second, UTC))
CUSTOMERS = st.sampled_from([f"C-{number}" for number in range(5)])
SUMMARY = st.fixed_dictionaries(
    {
        "customer_id": CUSTOMERS,
        "purchase_count": st.integers(0, 9),
        "total_amount": AMOUNTS,
        **dict.fromkeys(("first_purchase_at", "last_purchase_at", "last_kafka_timestamp"), TIMES),
    }
)
VALUES = st.none() | st.sampled_from(["", "a", "é"])
ROW = {"customer_id": CUSTOMERS, "name": VALUES, "address": VALUES, "total_amount": AMOUNTS, "as_of": TIMES}
Rows = list[dict[str, Any]]


def one_a_key(row: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[Rows]:
    return st.lists(row, max_size=5, unique_by=lambda found: found["customer_id"])


def is_equal(rows: pa.Table, expected: pa.Table) -> bool:
    found, wanted = (sorted(table.select(expected.column_names).to_pylist(), key=str) for table in (rows, expected))
    return bool(found == wanted)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("lake"))
    delta.ensure_tables(path)
    return path


def merged(lake: str, table: Table, held: pa.Table, changes: pa.Table, **how: Any) -> tuple[pa.Table, pa.Table]:
    """Have a table hold some rows, and merge changes by delta-rs; return all rows then, and those that differ."""
    first = tables.newest(lake, table) + 1
    opened = tables.opened(lake, table)
    opened.delete()
    tables.append_table(lake, table, held)
    begin = tables.newest(lake, table) + 1
    merging.merge(changes, lake, table, MicroBatch(Query.ACTIVITY, "g", first), key=["customer_id"], **how)
    opened = tables.opened(lake, table)
    feed = pa.table(opened.load_cdf(starting_version=begin))
    return opened.to_pyarrow_table(), feed.select([*arrow_schema(table).names, folding.CHANGE_TYPE.name])


def but_same(feed: pa.Table) -> pa.Table:
    """Leave out what a MERGE has set to the values that it had."""
    kept: Rows = []
    for row in feed.to_pylist():
        other = {BEFORE: AFTER, AFTER: BEFORE}.get(row["_change_type"])
        if other is None or row | {"_change_type": other} not in feed.to_pylist():
            kept.append(row)
    return pa.Table.from_pylist(kept, feed.schema)


def assert_same(found: Folded, rows: pa.Table, feed: pa.Table) -> None:
    assert is_equal(found.rows, rows)
    assert is_equal(found.differing, but_same(feed))


@settings(max_examples=30, deadline=None)
@given(one_a_key(SUMMARY), one_a_key(SUMMARY))
def test_what_is_added_is_the_same_in_sql_and_in_arrow(lake: str, before: Rows, more: Rows) -> None:
    schema = arrow_schema(Table.SUMMARIES)
    held, changes = (pa.Table.from_pylist(rows, schema) for rows in (before, more))
    update = folding.as_sql(schema, summaries.AGGREGATES)
    found = folding.folded(held, changes, ["customer_id"], summaries.AGGREGATES)
    assert_same(found, *merged(lake, Table.SUMMARIES, held, changes, update=update))


@settings(max_examples=30, deadline=None)
@given(one_a_key(st.fixed_dictionaries(ROW)), one_a_key(st.fixed_dictionaries({**ROW, "is_gone": st.booleans()})))
def test_what_is_replaced_and_what_goes_is_the_same_in_sql_and_in_arrow(lake: str, before: Rows, more: Rows) -> None:
    schema = arrow_schema(Table.ACTIVITY)
    held = pa.Table.from_pylist(before, schema)
    changes = pa.Table.from_pylist(more, schema.append(pa.field("is_gone", pa.bool_())))
    found = folding.folded(held, changes, ["customer_id"], None, "is_gone")
    assert_same(found, *merged(lake, Table.ACTIVITY, held, changes, delete_when="s.is_gone"))


WIDE = Declaration(
    pa.schema(
        [
            ("customer_id", pa.string()),
            ("day", pa.date32()),
            ("units", pa.int64()),
            ("turnover", pa.decimal128(38, 2)),
        ]
    ),
    (),
    is_current=True,
)
ADDED = {"units": Aggregate.SUM, "turnover": Aggregate.SUM}


def test_a_key_of_several_columns_and_decimals_as_wide_as_they_come(lake: str, tmp_path: Any) -> None:
    """A stream that somebody adds may have them."""
    most, a_cent_less = (Decimal((0, (9,) * 37 + (last,), -2)) for last in (9, 8))
    days = [date(2026, 1, 1), date(2026, 1, 2)]
    before = [
        {"customer_id": "C-1", "day": days[0], "units": 1, "turnover": Decimal("0.50")},
        {"customer_id": "C-1", "day": days[1], "units": 1, "turnover": a_cent_less},
        {"customer_id": "C-2", "day": days[0], "units": 1, "turnover": Decimal("-2.00")},
    ]
    more = [
        {"customer_id": "C-1", "day": days[0], "units": 2, "turnover": Decimal("0.25")},
        {"customer_id": "C-1", "day": days[1], "units": 3, "turnover": Decimal("0.01")},
        {"customer_id": "C-2", "day": days[1], "units": 4, "turnover": Decimal("1.00")},
    ]
    held, changes = (pa.Table.from_pylist(rows, WIDE.columns) for rows in (before, more))
    with patch.dict(TABLES, {Table.SUMMARIES: WIDE}):
        wide = str(tmp_path)
        delta.create(wide, Table.SUMMARIES)
        tables.append_table(wide, Table.SUMMARIES, held)
        key = ["customer_id", "day"]
        update = folding.as_sql(WIDE.columns, ADDED)
        merging.merge(changes, wide, Table.SUMMARIES, MicroBatch(Query.SUMMARIES, "g", 0), key=key, update=update)
        rows = tables.opened(wide, Table.SUMMARIES).to_pyarrow_table()
    found = folding.folded(held, changes, key, ADDED)
    assert is_equal(found.rows, rows)
    assert {(row["customer_id"], row["day"], row["units"], row["turnover"]) for row in found.rows.to_pylist()} == {
        ("C-1", days[0], 3, Decimal("0.75")),
        ("C-1", days[1], 4, most),
        ("C-2", days[0], 1, Decimal("-2.00")),
        ("C-2", days[1], 4, Decimal("1.00")),
    }


@settings(deadline=None)
@given(st.lists(one_a_key(SUMMARY), max_size=4))
def test_summaries_of_parts_come_together_as_they_would_be_added(parts: list[Rows]) -> None:
    schema = arrow_schema(Table.SUMMARIES)
    reduced = [pa.Table.from_pylist(rows, schema) for rows in parts]
    one_by_one = schema.empty_table()
    for rows in reduced:
        one_by_one = folding.folded(one_by_one, rows, ["customer_id"], summaries.AGGREGATES).rows
    assert is_equal(summaries.STREAM.together(pa.concat_tables([schema.empty_table(), *reduced])), one_by_one)


@settings(deadline=None)
@given(st.lists(st.tuples(CUSTOMERS, st.integers(0, 5)), max_size=12), st.integers(0, 12))
def test_changes_that_were_reduced_apart_come_to_the_newest(changes: list[tuple[str, int]], cut: int) -> None:
    schema = activity.STREAM.reduce(()).schema
    rows = [{"customer_id": customer, "view_version": version} for customer, version in dict.fromkeys(changes)]
    both = pa.Table.from_pylist(rows, schema)
    apart = pa.concat_tables([activity.STREAM.reduce(part.to_batches()) for part in (both[:cut], both[cut:])])
    assert is_equal(activity.STREAM.together(apart), newest_of(both, ["customer_id"], ["view_version"]))


def test_aggregates_that_leave_a_column_out_are_refused() -> None:
    with pytest.raises(ValueError, match="summaries: aggregates are of each column but the key's"):
        type(summaries.STREAM)(
            summaries.SPEC, SUMMED, summaries.summarise, aggregates={"purchase_count": Aggregate.SUM}
        )
