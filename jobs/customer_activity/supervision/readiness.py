"""Whether a stream is stuck, and whether it is ready: at work, not far behind, and not silent for long. Pure."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

from customer_activity import topology
from customer_activity.engine import pace
from customer_activity.engine.observability import HELD
from customer_activity.inspection.query_status import QueryReport
from customer_activity.inspection.status import Report
from customer_activity.settings import Settings

AT_WORK = ("running", HELD)


def not_ready(report: Report, streams: Collection[str], seconds: float, settings: Settings) -> dict[str, str]:
    """Return, by stream, why it is not ready; empty where all are.

    One that quality holds is: nothing is wrong with it, and the gate has a metric of its own.

    Args:
        report: how the streams are.
        streams: which of them are meant.
        seconds: since their driver started.
        settings: the limits.
    """
    found = {query.query: _why(query, report.at, seconds, settings) for query in report.queries}
    return {stream: why for stream, why in found.items() if why and stream in streams}


def _why(query: QueryReport, now: datetime, seconds: float, settings: Settings) -> str:
    if query.state not in AT_WORK:
        return f"it is {query.state}: {query.message}" if query.message else f"it is {query.state}"
    if query.state == HELD:
        return ""
    if topology.spec(query.query).topics and (why := _why_behind_topics(query, settings)):
        return why
    most = settings.ready_lag_seconds + _pause(query, settings)
    if (waiting := lag_seconds(query, now)) is not None and waiting > most:
        return f"a commit has waited for it for {waiting:,.0f} s, and may for {most:,.0f} s"
    return stuck_for(query, now, seconds, settings.ready_batch_seconds, settings)


def _why_behind_topics(query: QueryReport, settings: Settings) -> str:
    if query.lag_records is None:
        return "its lag is unknown: `activity status` says why"
    if query.held_back:
        return f"{query.held_back:,} offsets are behind an open transaction"
    most = settings.ready_lag_records
    return f"{query.lag_records:,} records have not landed, and {most:,} may be" if query.lag_records > most else ""


def _pause(query: QueryReport, settings: Settings) -> float:
    """Return the seconds that a stream behind the hot path waits on purpose, more after a long batch; 0 on the path."""
    if not topology.spec(query.query).is_behind:
        return 0.0
    return pace.period(settings, query.query, (query.batch or {}).get("seconds") or 0.0, records=0, since=1.0)


def lag_seconds(query: QueryReport, now: datetime) -> float | None:
    """Return how long the oldest commit has waited that a stream has not read; None where that is unknown."""
    if query.unread_since is not None:
        return max(0.0, (now.astimezone(UTC) - datetime.fromisoformat(query.unread_since)).total_seconds())
    return 0.0 if query.lag_versions == 0 else None


def stuck_for(query: QueryReport, now: datetime, seconds: float, most: float, settings: Settings) -> str:
    """Say why a query is stuck; empty when it is not. One whose lag is unknown is left to itself.

    Args:
        query: as it is now.
        now: the moment.
        seconds: since its driver started.
        most: seconds without a sign of it after which it is stuck.
        settings: which pause one behind the hot path has on top.
    """
    age = batch_age(query, now)
    waited = seconds if age is None else min(seconds, age)
    if waited <= most + _pause(query, settings) or query.state == HELD:
        return ""
    if query.state == "silent":
        return f"{query.query}: {query.message}"
    has_work = query.lag_records or query.lag_versions
    return f"{query.query} has something to read and no batch for {waited:.0f} s" if has_work else ""


def batch_age(query: QueryReport, now: datetime) -> float | None:
    """Seconds since a query finished its last batch, told how far it is in the one at work, or found nothing to read.

    After a quiet hour what comes in waits for some seconds at most: that query is not stuck. One that finds nothing
    although commits wait is, from when the oldest of them was made.
    """
    told = [(query.batch or {}).get("at"), query.progress_at, query.idle_at]
    *done, idle = (None if at is None else datetime.fromisoformat(at) for at in told)
    if idle is not None and query.unread_since is not None:
        idle = min(idle, datetime.fromisoformat(query.unread_since))
    newest = max((at for at in (*done, idle) if at is not None), default=None)
    if newest is None:
        return None
    return max(0.0, (now.astimezone(UTC) - newest).total_seconds())
