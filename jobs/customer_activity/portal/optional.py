"""Alerts and windows, where the streams that make them are on: the newest rows of their tables.

A row is JSON as on the topics that publish tables (`contracts/published.py`).
"""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.contracts import published
from customer_activity.contracts.tables import arrow_schema
from customer_activity.inspection import show, tables

LANDED = "kafka_timestamp"  # of the purchase that raised the alert


def alerts(lake: str, limit: int) -> list[msgspec.Raw] | None:
    """Return the newest alerts, newest first; None where no stream raises any."""
    if Table.FRAUD_ALERTS not in topology.tables():
        return None
    opened = tables.open_table(lake, Table.FRAUD_ALERTS)
    if opened is None:
        return []
    files = pa.RecordBatchReader.from_stream(opened.get_add_actions(flatten=True)).read_all()
    data = opened.to_pyarrow_dataset()
    since = _since(files, limit)
    rows = data.to_table(filter=None if since is None else pc.field(LANDED) >= since)
    newest = rows.take(pc.sort_indices(rows, sort_keys=[(LANDED, "descending")])).slice(0, limit)
    return [msgspec.Raw(value) for value in published.values(newest)]


def _since(files: pa.Table, limit: int) -> pa.Scalar | None:
    """Return since when there are so many rows at least, by the statistics in the log; None where they do not tell."""
    names = ("num_records", f"min.{LANDED}", f"max.{LANDED}")
    if not files.num_rows or any(name not in files.column_names or files[name].null_count for name in names):
        return None
    ordered = files.sort_by([(f"max.{LANDED}", "descending")])
    rows = 0
    for index, count in enumerate(ordered["num_records"].to_pylist()):
        rows += count
        if rows >= limit:
            return pc.min(ordered[f"min.{LANDED}"].slice(0, index + 1))
    return None


def windows(lake: str, customer_id: str) -> dict[str, list[msgspec.Raw]] | None:
    """Return a customer's newest windows and what tells of one, by table; None where no stream makes any."""
    if not show.tables_of_windows():
        return None
    return {
        label: [
            msgspec.Raw(value)
            for value in published.values(pa.Table.from_pylist(rows, arrow_schema(Table.labelled(label))))
        ]
        for label, rows in show.windows(lake, customer_id).items()
    }
