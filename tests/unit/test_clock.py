"""The clock of event time: the same stamps wherever batches are cut, and nothing decided twice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from customer_activity.streams.event_time.clock import MINUTE, Clock, Closing, stamp

HOUR = 60 * MINUTE
SCHEMA = pa.schema(
    {
        "landing": pa.int64(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "occurred_at": pa.timestamp("us", "UTC"),
        "kafka_timestamp": pa.timestamp("us", "UTC"),
    }
)
STAMPS = ("partition_time", "watermark", "next_watermark")


class Row(NamedTuple):
    """A purchase: where it landed and when it happened."""

    landing: int | None
    partition: int
    offset: int
    at: int
    heard: int


def table(rows: Sequence[Row]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ((),) * len(SCHEMA)
    return pa.table([pa.array(list(values), field.type) for values, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


@st.composite
def histories(draw: st.DrawFn) -> list[list[Row]]:
    """Draw what lands, batch by batch: some of it before landings were numbered."""
    offsets = dict.fromkeys(range(3), 0)
    heard, unnumbered = 0, draw(st.integers(0, 3))
    found: list[list[Row]] = []
    for number in range(draw(st.integers(1, 7))):
        landing = None if number < unnumbered else number
        rows = []
        for _ in range(draw(st.integers(1, 5))):
            partition = draw(st.integers(0, 2))
            heard += draw(st.integers(0, 20)) * MINUTE
            at = max(0, heard - draw(st.integers(-30, 300)) * MINUTE)
            rows.append(Row(landing, partition, offsets[partition], at, heard))
            offsets[partition] += draw(st.integers(1, 3))
        found.append(rows)
    return found


def stamps(batches: Sequence[Sequence[Row]], idle: int | None, known: dict[int, int] | None = None) -> list[Any]:
    """Return stamps by place, the closings and the clock in the end, with a batch a part."""
    clock = Clock()
    closings: list[Closing] = []
    found: dict[tuple[int, int], tuple[Any, ...]] = {}
    for rows in batches:
        done = stamp(table(rows), Clock.of(clock.noted()), idle, known)
        values = zip(*(done.columns[name].to_pylist() for name in STAMPS), strict=True)
        found |= {(row.partition, row.offset): stamped for row, stamped in zip(rows, values, strict=True)}
        closings += done.closings
        clock = done.clock
    return [found, closings, clock]


@given(histories(), st.data())
def test_wherever_batches_are_cut_the_stamps_are_the_same(batches: list[list[Row]], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(batches) - 1)))))
    together = [[*chain(*batches[begin:end])] for begin, end in pairwise([0, *cuts, len(batches)]) if begin < end]
    assert stamps(together, HOUR) == stamps(batches, HOUR)


@given(histories(), st.randoms())
def test_the_order_of_rows_in_a_batch_is_nothing(batches: list[list[Row]], chance: Any) -> None:
    rows = [*chain(*batches)]
    shuffled = chance.sample(rows, len(rows))
    assert stamps([shuffled], HOUR) == stamps([rows], HOUR)


@given(histories())
def test_what_is_stored_is_followed_whatever_is_idle_today(batches: list[list[Row]]) -> None:
    found, closings, _ = stamps(batches, HOUR)
    stored = {closing.landing: closing.watermark for closing in closings}
    assert stamps([[*chain(*batches)]], None, stored)[0] == found


@given(histories(), st.data())
def test_what_is_stored_is_followed_where_its_landing_was_emptied(
    batches: list[list[Row]], data: st.DataObject
) -> None:
    _, closings, _ = stamps(batches, HOUR)
    stored = {closing.landing: closing.watermark for closing in closings}
    remaining = data.draw(st.lists(st.sampled_from(batches), unique_by=id).map(lambda some: sorted(some, key=_landing)))
    newest = [Row(len(batches), 0, 1_000, data.draw(st.integers(0, 600)) * MINUTE, batches[-1][-1].heard)]
    found, moved, after = stamps([*remaining, newest], HOUR, stored)
    decided = {each.landing: each.watermark for each in moved if each.landing not in stored}
    watermarks = stored | decided
    for rows in [*remaining, newest]:
        for row in rows:
            before, until = (_latest(watermarks, _landing(rows) - at) for at in (1, 0))
            assert found[row.partition, row.offset][1:] == (before, until)
    assert after.watermark == _latest(watermarks, len(batches))
    assert all(watermark > max(stored.values(), default=-1) for watermark in decided.values())


def _landing(rows: Sequence[Row]) -> int:
    return -1 if rows[0].landing is None else rows[0].landing


def _latest(stored: dict[int, int], landing: int) -> int | None:
    return next((stored[each] for each in sorted(stored, reverse=True) if each <= landing), None)


@given(histories())
def test_it_never_goes_back_and_is_never_ahead_of_a_partition_that_is_not_idle(batches: list[list[Row]]) -> None:
    _, closings, _ = stamps(batches, HOUR)
    assert all(before.watermark < after.watermark for before, after in pairwise(closings))
    assert len({closing.landing for closing in closings}) == len(closings)
    for closing in closings:
        assert (
            closing.watermark
            == min(at.event_time for _, at, is_idle in closing.positions if not is_idle) // MINUTE * MINUTE
        )


@pytest.mark.parametrize(
    ("heard", "is_idle"), [(HOUR, False), (HOUR + 1, True)], ids=["for as long as the setting", "for longer"]
)
def test_a_partition_is_idle_by_the_clock_of_the_topic(heard: int, is_idle: bool) -> None:
    rows = [Row(0, 0, 0, 5 * MINUTE, 0), Row(1, 1, 0, 90 * MINUTE, heard)]
    _, closings, _ = stamps([rows], HOUR)
    assert closings[-1].watermark == (90 if is_idle else 5) * MINUTE


def test_nothing_is_nothing() -> None:
    assert stamps([[]], HOUR) == [{}, [], Clock()]
