"""What the view topic would refuse is known before it is sent."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from customer_activity.catalog import Reason, Table
from customer_activity.contracts import view
from customer_activity.contracts.tables import arrow_schema
from customer_activity.streams.publish import records, too_large
from customer_activity.streams.publish.too_large import TooLarge

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def changed(**columns: Any) -> pa.Table:
    """One change of a gold row."""
    row = {
        "customer_id": "C-1",
        "name": "Ada",
        "profile_updated_at": NOW,
        "purchase_count": 1,
        "total_amount": Decimal("1.10"),
        "currency": "EUR",
        "view_version": 12,
        "as_of": NOW,
        "existed": True,
        "is_gone": False,
    }
    return pa.Table.from_pylist([row | columns], arrow_schema(Table.ACTIVITY_CHANGES))


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({}, id="nothing long"),
        pytest.param({"address": "x" * 5_000}, id="a long address"),
        pytest.param({"name": "é" * 2_000}, id="letters of two bytes"),
        pytest.param({"email": "\x01" * 900}, id="characters that JSON writes as six"),
        pytest.param({"loyalty_status": '"' * 3_000}, id="quotes"),
        pytest.param({"customer_id": "C" * 4_000}, id="an id that is key and field"),
        pytest.param({"purchase_count": 2**62, "total_amount": Decimal("9" * 16 + ".99")}, id="great numbers"),
    ],
)
def test_a_record_is_too_large_from_its_first_byte_beyond_the_limit(columns: dict[str, Any]) -> None:
    rows = changed(**columns)
    ((key, value),) = view.records(rows)
    size = len(key) + len(value or b"")

    assert records.oversized(rows, size) == {}
    assert records.oversized(rows, size - 1) == {0: (key, value)}


@pytest.mark.parametrize(("room", "names"), [(0, ["traceparent", "tracestate"]), (-1, [])], ids=["fits", "does not"])
def test_a_row_goes_without_its_trace_where_both_do_not_fit(room: int, names: list[str]) -> None:
    parent = f"00-{1:032x}-{1:016x}-01"
    rows = changed(trace_context=f"{parent} vendor=1")
    ((key, value),) = view.records(rows)
    headers = [("traceparent", parent.encode()), ("tracestate", b"vendor=1")]
    size = len(key) + len(value or b"") + sum(len(name) + len(text) + 4 for name, text in headers)
    ((_, same, sent),) = records.traced(rows, size + room)
    assert (same, [name for name, _ in sent]) == (value, names)


def test_a_row_that_is_gone_is_never_too_large() -> None:
    assert records.oversized(changed(is_gone=True, address="x" * 5_000), 100) == {}


def test_what_is_refused_is_kept_whole_and_says_why() -> None:
    rows = pa.concat_tables([changed(), changed(customer_id="C-2", address="x" * 5_000)])
    found = records.oversized(rows, 2_000)
    ((key, value),) = found.values()
    (row,) = too_large.as_quarantined([TooLarge(1, "view", key, value)], 2_000).to_pylist()

    assert list(found) == [1]
    assert (row["reason"], row["topic"], row["key"]) == (Reason.TOO_LARGE_TO_PUBLISH, "view", b"C-2")
    assert msgspec.json.decode(row["value"])["address"] == "x" * 5_000
    assert (row["partition"], row["offset"], row["kafka_timestamp"]) == (None, None, None)
    assert row["detail"] == f"key and value: {3 + len(row['value'])} bytes, and the topic takes 2000"
