"""What has to be sent for the topic to say what gold says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from customer_activity.catalog import Table
from customer_activity.contracts import view
from customer_activity.contracts.tables import arrow_schema
from customer_activity.contracts.view import records
from customer_activity.errors import LeaseLost, QueryAlreadyRunning, TerminalError
from customer_activity.kafka.marker import BEFORE_THE_FIRST, Marker, parse
from customer_activity.lease import lease
from customer_activity.streams.publish import resync
from customer_activity.streams.publish.resync import compared
from customer_activity.streams.publish.too_large import TooLarge, keep_new
from support.streams import Query
from support.tables import append_table, opened

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NO_LIMIT = 1 << 30


def gold(version: int, address: str = "1 Old Street", customer: str = "C-1", **columns: Any) -> pa.Table:
    """A change of gold."""
    row = {"customer_id": customer, "address": address, "view_version": version, "as_of": NOW, "is_gone": False}
    return pa.Table.from_pylist([row | columns], arrow_schema(Table.ACTIVITY_CHANGES))


def row(version: int, address: str = "1 Old Street") -> bytes:
    """The record of it."""
    ((_, value),) = records(gold(version, address))
    assert value is not None
    return value


@pytest.mark.parametrize(
    ("wanted", "on_topic", "sent"),
    [
        pytest.param([gold(1)], {b"C-1": row(1)}, {}, id="equal"),
        pytest.param([gold(1)], {}, {b"C-1": row(1)}, id="a row is missing"),
        pytest.param([gold(1)], {b"C-1": None}, {b"C-1": row(1)}, id="a row was deleted"),
        pytest.param([gold(2, "2")], {b"C-1": row(1)}, {b"C-1": row(2, "2")}, id="a row is stale"),
        pytest.param([gold(1)], {b"C-1": b"{}"}, {b"C-1": row(1)}, id="a value is none of ours"),
        pytest.param([gold(1)], {b"C-1": b"{"}, {b"C-1": row(1)}, id="a value is no JSON"),
        pytest.param([], {b"C-1": row(1)}, {b"C-1": None}, id="a row is too many"),
        pytest.param([], {b"C-1": None}, {}, id="deleted on both sides"),
    ],
)
def test_only_what_differs_is_sent(
    wanted: list[pa.Table], on_topic: dict[bytes, bytes | None], sent: dict[bytes, bytes | None]
) -> None:
    found = compared(wanted, dict(on_topic), NO_LIMIT, "view")
    assert {key: value for key, value, _ in found.going} == sent
    assert found.unchanged == len(wanted) - sum(value is not None for value in sent.values())


@pytest.mark.parametrize(
    ("on_topic", "is_held"),
    [
        pytest.param(row(1), True, id="the topic has an earlier one: that stays"),
        pytest.param(None, True, id="the topic has none"),
        pytest.param(row(2, "x" * 1_000), False, id="the topic has it, from before its limit was lowered"),
    ],
)
def test_a_row_that_is_too_large_by_now_is_not_sent(on_topic: bytes | None, is_held: bool) -> None:
    found = compared([gold(2, "x" * 1_000)], {b"C-1": on_topic}, 900, "view")
    assert (found.going, found.too_large) == ([], 1)
    assert found.held == ([TooLarge(0, "view", b"C-1", row(2, "x" * 1_000))] if is_held else [])


def test_what_cannot_be_sent_is_put_into_quarantine_once(lake: str) -> None:
    one, other = (TooLarge(0, "view", b"C-1", row(version)) for version in (1, 2))
    for found in ([one], [one], [one, other], []):
        keep_new(lake, "publish", lambda _: 3, found, 900)
    rows = opened(lake, Table.QUARANTINE).to_pyarrow_table().to_pylist()
    assert sorted((each["topic"], each["key"], each["value"]) for each in rows) == [
        ("view", b"C-1", row(1)),
        ("view", b"C-1", row(2)),
    ]
    assert {each["reason"] for each in rows} == {"too_large_to_publish"}
    with pytest.raises(LeaseLost):
        keep_new(lake, "publish", lambda _: 2, [TooLarge(0, "view", b"C-1", row(3))], 900)


def test_beside_a_stream_that_writes_quarantine_too_a_resync_does_not(
    lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_lake: str, query: str) -> None:
        if query == Query.BRONZE:
            raise QueryAlreadyRunning("bronze already runs")

    found = [TooLarge(0, "view", b"C-1", row(1))]
    with monkeypatch.context() as patched:
        patched.setattr(lease, "refuse_running", refuse)
        with pytest.raises(QueryAlreadyRunning):
            keep_new(lake, "publish", lambda _: 3, found, 900)
    assert opened(lake, Table.QUARANTINE).to_pyarrow_table().num_rows == 0
    keep_new(lake, "publish", lambda _: 3, found, 900)
    monkeypatch.setattr(lease, "refuse_running", refuse)
    keep_new(lake, "publish", lambda _: 3, found, 900)  # is there already


def test_a_lake_that_is_behind_its_topic_is_refused() -> None:
    with pytest.raises(TerminalError, match=r"newer rows than the lake[\s\S]*rebuild --apply"):
        compared([gold(1, "2")], {b"C-1": row(2)}, NO_LIMIT, "view")


def test_a_record_of_the_same_version_is_sent_as_it_is_now() -> None:
    """As one that lacks a field which the contract has got since."""
    found = compared([gold(2)], {b"C-1": row(2).replace(b'"email":null,', b"")}, NO_LIMIT, "view")
    assert [(key, value) for key, value, _ in found.going] == [(b"C-1", row(2))]


@dataclass
class Sent:
    """Stands in for the publisher; it may break after some transactions."""

    marker: Marker | None
    breaks_after: int = 1 << 30
    transactions: list[tuple[list[bytes], Marker | None]] = field(default_factory=list)

    def publish(self, going: Iterable[tuple[bytes, bytes | None]], marker: Marker | None) -> int:
        if len(self.transactions) == self.breaks_after:
            raise TerminalError("broken")
        self.transactions.append(([key for key, _ in going], marker))
        self.marker = marker
        return len(self.transactions[-1][0])


BEFORE, AFTER = Marker("gold", 3), Marker("gold", 9)


@pytest.mark.parametrize(
    ("values", "most", "expected"),
    [
        pytest.param([], {}, [0], id="nothing differs: the marker alone"),
        pytest.param([b"1"] * 5, {"most_records": 2}, [2, 2, 1], id="by records"),
        pytest.param([b"1"] * 4, {"most_records": 2}, [2, 2], id="exactly full"),
        pytest.param([b"x" * 10, b"x" * 10, None], {"most_bytes": 24}, [2, 1], id="by bytes"),
        pytest.param([b"x" * 99, b"1"], {"most_bytes": 24}, [1, 1], id="a record larger than a transaction"),
    ],
)
def test_what_differs_goes_out_in_bounded_transactions(
    values: list[bytes | None], most: dict[str, int], expected: list[int]
) -> None:
    publisher = Sent(BEFORE)
    resync.send(publisher, [(b"C%d" % number, value) for number, value in enumerate(values)], AFTER, **most)  # type: ignore[arg-type]
    assert [len(keys) for keys, _ in publisher.transactions] == expected
    under_way = BEFORE._replace(is_resyncing=True)
    assert [marker for _, marker in publisher.transactions] == [under_way] * (len(expected) - 1) + [AFTER]


@pytest.mark.parametrize(
    ("before", "interrupted"),
    [
        pytest.param(BEFORE, BEFORE, id="a marker"),
        pytest.param(None, Marker("gold", BEFORE_THE_FIRST), id="none"),
        pytest.param(Marker("another lake's", 7), Marker("gold", 7), id="another lake has one"),
    ],
)
def test_an_interrupted_one_leaves_the_marker_where_it_was_and_says_so(
    before: Marker | None, interrupted: Marker
) -> None:
    publisher = Sent(before, breaks_after=2)
    with pytest.raises(TerminalError):
        resync.send(publisher, [(b"%d" % n, b"") for n in range(5)], AFTER, most_records=2)  # type: ignore[arg-type]
    assert publisher.marker == interrupted._replace(is_resyncing=True)
    assert parse(publisher.marker.text()) == publisher.marker
    again = Sent(publisher.marker)
    resync.send(again, [(b"4", b"")], AFTER, most_records=2)  # type: ignore[arg-type]
    assert again.marker == AFTER


@pytest.mark.parametrize("key_rows", [1, 2, 1_000], ids=lambda rows: f"{rows} keys at a time")
def test_the_newest_row_of_each_customer_is_found(lake: str, monkeypatch: pytest.MonkeyPatch, key_rows: int) -> None:
    monkeypatch.setattr(resync, "KEY_ROWS", key_rows)
    assert list(resync.current_rows(lake, opened(lake, Table.ACTIVITY_CHANGES))) == []
    for changes in (
        [gold(5, "new"), gold(3, "old"), gold(1, customer="C-2")],
        [gold(6, customer="C-2", is_gone=True), gold(2, customer="C-3", is_gone=True)],
        [gold(4, "between"), gold(7, customer="C-3"), gold(1, customer="C-4")],
    ):
        append_table(lake, Table.ACTIVITY_CHANGES, pa.concat_tables(changes))
    found = pa.concat_tables(resync.current_rows(lake, opened(lake, Table.ACTIVITY_CHANGES))).to_pylist()
    assert {(row["customer_id"], row["view_version"]) for row in found} == {("C-1", 5), ("C-3", 7), ("C-4", 1)}
    assert len(found) == 3


@pytest.mark.parametrize(
    ("value", "version"),
    [
        pytest.param(b'{"viewVersion": 7}', 7, id="ours"),
        pytest.param(None, 0, id="a tombstone"),
        pytest.param(b"{", 0, id="no JSON"),
        pytest.param(b"[1]", 0, id="no object"),
        pytest.param(b'{"viewVersion": "7"}', 0, id="a text"),
        pytest.param(b'{"viewVersion": 7.0}', 0, id="a fraction"),
        pytest.param(b'{"viewVersion": true}', 0, id="no number"),
        pytest.param(b'{"viewVersion": -1}', 0, id="less than any"),
        pytest.param(b'{"viewVersion": 1e30}', 0, id="more than a column holds"),
        pytest.param(b'{"viewVersion": 9223372036854775807}', 0, id="the last that a column holds: none is after it"),
        pytest.param(b'{"viewVersion": ' + b"[" * 100_000, 0, id="nested too deeply"),
    ],
)
def test_a_record_that_is_none_of_ours_is_older_than_any_row(value: bytes | None, version: int) -> None:
    assert view.version_of(value) == version
