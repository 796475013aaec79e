"""What silver makes of purchase and profile records, case by case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.state.profile_records import records, with_room
from customer_activity.streams.silver import order, profiles, purchases


def at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def in_order(table: Table, rows: Sequence[dict[str, Any]]) -> pa.Table:
    return order.in_order(pa.Table.from_pylist(list(rows), schema=arrow_schema(table)))


def bought(
    offset: int, purchase_id: str = "P-1", amount: str = "10.00", partition: int = 0, **more: Any
) -> dict[str, Any]:
    content = {"customer_id": "C-1", "amount": Decimal(amount), "currency": "EUR", "occurred_at": at(100)}
    place = {"partition": partition, "offset": offset, "kafka_timestamp": at(1000 + offset)}
    return {"purchase_id": purchase_id, **content, **place, **more}


@pytest.mark.parametrize(
    ("events", "counted", "verdicts"),
    [
        pytest.param([bought(0)], [], {0: "accepted"}, id="new"),
        pytest.param([bought(0), bought(1)], [], {0: "accepted", 1: "duplicate"}, id="repeated in the batch"),
        pytest.param(
            [bought(1), bought(0)], [], {0: "accepted", 1: "duplicate"}, id="the lowest offset wins, not the first row"
        ),
        pytest.param(
            [bought(0, partition=0, landing=8), bought(9, partition=1, landing=7)],
            [],
            {9: "accepted", 0: "duplicate"},
            id="what landed earlier wins, on whatever partition",
        ),
        pytest.param(
            [bought(0, landing=0), bought(9, landing=None)],
            [],
            {9: "accepted", 0: "duplicate"},
            id="what landed before landings were numbered comes first",
        ),
        pytest.param([bought(1)], [bought(0)], {1: "duplicate"}, id="repeated in a later batch"),
        pytest.param([bought(1, amount="9.00")], [bought(0)], {1: "quarantined"}, id="other amount"),
        pytest.param(
            [bought(0), bought(1, customer_id="C-2")], [], {0: "accepted", 1: "quarantined"}, id="other customer"
        ),
        pytest.param([bought(1, product_id="X")], [bought(0)], {1: "quarantined"}, id="a product where there was none"),
        pytest.param([bought(1, occurred_at=at(101))], [bought(0)], {1: "quarantined"}, id="other time"),
        pytest.param(
            [bought(0), bought(1)], [bought(0)], {0: "accepted", 1: "duplicate"}, id="the batch again after its append"
        ),
        pytest.param(
            [bought(0), bought(1, "P-2")], [bought(7, "P-3")], {0: "accepted", 1: "accepted"}, id="others do no harm"
        ),
    ],
)
def test_purchase_verdicts(
    events: list[dict[str, Any]], counted: list[dict[str, Any]], verdicts: dict[int, str]
) -> None:
    rows = in_order(Table.PURCHASES, events)
    known = dict(purchases.firsts(in_order(Table.PURCHASES, counted)))
    judged = purchases.judge(purchases.firsts(rows), known)
    assert dict(zip(rows.column("offset").to_pylist(), judged, strict=True)) == verdicts


def update(offset: int, updated: int, name: str = "Ada", **more: Any) -> dict[str, Any]:
    return gone(offset, is_tombstone=False, name=name, updated_at=at(updated), **more)


def gone(offset: int, **more: Any) -> dict[str, Any]:
    place = {"partition": 0, "offset": offset, "kafka_timestamp": at(1000 + offset)}
    return {"customer_id": "C-1", "is_tombstone": True, **place, **more}


@pytest.mark.parametrize(
    ("current", "events", "verdicts", "changes"),
    [
        pytest.param([], [update(0, 10)], "accepted", [0], id="first"),
        pytest.param([update(0, 10)], [update(1, 20)], "accepted", [1], id="newer"),
        pytest.param([update(0, 10)], [update(1, 5)], "stale", [], id="older is stale"),
        pytest.param([update(0, 10)], [update(1, 10)], "duplicate", [], id="the same again"),
        pytest.param([update(0, 10)], [update(1, 10, "Bob")], "accepted", [1], id="a tie goes to the later offset"),
        pytest.param([], [update(0, 10), update(1, 5), update(2, 8)], "accepted stale stale", [0], id="two stale"),
        pytest.param([], [update(0, 5), update(1, 10), update(2, 5)], "accepted accepted stale", [1], id="late repeat"),
        pytest.param([update(0, 10)], [gone(1)], "accepted", [1], id="tombstone"),
        pytest.param([], [gone(0)], "accepted", [], id="tombstone of nobody"),
        pytest.param([], [update(0, 10), gone(1)], "accepted accepted", [], id="came and went"),
        pytest.param(
            [update(0, 10)], [gone(1), update(2, 5)], "accepted accepted", [1, 2], id="afresh after a tombstone"
        ),
        pytest.param(
            [update(0, 10)], [gone(1), update(2, 10)], "accepted accepted", [1, 2], id="the same after a tombstone"
        ),
        pytest.param(
            [update(0, 10)],
            [update(1, 10, "Bob"), update(2, 10), update(3, 10)],
            "accepted accepted duplicate",
            [2],
            id="to and fro",
        ),
        pytest.param(
            [],
            [update(9, 10, partition=1, landing=3), gone(0, landing=4)],
            "accepted accepted",
            [],
            id="what landed later ends it, on whatever partition",
        ),
        pytest.param(
            [],
            [update(0, 10, landing=4), gone(9, partition=1, landing=3)],
            "accepted accepted",
            [0],
            id="what landed earlier ends nothing",
        ),
        pytest.param(
            [],
            [update(0, 10, landing=0), gone(9, landing=None)],
            "accepted accepted",
            [0],
            id="what landed before landings were numbered comes first",
        ),
        pytest.param(
            [update(0, 10)],
            [gone(1), update(2, 5), update(3, 4), gone(4)],
            "accepted accepted stale accepted",
            [4],
            id="two lives in a batch",
        ),
        pytest.param(
            [update(0, 10)],
            [gone(1), update(2, 5), update(3, 6)],
            "accepted accepted accepted",
            [1, 3],
            id="an end and a new life in a batch",
        ),
        pytest.param(
            [],
            [update(0, 10), gone(1), update(2, 5)],
            "accepted accepted accepted",
            [2],
            id="an end of what nobody has seen",
        ),
    ],
)
def test_profile_verdicts_and_changes(
    current: list[dict[str, Any]], events: list[dict[str, Any]], verdicts: str, changes: list[int]
) -> None:
    """Changes are those of the events whose offsets are named."""
    updates = list(records(in_order(Table.PROFILE_CHANGES, events)))
    held = {profile.customer_id: profile for profile in records(in_order(Table.PROFILE_CHANGES, current))}
    judged, changed = profiles.judge(updates, held)
    assert judged == verdicts.split()
    assert [updates[number].offset for number in changed] == changes


def said(number: int, name: str | None, updated: int, **more: Any) -> dict[str, Any]:
    """A profile record, or a tombstone where it has no name."""
    return gone(number, **more) if name is None else update(number, updated, name, **more)


HISTORIES = st.lists(
    st.tuples(
        st.sampled_from(["C-1", "C-2"]),
        st.sampled_from(["Ann", "Ann", "Ann", "Bob", None]),
        st.integers(10, 11),
        st.integers(0, 1),  # partition
        st.integers(1, 2),  # landing
        st.sampled_from([1, 1, 1, 2]),  # offsets to the next one of the partition
        st.integers(0, 2),  # which file it is in
    ),
    max_size=30,
)


@given(history=HISTORIES)
def test_repeats_that_are_counted_beforehand_change_neither_verdicts_nor_changes(
    history: list[tuple[str, str | None, int, int, int, int, int]],
) -> None:
    files: dict[int, list[dict[str, Any]]] = {}
    next_offset = {0: 0, 1: 0}
    for customer, name, updated, partition, landing, step, file in sorted(history, key=itemgetter(4)):
        row = said(next_offset[partition], name, updated, partition=partition, landing=landing)
        files.setdefault(file, []).append({**row, "customer_id": customer})
        next_offset[partition] += step
    schema = arrow_schema(Table.PROFILE_CHANGES)
    every = pa.Table.from_pylist([row for rows in files.values() for row in rows], schema)
    whole = order.in_order(with_room(every))
    left = [profiles.without_repeats(pa.Table.from_pylist(rows, schema)) for rows in (*files.values(), [])]
    rest = order.in_order(pa.concat_tables(left))
    verdicts, numbers = profiles.judge(records(whole), {})
    of_rest, numbers_of_rest = profiles.judge(records(rest), {})
    assert profiles.counted(of_rest, rest.column(profiles.REPEATS).to_pylist()) == Counter(verdicts)
    changed, changed_by_rest = pa.array(numbers, pa.int64()), pa.array(numbers_of_rest, pa.int64())
    assert rest.take(changed_by_rest).select(schema.names) == whole.take(changed)


@pytest.mark.parametrize(
    ("events", "repeats"),
    [
        pytest.param([update(number, 10) for number in range(1_000)], [999], id="a producer that loops"),
        pytest.param([update(0, 10), update(2, 10)], [0, 0], id="one that is elsewhere may say something else"),
        pytest.param([update(0, 10), update(1, 10, partition=1)], [0, 0], id="another partition"),
        pytest.param([update(0, 10, landing=1), update(1, 10, landing=2)], [0, 0], id="another landing"),
        pytest.param([update(0, 10), update(1, 11)], [0, 0], id="another time"),
        pytest.param([gone(0), gone(1)], [0, 0], id="tombstones"),
        pytest.param([update(0, 10), gone(1), update(2, 10)], [0, 0, 0], id="an end in between"),
        pytest.param([update(0, 10, landing=None), update(1, 10, landing=None)], [1], id="not numbered"),
        pytest.param([], [], id="none"),
    ],
)
def test_which_records_repeat_the_one_before(events: list[dict[str, Any]], repeats: list[int]) -> None:
    found = profiles.without_repeats(pa.Table.from_pylist(events, schema=arrow_schema(Table.PROFILE_CHANGES)))
    assert found.column(profiles.REPEATS).to_pylist() == repeats
