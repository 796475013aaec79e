"""Read the lake without Spark: what its tables say now, and since when a row could be read in gold."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from benchmarks.freshness import Numbers, ViewRecords
from benchmarks.load import CUSTOMER, CUSTOMER_PREFIX
from benchmarks.reading import Expected
from customer_activity.catalog import Table, table_path
from customer_activity.settings import Settings

LOOK_SECONDS = 1.0
STATES = ("insert", "update_postimage")
CHANGE_SCHEMA = pa.schema(
    {
        "customer_id": pa.string(),  # the reader's string views have no kernels to filter them by
        "purchase_count": pa.int64(),
        "_change_type": pa.string(),
        "_commit_version": pa.int64(),
    }
)


def says(settings: Settings, expected: Expected) -> bool:
    """Whether the tables of current rows say what is expected: gold, and silver's two, which may be merged later."""
    gold = _current(settings, Table.ACTIVITY, "purchase_count", "profile_updated_at")
    summaries = _current(settings, Table.SUMMARIES, "purchase_count")
    profiles = _current(settings, Table.PROFILES, "updated_at")
    return (
        expected.is_said_by(_customers(gold), _numbers(gold, "purchase_count"), _millis(gold, "profile_updated_at"))
        # A customer without purchases has no summary, so what is compared is their sum.
        and int(_numbers(summaries, "purchase_count").sum()) >= int(expected.purchase_count.sum())
        and int(_millis(profiles, "updated_at").sum()) >= int(expected.profile_updated_ms.sum())
    )


def wait_until_says(settings: Settings, expected: Expected, seconds: float, check: Callable[[], None]) -> bool:
    """Wait until the tables say what is expected; return False when time is over.

    `check` is called at each look, to raise when waiting is in vain.
    """
    deadline = time.monotonic() + seconds
    while not says(settings, expected):
        check()
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def gold_records(settings: Settings) -> ViewRecords:
    """Read gold's change feed as view records: what a customer's row became, and when its commit could be read.

    That moment is when the commit's file came to be in the log, which is later than the time that the commit states.
    """
    path = Path(table_path(settings.lake, Table.ACTIVITY))
    changes = pa.table(DeltaTable(path).load_cdf(columns=CHANGE_SCHEMA.names)).cast(CHANGE_SCHEMA)
    became = changes.filter(pc.is_in(changes["_change_type"], pa.array(STATES))).sort_by("_commit_version")
    versions, commit = np.unique(_numbers(became, "_commit_version"), return_inverse=True)
    log = path / "_delta_log"
    readable_ms = [(log / f"{version:020}.json").stat().st_mtime_ns // 1_000_000 for version in versions]
    return ViewRecords(
        _customers(became), _numbers(became, "purchase_count"), np.array(readable_ms, dtype=np.int64)[commit]
    )


def _current(settings: Settings, table: Table, *columns: str) -> pa.Table:
    """Read columns of a table's present rows of the load's customers, and these."""
    rows = pa.table(DeltaTable(table_path(settings.lake, table)).to_pyarrow_table(columns=["customer_id", *columns]))
    return rows.filter(
        pc.match_substring_regex(rows["customer_id"].cast(pa.string()), f"^{CUSTOMER.pattern.decode()}$")
    )


def _customers(rows: pa.Table) -> Numbers:
    """Return the customers' numbers."""
    digits = pc.utf8_slice_codeunits(rows["customer_id"].cast(pa.string()), len(CUSTOMER_PREFIX))
    return np.asarray(digits.cast(pa.int64()).to_numpy())


def _numbers(rows: pa.Table, column: str) -> Numbers:
    return np.asarray(rows[column].to_numpy())


def _millis(rows: pa.Table, column: str) -> Numbers:
    """Return a column of times in epoch milliseconds."""
    return np.asarray(rows[column].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_numpy())
