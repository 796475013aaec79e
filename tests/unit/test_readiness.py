"""Which stream is ready, by what is known of it and by the settings' limits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from customer_activity.inspection.query_status import QueryReport
from customer_activity.inspection.status import Report
from customer_activity.settings import Settings
from customer_activity.supervision import readiness
from support.streams import Query

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
LIMITS = Settings(
    ready_lag_records=100, ready_lag_seconds=60.0, ready_batch_seconds=30.0, merge_seconds=40.0, gold_seconds=10.0
)


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat()


def why(query: QueryReport, *, seconds: float = 1_000.0) -> str:
    report = Report(NOW, "lake", [query], [], {}, [])
    return readiness.not_ready(report, list(Query), seconds, LIMITS).get(query.query, "")


def query(name: Query = Query.BRONZE, state: str = "running", *, batch: float = 1.0, **more: Any) -> QueryReport:
    lag = {"lag_records": 0} if name == Query.BRONZE else {"lag_versions": 0}
    return QueryReport(name, state, batch={"id": 7, "at": ago(batch)}, **{**lag, **more})


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(query(), id="through"),
        pytest.param(query(lag_records=100), id="at the limit"),
        pytest.param(query(batch=900.0), id="nothing to read for long"),
        pytest.param(query(batch=900.0, lag_records=5, progress_at=ago(3.0)), id="a long batch moves on"),
        pytest.param(query(Query.GOLD, lag_versions=3, unread_since=ago(60.0)), id="a commit at the limit"),
        pytest.param(query(Query.ACTIVITY, lag_versions=3, unread_since=ago(69.0)), id="a merge has its pace on top"),
        pytest.param(query(Query.SUMMARIES, lag_versions=3, unread_since=ago(99.0)), id="another has its own"),
        pytest.param(
            QueryReport(
                Query.ACTIVITY,
                "running",
                batch={"at": ago(59.0), "seconds": 9.0},
                lag_versions=3,
                unread_since=ago(89.0),
            ),
            id="a long merge is followed by a long pause",
        ),
        pytest.param(query(Query.PUBLISH, "held", lag_versions=9, unread_since=ago(900.0)), id="held by quality"),
    ],
)
def test_a_stream_that_is_near_is_ready(seen: QueryReport) -> None:
    assert why(seen) == ""


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        pytest.param(query(state="failed", message="the disk is full"), "it is failed: the disk is full", id="failed"),
        pytest.param(query(state="starting"), "it is starting", id="starting"),
        pytest.param(query(lag_records=101), "101 records have not landed, and 100 may be", id="far behind Kafka"),
        pytest.param(query(lag_records=None), "its lag is unknown", id="nobody knows"),
        pytest.param(
            query(Query.GOLD, lag_versions=1, unread_since=ago(61.0)), "waited for it for 61 s", id="behind a table"
        ),
        pytest.param(
            query(Query.ACTIVITY, lag_versions=1, unread_since=ago(71.0)), "and may for 70 s", id="a merge lags"
        ),
        pytest.param(query(Query.ACTIVITY, batch=41.0, lag_versions=1), "no batch for 41 s", id="a merge is silent"),
        pytest.param(query(batch=31.0, lag_records=5), "no batch for 31 s", id="silent"),
    ],
)
def test_a_stream_that_is_not_ready_says_why(seen: QueryReport, words: str) -> None:
    assert words in why(seen)


def test_a_stream_that_another_driver_runs_does_not_matter() -> None:
    report = Report(NOW, "lake", [query(state="stopped"), query(Query.GOLD)], [], {}, [])
    assert readiness.not_ready(report, [Query.GOLD], 100.0, LIMITS) == {}


@pytest.mark.parametrize(
    ("seen", "seconds"),
    [
        pytest.param(query(Query.GOLD, lag_versions=2, unread_since=ago(12.5)), 12.5, id="a commit waits"),
        pytest.param(query(Query.GOLD), 0.0, id="none waits"),
        pytest.param(query(Query.GOLD, lag_versions=2), None, id="its log entry is gone"),
        pytest.param(query(Query.GOLD, lag_versions=2, unread_since=ago(-3.0)), 0.0, id="clocks differ"),
    ],
)
def test_a_lag_is_how_long_the_oldest_commit_has_waited(seen: QueryReport, seconds: float | None) -> None:
    assert readiness.lag_seconds(seen, NOW) == seconds
