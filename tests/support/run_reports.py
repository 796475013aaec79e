"""A status for the live run to show."""

from __future__ import annotations

from datetime import UTC, datetime

from customer_activity.catalog import PROFILES_ROLE, PURCHASES_ROLE, Table
from customer_activity.inspection import tables
from customer_activity.inspection.query_status import QueryReport
from customer_activity.inspection.status import Report
from customer_activity.inspection.topics import Topic
from support.streams import Query

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def report(purchases: int = 0, gold: tables.Contents | None = None, *, lag: int = 0) -> Report:
    by_role = {
        PURCHASES_ROLE: Topic("purchase-events", {0: (0, purchases)}, NOON),
        PROFILES_ROLE: Topic("profiles", {}, None),
    }
    reports = [
        QueryReport(
            Query.BRONZE,
            "running",
            lag={"purchase-events": lag},
            lag_records=lag,
            rows_per_second=1234.5,
            freshness_seconds=float(lag),
        )
    ]
    reports += [
        QueryReport(query, "running", lag_versions=0, is_current=True, freshness_seconds=0.0)
        for query in list(Query)[1:]
    ]
    return Report(NOON, "lake", reports, [gold] if gold else [], by_role, [])


def gold(rows: int, version: int) -> tables.Contents:
    return tables.Contents(Table.ACTIVITY, "id", version, rows, 1, 1000, NOON)
