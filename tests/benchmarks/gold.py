"""Read gold without Spark: what it says now, and since when it could be read there."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from benchmarks.freshness import Numbers, ViewRecords
from benchmarks.load import CUSTOMER_PREFIX
from benchmarks.reading import Expected
from customer_activity import catalog
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


def path(settings: Settings) -> Path:
    """Where gold is."""
    return Path(catalog.table_path(settings.lake, catalog.Table.ACTIVITY))


def says(settings: Settings, expected: Expected) -> bool:
    """Whether gold's rows say what is expected."""
    columns = ["customer_id", "purchase_count", "profile_updated_at"]
    rows = DeltaTable(path(settings)).to_pyarrow_table(columns=columns)
    updated_ms = rows["profile_updated_at"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    return expected.is_said_by(_customers(rows), rows["purchase_count"].to_numpy(), updated_ms.to_numpy())


def wait_until_says(settings: Settings, expected: Expected, seconds: float, check: Callable[[], None]) -> bool:
    """Wait until gold says what is expected; return False when time is over.

    `check` is called at each look, to raise when waiting is in vain.
    """
    deadline = time.monotonic() + seconds
    while not says(settings, expected):
        check()
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def records(settings: Settings) -> ViewRecords:
    """Read gold's change feed as view records: what a customer's row became, and when its commit could be read.

    That moment is when the commit's file came to be in the log, which is later than the time that the commit states.
    """
    changes = pa.table(DeltaTable(path(settings)).load_cdf(columns=CHANGE_SCHEMA.names)).cast(CHANGE_SCHEMA)
    became = changes.filter(pc.is_in(changes["_change_type"], pa.array(STATES))).sort_by("_commit_version")
    versions, commit = np.unique(became["_commit_version"].to_numpy(), return_inverse=True)
    log = path(settings) / "_delta_log"
    readable_ms = [(log / f"{version:020}.json").stat().st_mtime_ns // 1_000_000 for version in versions]
    return ViewRecords(
        _customers(became), became["purchase_count"].to_numpy(), np.array(readable_ms, dtype=np.int64)[commit]
    )


def _customers(rows: pa.Table) -> Numbers:
    """Return the customers' numbers."""
    digits = pc.utf8_slice_codeunits(rows["customer_id"].cast(pa.string()), len(CUSTOMER_PREFIX))
    return np.asarray(digits.cast(pa.int64()).to_numpy())
