"""Records of routed purchases: on the topic of the route, without personal data, taken back where that is corrected."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from customer_activity.catalog import ROUTES, Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.settings import Settings
from customer_activity.streams.publish.changed import Changed
from customer_activity.streams.routing import topics

HIGH, OTHER = ROUTES
SETTINGS = Settings(route_topic_prefix="shop")
ROW = {"purchase_id": "P-1", "amount": Decimal("12.30"), "route": HIGH, "rule": "large", "rules_version": "v"}


def changed(after: dict[str, Any], before: dict[str, Any] | None = None, *, is_gone: bool = False) -> Changed:
    schema = arrow_schema(Table.ROUTED)
    rows, was = (pa.Table.from_pylist([each or {}], schema) for each in (after, before))
    return Changed(rows, pa.array([is_gone]), was)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        pytest.param(changed(ROW), [("shop-high-value-purchases", True)], id="new"),
        pytest.param(changed(ROW, ROW), [("shop-high-value-purchases", True)], id="corrected on its route"),
        pytest.param(
            changed(ROW, {**ROW, "route": OTHER}),
            [("shop-other-purchases", False), ("shop-high-value-purchases", True)],
            id="corrected to another route",
        ),
        pytest.param(changed(ROW, ROW, is_gone=True), [("shop-high-value-purchases", False)], id="gone"),
    ],
)
def test_where_a_purchase_goes(found: Changed, wanted: list[tuple[str, bool]]) -> None:
    records = list(topics.records(found, SETTINGS))
    assert [(topic, value is not None) for _, (_, value, topic) in records] == wanted  # type: ignore[misc]
    assert {(number, key) for number, (key, *_) in records} == {(0, b"P-1")}


def test_what_a_record_says() -> None:
    ((_, (_, value, *_)),) = topics.records(changed(ROW), SETTINGS)
    said = json.loads(value or b"", parse_float=Decimal)
    assert (said["purchaseId"], said["amount"], said["rule"], said["rulesVersion"]) == (
        "P-1",
        Decimal("12.30"),
        "large",
        "v",
    )
    assert not {"name", "email", "address", "route"} & set(said)
