"""Sessions as functions of rows: a final one is never touched, and batches come to what all rows at once come to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from customer_activity.catalog import Table
from customer_activity.contracts.columns import UTC_MICROS
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.closing import Closing
from customer_activity.engine.current_rows import CurrentRows
from customer_activity.engine.derived import Definition
from customer_activity.lake import folding
from customer_activity.streams.event_time import clock
from customer_activity.streams.event_time.clock import Clock
from customer_activity.streams.windows import lateness, sessions

MINUTE = 60_000_000
GAP, GRACE, IDLE = 30 * MINUTE, 20 * MINUTE, 15 * MINUTE
STREAM = sessions.stream(Definition("UTC", GRACE / 60 / MINUTE, GAP / MINUTE))
SCHEMA = pa.schema([arrow_schema(Table.TIMED_PURCHASES).field(name) for name in (*sessions.COLUMNS, "landing")])
Rows = list[dict[str, Any]]

# Event time goes on with the landings; purchases are up to two hours behind, and partitions fall silent.
PURCHASE = st.fixed_dictionaries(
    {
        "customer_id": st.sampled_from(["C-1", "C-2"]),
        "partition": st.integers(0, 2),
        "behind": st.integers(0, 24).map(lambda each: 5 * each),
        "amount": st.sampled_from([Decimal("0.01"), Decimal("2.50")]),
    }
)
LANDINGS = st.lists(st.tuples(st.integers(0, 60), st.lists(PURCHASE, min_size=1, max_size=4)), min_size=1, max_size=12)


def stamped(landings: Sequence[tuple[int, Rows]]) -> pa.Table:
    """Return purchases with the stamps that the stream of event time gives them."""
    rows: Rows = []
    now = 0
    for landing, (passed, purchases) in enumerate(landings):
        now += passed
        for each in purchases:
            number = len(rows)
            times = {"occurred_at": (1_000 + now - each["behind"]) * MINUTE, "kafka_timestamp": (1_000 + now) * MINUTE}
            rows.append({**each, **times, "purchase_id": f"P-{number}", "offset": number, "landing": landing})
    found = pa.Table.from_pylist(rows)
    columns = clock.stamp(found.select(clock.READ), Clock(), IDLE).columns
    for name, values in columns.items():
        found = found.append_column(name, values)
    for name in ("occurred_at", *columns):
        found = found.set_column(found.column_names.index(name), name, found.column(name).cast(UTC_MICROS))
    return found.select(SCHEMA.names).cast(SCHEMA)


def batches(rows: pa.Table, cuts: frozenset[int]) -> Iterator[pa.Table]:
    """Yield rows in batches of whole landings, which end before some of them."""
    last = pc.max(rows.column("landing")).as_py()
    begins = sorted({0, *(each for each in cuts if each <= last)})
    for begin, end in zip(begins, [*begins[1:], last + 1], strict=True):
        yield rows.filter((pc.field("landing") >= begin) & (pc.field("landing") < end))


def in_driver(held: pa.Table, changes: pa.Table, before: Closing, stream: CurrentRows) -> pa.Table:
    """Return what a batch changes, by those rows of the table that the driver reads."""
    assert stream.regrouping is not None
    assert stream.closing is not None
    wanted = held.filter(stream.regrouping.wanted(changes, before, stream.closing))
    return stream.with_held(changes, wanted)


def on_executors(held: pa.Table, changes: pa.Table, _before: Closing, stream: CurrentRows) -> pa.Table:
    """Return the same by all rows, of changes that are reduced apart."""
    apart = [changes.slice(number, 1) for number in reversed(range(changes.num_rows))]
    return stream.with_held(stream.together(pa.concat_tables([changes.slice(0, 0), *apart])), held)


Changed = Callable[[pa.Table, pa.Table, Closing, CurrentRows], pa.Table]


def merged(rows: pa.Table, cuts: frozenset[int], changed: Changed) -> Iterator[pa.Table]:
    """Yield the table after each batch."""
    held = arrow_schema(Table.SESSIONS).empty_table()
    before = Closing(GRACE)
    for batch in batches(rows, cuts):
        after = before.moved([batch.column("next_watermark")])
        stream = replace(STREAM, closing=after)
        changes = stream.marked(stream.reduce(batch.select(STREAM.columns).to_batches()))
        changes = changed(held, changes, before, stream)
        folded = folding.folded(held, changes, STREAM.key, None, STREAM.deletes)
        kinds = folded.differing.column("_change_type").to_pylist()
        assert kinds.count(folding.DELETE) + kinds.count(folding.AFTER) + kinds.count(folding.INSERT) == len(changes)
        held, before = folded.rows, after
        yield held


def as_set(rows: pa.Table) -> set[tuple[Any, ...]]:
    values = [tuple(row.values()) for row in rows.to_pylist()]
    assert len(set(values)) == len(values)
    return set(values)


def one(partition: int, behind: int = 0) -> Rows:
    return [{"customer_id": "C-1", "partition": partition, "behind": behind, "amount": Decimal("2.50")}]


@given(LANDINGS)
@example([(0, one(0)), (60, one(0)), (0, one(1, behind=45))])  # a new partition brings what would be in a final one
def test_no_purchase_that_counts_touches_a_final_session(landings: list[tuple[int, Rows]]) -> None:
    purchases = stamped(landings)
    tables = merged(purchases, frozenset(range(len(landings))), in_driver)
    rules, gap, grace = lateness.Rules(GRACE), timedelta(microseconds=GAP), timedelta(microseconds=GRACE)
    final: Rows = []
    for landing, after in enumerate(tables):
        of_landing = purchases.filter(pc.field("landing") == landing)
        is_out = pc.or_(rules.is_late(of_landing), rules.is_closed(of_landing, of_landing.column("occurred_at")))
        for each in of_landing.filter(pc.invert(is_out)).to_pylist():
            for session in final:
                assert session["session_end"] + gap < each["occurred_at"]
        watermark = of_landing.column("next_watermark")[0].as_py()
        rows = after.to_pylist()
        assert [row for row in final if row not in rows] == []
        assert all(row["is_final"] == (watermark >= row["session_end"] + gap + grace) for row in rows)
        rows.sort(key=lambda row: (row["customer_id"], row["session_start"]))
        for one_before, one_after in pairwise(rows):
            is_other = one_before["customer_id"] != one_after["customer_id"]
            assert is_other or one_before["session_end"] + gap < one_after["session_start"]
        final = [row for row in rows if row["is_final"]]


@pytest.mark.parametrize("changed", [in_driver, on_executors])
@given(LANDINGS, st.frozensets(st.integers(1, 11)), st.randoms(use_true_random=False))
def test_batches_come_to_what_all_rows_come_to(
    changed: Changed, landings: list[tuple[int, Rows]], cuts: frozenset[int], chance: Any
) -> None:
    purchases = stamped(landings)
    final: set[tuple[Any, ...]] = set()
    for table in merged(purchases, cuts, changed):
        rows = as_set(table)
        assert final <= rows
        final = as_set(table.filter(table.column("is_final")))
    order = list(range(purchases.num_rows))
    chance.shuffle(order)
    shuffled = purchases.take(order).select(STREAM.columns)
    assert rows == as_set(STREAM.rows(shuffled.to_batches(max_chunksize=3)))


@pytest.mark.parametrize(
    ("starts_and_ends", "expected"),
    [
        pytest.param([], [], id="none"),
        pytest.param([(0, 100), (10, 20), (130, 140)], [(0, 140)], id="one within another reaches further"),
        pytest.param([(131, 140), (0, 100)], [(0, 100), (131, 140)], id="more than the gap apart"),
    ],
)
def test_sessions_that_overlap_are_joined(
    starts_and_ends: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    rows = [
        {
            "customer_id": customer,
            "session_start": start * MINUTE,
            "session_end": end * MINUTE,
            "window_end": end * MINUTE + GAP,
            "purchase_count": 1,
            "total_amount": Decimal("1.00"),
            "is_final": False,
        }
        for customer in ("C-2", "C-1")
        for start, end in starts_and_ends
    ]
    found = sessions.merged(GAP, pa.Table.from_pylist(rows, arrow_schema(Table.SESSIONS)))
    micros = [found.column(name).cast(pa.int64()).to_pylist() for name in ("session_start", "session_end")]
    spans = sorted(zip(found.column("customer_id").to_pylist(), *micros, strict=True))
    assert spans == [(name, a * MINUTE, b * MINUTE) for name in ("C-1", "C-2") for a, b in expected]
    assert sum(found.column("purchase_count").to_pylist()) == len(rows)
