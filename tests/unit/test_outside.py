"""What Kafka is asked about offsets that bronze lacks, and how the view topic's values are read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from customer_activity.checkpoints import checkpoint, offsets
from customer_activity.checkpoints.offsets import OffsetRange
from customer_activity.kafka import clients
from customer_activity.kafka.marker import Marker, identity
from customer_activity.quality import outside, snapshot
from customer_activity.quality.outside import TOGETHER_OFFSETS, View
from customer_activity.settings import Settings
from customer_activity.verification import kafka_input
from customer_activity.verification.records import RawRecord

FAR = 3 * TOGETHER_OFFSETS


class Topic:
    """A partition of the purchase topic with records at some offsets, and what was read of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, there: set[int], lowest: int, highest: int) -> None:
        self.there = there
        self.reads: list[tuple[int, int]] = []
        monkeypatch.setattr(kafka_input, "read", self.read)
        monkeypatch.setattr(
            clients, "offset_range", lambda _, topic: {0: (lowest, highest)} if topic == "purchase-events" else {}
        )

    def read(self, _: Settings, topic: str, start: Mapping[int, int], end: Mapping[int, int]) -> Iterator[RawRecord]:
        self.reads.append((start[0], end[0]))
        for offset in sorted(self.there):
            if start[0] <= offset < end[0]:
                yield RawRecord(0, offset, 1_000, b"k", b"v", ())


@pytest.mark.parametrize(
    ("landed", "there", "bounds", "found"),
    [
        pytest.param({0, 1, 2}, {0, 1, 2}, (0, 3), ([], []), id="whole"),
        pytest.param({0, 2}, {0, 1, 2}, (0, 3), ([1], [(1, 2)]), id="a record lost"),
        pytest.param({0, 2}, {0, 2}, (0, 3), ([], [(1, 2)]), id="a marker"),
        pytest.param({2}, {0, 1, 2}, (0, 3), ([0, 1], [(0, 2)]), id="lost at the beginning"),
        pytest.param({0}, {0, 1, 2}, (0, 3), ([1, 2], [(1, 3)]), id="lost at the end"),
        pytest.param({0, 5}, {4, 5}, (4, 6), ([4], [(4, 5)]), id="below what retention left"),
        pytest.param({0, 1}, {0, 1, 2}, (0, 2), ([], []), id="not read yet"),
        pytest.param(set(), {0, 1}, (0, 2), ([0, 1], [(0, 2)]), id="nothing landed"),
        pytest.param({0, 2, 4}, {0, 1, 2, 3, 4}, (0, 5), ([1, 3], [(1, 4)]), id="near gaps in one go"),
        pytest.param(
            {0, *range(2, FAR), FAR + 1},
            {1, FAR},
            (0, FAR + 2),
            ([1, FAR], [(1, 2), (FAR, FAR + 1)]),
            id="far gaps each",
        ),
        pytest.param({0, 1}, {0, 1}, (0, 2), ([], []), id="twice"),
    ],
)
def test_kafka_is_asked_about_gaps_alone(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    landed: set[int],
    there: set[int],
    bounds: tuple[int, int],
    found: tuple[list[int], list[tuple[int, int]]],
) -> None:
    lowest, landed_to = bounds
    topic = Topic(monkeypatch, there, lowest, max(there) + 1)
    held = pa.table(
        {
            "topic": pa.array(["purchase-events"] * len(landed), pa.string()),
            "partition": pa.array([0] * len(landed), pa.int32()),
            "offset": pa.array(sorted(landed), pa.int64()),
        }
    )
    with duckdb.connect(":memory:") as database:
        snapshot.add(database, {"bronze.landed": held})
        snapshot.add(database, outside.offsets(settings, {"purchase-events": {0: landed_to}}))
        lost = outside.unlanded(settings, database)["topic.unlanded"]
    assert isinstance(lost, pa.Table)
    assert (lost.column("offset").to_pylist(), topic.reads) == found


