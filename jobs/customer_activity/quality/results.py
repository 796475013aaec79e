"""What each run observed, kept as a Delta table: `<lake>/ops/quality_results`, one row a rule and run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from customer_activity.quality.snapshot import Relations, relation
from customer_activity.quality.verdicts import path

if TYPE_CHECKING:  # brings Great Expectations, which who reads results need not wait for
    from customer_activity.quality.judging import Judged
    from customer_activity.quality.rules import Rule

SMALL_FILES = 100  # a run leaves one; so many are put together
KEPT_HOURS = 7 * 24  # files that were put together, for who reads an older version

SCHEMA = pa.schema(
    [
        ("run_id", pa.string()),
        ("judged_at", pa.timestamp("us", tz="UTC")),
        ("rule", pa.string()),
        ("suite", pa.string()),
        ("severity", pa.string()),
        ("outcome", pa.string()),
        ("observed", pa.float64()),
        ("found", pa.string()),
        ("threshold", pa.string()),
        ("versions", pa.string()),
        ("seconds", pa.float64()),
    ]
)


def append(
    lake: str,
    run_id: str,
    at: datetime,
    judged: Iterable[tuple[Rule, Judged, float]],
    versions: Mapping[str, int],
) -> None:
    """Keep a run's results: rule, outcome and figures, and at which versions of the tables."""
    rows = [
        {
            "run_id": run_id,
            "judged_at": at,
            "rule": rule.rule,
            "suite": rule.suite,
            "severity": rule.severity.value,
            "outcome": found.outcome.value,
            "observed": found.observed,
            "found": found.found,
            "threshold": json.dumps(rule.expect, sort_keys=True),
            "versions": json.dumps(versions, sort_keys=True),
            "seconds": round(seconds, 3),
        }
        for rule, found, seconds in judged
    ]
    write_deltalake(path(lake), pa.Table.from_pylist(rows, SCHEMA), mode="append")
    table = DeltaTable(path(lake))
    if len(table.file_uris()) > SMALL_FILES:
        table.optimize.compact()
        table.vacuum(retention_hours=KEPT_HOURS, dry_run=False)


def history(lake: str) -> Relations:
    """Return `history.results`: what earlier runs observed."""
    try:
        return {"history.results": relation(DeltaTable(path(lake)))}
    except TableNotFoundError:
        return {"history.results": SCHEMA.empty_table()}
