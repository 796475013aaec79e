"""What a merge wrote is found: delta-rs writes its texts as another type than those of an append."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from customer_activity import delta, merging
from customer_activity.catalog import Query, Reason, Table, table_path
from customer_activity.datafiles import arrow_schema
from customer_activity.inspection import show
from customer_activity.microbatch import MicroBatch
from customer_activity.quarantine import contents, replay
from customer_activity.quarantine.contents import Selection
from customer_activity.settings import Settings
from support.records import PURCHASES, purchase


@pytest.fixture
def settings(settings: Settings) -> Settings:
    delta.ensure_tables(settings.lake)
    return settings


def text_type(settings: Settings, table: Table, column: str) -> pa.DataType:
    (file,) = DeltaTable(table_path(settings.lake, table)).file_uris()
    return pq.read_schema(file.removeprefix("file://")).field(column).type


def test_one_of_several_customers_is_shown(settings: Settings) -> None:
    rows = [{"customer_id": f"C-{number}", "name": f"name {number}"} for number in range(3)]
    merged = pa.Table.from_pylist(rows, arrow_schema(Table.PROFILES))
    merging.merge(merged, settings.lake, Table.PROFILES, MicroBatch(Query.PROFILES, "g", 0), key="customer_id")
    assert text_type(settings, Table.PROFILES, "customer_id") == pa.string_view()
    profile = show.customer(settings.lake, "C-1").profile
    assert profile is not None
    assert profile["name"] == "name 1"


def test_what_a_replay_left_in_quarantine_is_chosen_by_its_reason(settings: Settings) -> None:
    left = {"topic": PURCHASES, "partition": 0, "kafka_timestamp": datetime(2026, 1, 1, tzinfo=UTC)}
    record = purchase("P-0", currency="USD")
    rows = [
        {**left, "offset": 0, "key": record.key, "value": record.value, "reason": Reason.CURRENCY_MISMATCH},
        {**left, "offset": 1, "key": b"P-1", "value": b"{", "reason": Reason.NOT_JSON},
        {**left, "offset": 2, "key": b"P-2", "value": b"{}", "reason": Reason.MISSING_FIELD},
    ]
    held = pa.Table.from_pylist(rows, arrow_schema(Table.QUARANTINE))
    write_deltalake(table_path(settings.lake, Table.QUARANTINE), held, mode="append")
    mended = settings.model_copy(update={"currency": "USD"})
    assert replay.replay(mended, Selection(Reason.CURRENCY_MISMATCH), "it was dollars").accepted == {PURCHASES: 1}
    assert text_type(settings, Table.QUARANTINE, "reason") == pa.string_view()
    (group,) = contents.groups(settings.lake, Selection(Reason.NOT_JSON))
    assert group.records == 1