def test_a_lost_record_with_a_time_that_no_table_holds_is_told(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "offset_range", lambda _, topic: {0: (0, 1)} if topic == "purchase-events" else {})
    monkeypatch.setattr(kafka_input, "read", lambda *_: iter([RawRecord(0, 0, None, b"k", b"v", ())]))
    columns = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
    with duckdb.connect(":memory:") as database:
        snapshot.add(database, {"bronze.landed": pa.schema(list(columns.items())).empty_table()})
        snapshot.add(database, outside.offsets(settings, {"purchase-events": {0: 1}}))
        lost = outside.unlanded(settings, database)["topic.unlanded"]
    assert isinstance(lost, pa.Table)
    told = {"topic": "purchase-events", "partition": 0, "offset": 0, "kafka_timestamp": None}
    assert lost.to_pylist() == [told]


VALUE = {
    "customerId": "C-1",
    "name": "Ada",
    "email": None,
    "address": None,
    "loyaltyStatus": None,
    "profileUpdatedAtEpochMillis": 1,
    "purchaseCount": 1,
    "totalAmount": 1.25,
    "currency": "EUR",
    "firstPurchaseAtEpochMillis": 1,
    "lastPurchaseAtEpochMillis": 1,
    "viewVersion": 7,
    "asOfEpochMillis": 1,
}


@pytest.mark.parametrize(
    ("changes", "is_readable"),
    [
        pytest.param({}, True, id="as it should be"),
        pytest.param({"customerId": "C-2"}, False, id="another key"),
        pytest.param({"totalAmount": 1.5}, False, id="one decimal"),
        pytest.param({"purchaseCount": "1"}, False, id="text"),
        pytest.param({"viewVersion": None}, False, id="null"),
        pytest.param({"colour": "red"}, False, id="one more field"),
        pytest.param({"name": ...}, False, id="one field less"),
    ],
)
def test_a_value_keeps_the_contract_or_is_unreadable(
    settings: Settings, changes: dict[str, Any], is_readable: bool
) -> None:
    value = {name: content for name, content in (VALUE | changes).items() if content is not ...}
    relations = outside.view_relations(View({b"C-1": json.dumps(value).encode(), b"C-3": None}, None, 0), settings.lake)
    found = relations["topic.view"]
    assert isinstance(found, pa.Table)
    rows = found.to_pylist()
    assert [(row["customer_id"], row["is_readable"], row["is_deleted"]) for row in rows] == [
        ("C-1", is_readable, False),
        ("C-3", True, True),
    ]
    assert rows[0]["view_version"] == (7 if is_readable else None)


@pytest.mark.parametrize("field", ["totalAmount", "colour", "name"])
def test_a_value_that_is_nested_very_deeply_is_unreadable(settings: Settings, field: str) -> None:
    nested = b"[" * 200_000 + b"]" * 200_000
    value = (
        json.dumps(VALUE | {field: 0})
        .encode()
        .replace(f'"{field}": 0'.encode(), b'"%s": %s' % (field.encode(), nested))
    )
    found = outside.view_relations(View({b"C-1": value}, None, 0), settings.lake)["topic.view"]
    assert isinstance(found, pa.Table)
    assert found.column("is_readable").to_pylist() == [False]


@pytest.mark.parametrize(
    ("read", "version", "rows"),
    [
        pytest.param(None, 3, 2, id="no batch was finished yet"),
        pytest.param(2, 3, 2, id="the marker is further"),
        pytest.param(9, 9, 0, id="versions without a row to send moved no marker"),
    ],
)
def test_the_view_is_judged_at_the_version_that_publish_has_read(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, read: int | None, version: int, rows: int
) -> None:
    marker = Marker("gold's id", 3, rows=2)
    values = {settings.progress_topic: {identity(settings).encode(): marker.text()}, settings.view_topic: {}}
    monkeypatch.setattr(clients, "last_values", lambda _, topic: values[topic])
    if read is not None:
        end = [offsets.after("gold's id", read)]
        checkpoint.write(settings.lake, "publish", "g", 0, OffsetRange(None, end), is_committed=True)
    found = outside.read_view(settings).marker
    assert found is not None
    assert (found.version, found.rows) == (version, rows)
