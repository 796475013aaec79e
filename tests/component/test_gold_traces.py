"""Gold's row has the trace of the record that its `as_of` names, however batches are cut."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.state import profile_records
from customer_activity.streams.gold import state
from customer_activity.streams.gold.rows import as_columns
from customer_activity.streams.gold.sums import summarised, totalled

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Sent(NamedTuple):
    """A record: when, with which trace, and what; a profile that has no name has ended."""

    millis: int
    trace: str | None = None
    kind: str = "purchase"


def purchase(millis: int, trace: str | None = None) -> Sent:
    return Sent(millis, trace)


def profile(millis: int, trace: str | None = None) -> Sent:
    return Sent(millis, trace, "profile")


def tombstone(millis: int, trace: str | None = None) -> Sent:
    return Sent(millis, trace, "tombstone")


def rows_of(table: Table, sent: Sequence[tuple[int, Sent]]) -> pa.Table:
    kinds = ("purchase",) if table is Table.PURCHASES else ("profile", "tombstone")
    rows: list[dict[str, Any]] = [
        {
            "purchase_id": f"P-{number}",
            "customer_id": "C-1",
            "amount": Decimal(1),
            "occurred_at": EPOCH,
            "updated_at": EPOCH + timedelta(milliseconds=number),
            "name": "Ada",
            "kafka_timestamp": EPOCH + timedelta(milliseconds=record.millis),
            "partition": 0,
            "offset": number,
            "landing": 0,
            "is_tombstone": record.kind == "tombstone",
            "trace_context": record.trace,
        }
        for number, record in sent
        if record.kind in kinds
    ]
    return pa.Table.from_pylist(rows, arrow_schema(table))


def gold_of(batches: Sequence[Sequence[Sent]]) -> list[dict[str, Any]]:
    """Return gold's changes over some batches, as its table has them."""
    numbered = iter(range(1_000))
    changes: list[dict[str, Any]] = []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(state.NEEDS.tables)
        for batch in batches:
            sent = [(next(numbered), record) for record in batch]
            bought, said = rows_of(Table.PURCHASES, sent), rows_of(Table.PROFILE_CHANGES, sent)
            found = state.take_in(
                connection,
                totalled([summarised(bought)]),
                profile_records.newest(said),
                state.with_an_end(said),
                lambda _: (),
            )
            for part in found:
                changes += as_columns(part.rows, "EUR", len(changes) + 1).to_pylist()
    return changes


CASES = [
    pytest.param([[profile(5, "p")]], "p", id="a profile alone"),
    pytest.param([[profile(5, "p"), purchase(6, "b")]], "b", id="the purchase is newer"),
    pytest.param([[profile(6, "p"), purchase(5, "b")]], "p", id="the profile is newer"),
    pytest.param([[purchase(6, "b")], [profile(5, "p")]], "b", id="an older profile comes later"),
    pytest.param([[profile(5, "p"), purchase(9, "b")], [purchase(7, "c")]], "b", id="an older purchase comes later"),
    pytest.param([[profile(5, "p"), purchase(9)], [purchase(7, "c")]], None, id="the newest has none"),
    pytest.param([[profile(5, "p"), purchase(7, "c")], [purchase(9)]], None, id="one without is newer than one with"),
    pytest.param(
        [[profile(5, "p"), purchase(9, "b"), purchase(9)]], "b", id="one of two as new as each other has none"
    ),
    pytest.param([[profile(5), purchase(9, "b")], [purchase(9, "c")]], "c", id="the greatest of two as new"),
    pytest.param([[profile(9, "p"), purchase(9, "b")]], "b", id="the purchase's of two sides as new"),
    pytest.param([[profile(9, "p"), purchase(9)]], None, id="the purchase's, which has none"),
    pytest.param([[profile(-1, "p")]], "p", id="a profile without a timestamp"),
    pytest.param([[profile(-1, "p"), purchase(-1, "b")]], "b", id="neither has a timestamp"),
    pytest.param([[profile(5, "p"), purchase(9, "b")], [tombstone(10, "t")]], "t", id="a tombstone ends it"),
    pytest.param([[profile(5, "p"), tombstone(6, "t"), profile(7, "q")]], "q", id="it came back"),
    pytest.param([[profile(5, "p"), purchase(99_999_999_999_999, "b")]], "b", id="a far year"),
]


@pytest.mark.parametrize(("batches", "context"), CASES)
def test_the_trace_of_a_row(batches: list[list[Sent]], context: str | None) -> None:
    assert gold_of(batches)[-1]["trace_context"] == context


RECORD = st.builds(
    Sent,
    millis=st.integers(-1, 3),
    trace=st.sampled_from([None, "a", "b", "c"]),
    kind=st.sampled_from(["purchase", "profile", "tombstone"]),
)


@given(batches=st.lists(st.lists(RECORD, max_size=4), min_size=1, max_size=4))
@example(batches=[[profile(1, "a"), purchase(2)], [profile(2, "b")]])
def test_it_is_the_same_in_one_batch_as_in_many(batches: list[list[Sent]]) -> None:
    together = gold_of([[record for batch in batches for record in batch]])
    assert current(together) == current(gold_of(batches))


def current(changes: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the row that changes lead to; None where it is gone."""
    if not changes or changes[-1]["is_gone"]:
        return None
    return {name: value for name, value in changes[-1].items() if name not in ("view_version", "existed")}


@given(batches=st.lists(st.lists(RECORD, max_size=4), min_size=1, max_size=4))
def test_a_row_leads_to_a_record_of_its_time(batches: list[list[Sent]]) -> None:
    sent = [record for batch in batches for record in batch]
    for row in gold_of(batches):
        if row["trace_context"] is not None and not row["is_gone"]:
            millis = (row["as_of"] - EPOCH) // timedelta(milliseconds=1)
            assert row["trace_context"] in {record.trace for record in sent if record.millis == millis}


@given(sent=st.lists(RECORD, min_size=1))
def test_state_that_is_seeded_from_the_table_has_the_same(sent: list[Sent]) -> None:
    snapshot = rows_of(Table.PURCHASES, list(enumerate(sent)))
    with duckdb.connect() as database:
        database.register("snapshot", snapshot)
        seeded = database.execute(state.PURCHASES.seed.format(where="")).fetchall()
    assert seeded == list(state.tuples(totalled([summarised(snapshot)])))
