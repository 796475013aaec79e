"""The topic of alerts: an alert goes out when it is new, by its contract, and never again."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

from customer_activity.catalog import Table
from customer_activity.contracts import FRAUD_ALERT
from customer_activity.contracts.tables import arrow_schema
from customer_activity.settings import Settings
from customer_activity.streams.alerts import topic
from customer_activity.streams.publish.changed import Changed
from support.contracts import schema_of

SCHEMA = arrow_schema(Table.FRAUD_ALERTS)
MOMENT = datetime(2026, 3, 1, 12, 0, 0, 5_000, tzinfo=UTC)


def alert(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "alert_id": name,
        "rule": "velocity",
        "customer_id": "C-ü",
        "purchase_id": "P-1",
        "occurred_at": MOMENT,
        "window_start": MOMENT,
        "window_end": MOMENT,
        "purchase_count": 11,
        "total_amount": Decimal("110.10"),
        "currency": "EUR",
        "partition": 0,
        "offset": 7,
        "kafka_timestamp": MOMENT,
        "landing": 3,
        **changes,
    }


def changed(now: dict[str, Any], *, before: dict[str, Any] | None, is_gone: bool = False) -> Changed:
    held = dict.fromkeys(SCHEMA.names) if before is None else before
    return Changed(_table(now), pa.array([is_gone]), _table(held))


def _table(row: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([row], SCHEMA)


@pytest.mark.parametrize(
    ("rows", "numbers"),
    [
        pytest.param(changed(alert("a"), before=None), [0], id="a new one"),
        pytest.param(changed(alert("a"), before=alert("a", purchase_count=12)), [], id="one that was corrected"),
        pytest.param(changed(alert("a"), before=alert("a"), is_gone=True), [], id="one that was taken back"),
    ],
)
def test_an_alert_goes_out_when_it_is_new(rows: Changed, numbers: list[int]) -> None:
    assert [number for number, _ in topic.records(rows, Settings())] == numbers


def test_a_record_is_by_the_contract() -> None:
    ((key, value, *_),) = topic.as_records(_table(alert("a")))
    assert key == "C-ü".encode()
    record = json.loads(value or b"", parse_float=Decimal)
    jsonschema.validate(record, schema_of(FRAUD_ALERT))
    assert (record["occurredAtEpochMillis"], str(record["totalAmount"])) == (1772366400005, "110.10")
