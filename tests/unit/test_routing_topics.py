"""Records of routed purchases: on the topic of the route, without personal data, taken back where that is corrected."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from customer_activity.catalog import ROUTES, Table
from customer_activity.contracts import published
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


@pytest.mark.parametrize(
    ("found", "wanted", "is_same"),
    [
        pytest.param(b'{"a": 1.50}', b'{"a":1.5}', True, id="written otherwise"),
        pytest.param(b'{"a": 1}', b'{"a":1,"new":null}', True, id="sent before the field was known"),
        pytest.param(b'{"a": 1}', b'{"a":1,"new":2}', False, id="a field that has a value by now"),
        pytest.param(b'{"a": 1, "old": null}', b'{"a":1}', False, id="a field that is not known"),
        pytest.param(None, b'{"a":1}', False, id="not there"),
        pytest.param(b'{"a":1}', None, False, id="to be deleted"),
        pytest.param(None, None, True, id="neither"),
        pytest.param(b"{", b'{"a":1}', False, id="no JSON"),
        pytest.param(b'{"a": 1e99999999999999999999}', b'{"a":1}', False, id="a number that no decimal holds"),
        pytest.param(b"[1]", b'{"a":1}', False, id="no object"),
    ],
)
def test_a_record_is_not_sent_again_for_a_field_that_it_could_not_have(
    found: bytes | None, wanted: bytes | None, is_same: bool
) -> None:
    assert published.says_the_same(found, wanted) is is_same
