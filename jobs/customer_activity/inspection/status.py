"""`activity status`: what each stream is doing, how far it is behind, and what the tables and topics hold.

Everything is read from outside: status files, checkpoints, Delta logs, topic offsets. So it is right even when the
driver was killed, and never disturbs it. Each stream's lag is measured after that of the stream before it: when all are
zero, everything that was on the topics at the beginning has been processed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from deltalake.exceptions import DeltaError

from customer_activity import topology, unforeseen
from customer_activity.catalog import PROFILES_ROLE, PURCHASES_ROLE, VIEW_ROLE, Table
from customer_activity.checkpoints import checkpoint
from customer_activity.engine import gate
from customer_activity.engine.observability import HELD
from customer_activity.errors import ActivityError, BrokerUnavailable, CheckpointMismatch
from customer_activity.inspection import query_status, switched_off, tables, topics
from customer_activity.inspection.query_status import QueryReport
from customer_activity.lake import corrections
from customer_activity.settings import Settings
from customer_activity.topology import Spec

INPUTS = (PURCHASES_ROLE, PROFILES_ROLE)


@dataclass
class Report:
    """The whole status, at one moment."""

    at: datetime
    lake: str
    queries: list[QueryReport]
    tables: list[tables.Contents]
    topics: dict[str, topics.Topic]
    notes: list[str]
    off: list[QueryReport] = field(default_factory=list)  # streams that are off, and whose tables or topics are there

    def rows(self, table: Table) -> int:
        """Rows in a table; 0 when there is none yet."""
        return next((held.rows for held in self.tables if held.table is table), 0)

    def version(self, table: Table) -> int:
        """Latest version of a table; -1 when there is none yet."""
        return next((held.version for held in self.tables if held.table is table), -1)

    @property
    def is_caught_up(self) -> bool:
        """Whether everything on the input topics is through every stream."""
        return all(query.is_caught_up for query in self.queries)

    def as_json(self) -> dict[str, Any]:
        """Return the report with plain names and values."""
        return {
            "at": self.at.isoformat(timespec="milliseconds"),
            "lake": self.lake,
            "caught_up": self.is_caught_up,
            "queries": [asdict(query) for query in self.queries],
            "off": [asdict(query) for query in self.off],
            "tables": [
                {**held._asdict(), "table": held.table.label, "newest": _iso(held.newest)} for held in self.tables
            ],
            "rows": sum(held.rows for held in self.tables),
            "topics": {
                role: {"topic": t.name, "records": t.records, "offsets": t.offsets, "newest": _iso(t.newest)}
                for role, t in self.topics.items()
            },
            "notes": self.notes,
        }


def report(settings: Settings) -> Report:
    """Look at everything once. What cannot be known is left out, with a note that says why."""
    notes: list[str] = []
    by_role = _topics(settings, notes)
    queries, published = [], None
    for spec in topology.specs():
        query, progress = _query(settings, spec, by_role, notes)
        queries.append(query)
        if spec == topology.publishing() and progress is not None:
            published = _published(settings, spec, progress)
    if holding := gate.holding(settings.lake):
        notes.append(f"publishing is held by quality: {gate.describe(holding)}")
    if (correction := corrections.at_work(settings.lake)) is not None:
        notes.append(f"correction {correction.run} is at work, or was interrupted")
    held = {table: found for table in topology.tables() if (found := _contents(settings, table, notes)) is not None}
    newest = {table: contents.newest for table, contents in held.items()}
    current: dict[str, bool] = {}
    shows = {role: topology.reflected(role) for role in INPUTS}
    for query, spec in zip(queries, topology.specs(), strict=True):
        is_current = query.is_caught_up and all(current[before.name] for before in topology.upstream(spec))
        query.is_current = current[spec.name] = is_current
        reflected = {role: newest.get(table[spec.name]) for role, table in shows.items() if spec.name in table}
        if spec == topology.publishing():
            reflected = dict.fromkeys(shows, published)
        query.freshness_seconds = 0.0 if is_current else _behind(reflected, by_role)
    off = list(_off(settings, current, by_role, notes))
    return Report(datetime.now(UTC), settings.lake, queries, list(held.values()), by_role, notes, off)


def _off(
    settings: Settings, current: Mapping[str, bool], by_role: dict[str, topics.Topic], notes: list[str]
) -> Iterator[QueryReport]:
    """Yield what is known of streams that are off and have run before: how far behind what they wrote is."""
    try:
        idle = switched_off.idle(settings)
    except (OSError, ActivityError) as error:
        notes.append(f"whether streams that are off have run before is unknown: {unforeseen.brief(error)}")
        return
    notes.extend(f"{each.what}: {switched_off.remedy([each])}" for each in idle)
    off, known = topology.off(), dict(current)
    shows = {role: topology.reflected(role, also=off) for role in INPUTS}
    for each in idle:
        query, _ = _query(settings, each.spec, by_role, notes)
        query.state, query.message = switched_off.OFF, each.what
        above = [known.get(before.name, False) for before in topology.upstream(each.spec, also=off)]
        query.is_current = known[each.spec.name] = query.is_caught_up and all(above)
        reflected = {role: table[each.spec.name] for role, table in shows.items() if each.spec.name in table}
        held = {table: _contents(settings, table, notes) for table in set(reflected.values())}
        newest = {role: here.newest for role, table in reflected.items() if (here := held[table]) is not None}
        query.freshness_seconds = 0.0 if query.is_current else _behind(newest, by_role)
        yield query


def _topics(settings: Settings, notes: list[str]) -> dict[str, topics.Topic]:
    """Topics by role, as far as they are known."""
    roles = [role for spec in topology.landings() for role in spec.topics]
    names = {role: settings.topics[role] for role in (*roles, VIEW_ROLE, *sorted(topology.published_roles()))}
    try:
        found = topics.topics(settings, list(names.values()))
    except BrokerUnavailable as error:
        notes.append(f"{error.what}: lag behind Kafka and freshness are unknown")
        return {}
    notes.extend(f"topic {name} does not exist yet" for name in names.values() if name not in found)
    return {role: found[name] for role, name in names.items() if name in found}


def _contents(settings: Settings, table: Table, notes: list[str]) -> tables.Contents | None:
    try:
        return tables.contents(settings.lake, table)
    except (DeltaError, OSError) as error:
        notes.append(f"{table.label} cannot be read: {unforeseen.brief(error)}")
        return None


def _query(
    settings: Settings, spec: Spec, by_role: dict[str, topics.Topic], notes: list[str]
) -> tuple[QueryReport, checkpoint.Progress | None]:
    """Put together what is known of one query, and up to where it has read; freshness comes later."""
    found = query_status.read(settings, spec.name)
    progress = _progress(settings, found, notes)
    if progress is not None and found.batch is None:
        found.state = "stopped" if found.state == "not started" else found.state
        found.batch = {"id": progress.batch_id, "at": _iso(progress.noted_at)}
    if spec.topics:
        offsets = progress.topic_offsets if progress else {}
        inputs = [by_role[role] for role in spec.topics if role in by_role]
        found.lag = {topic.name: topic.behind(offsets.get(topic.name, {})) for topic in inputs}
        found.lag_records = sum(found.lag.values()) if inputs else None
        return found, progress
    versions = progress.table_versions if progress else {}
    for table in spec.sources:
        with suppress(DeltaError, OSError):  # `_contents` meets it again, and notes it
            if (position := tables.position(settings.lake, table)) is None:
                continue
            read = versions.get(position.table_id, -1)
            found.lag[table.label] = max(0, position.version - read)
            since = tables.committed_at(settings.lake, table, read + 1) if position.version > read else None
            if since is not None:
                found.unread_since = min(filter(None, (found.unread_since, _iso(since))))
    found.lag_versions = sum(found.lag.values()) if found.lag else None
    return found, progress


def _progress(settings: Settings, query: QueryReport, notes: list[str]) -> checkpoint.Progress | None:
    """Return up to where a query has read: with the batch that its driver says is done, or else with Spark's last.

    A query waits for its next turn inside the batch, behind the hot path for up to half a minute, and Spark notes the
    batch's end after that.
    """
    done = query.batch["id"] if query.batch is not None and query.state in ("running", HELD) else None
    try:
        return checkpoint.progress(settings.lake, query.query, done)
    except (CheckpointMismatch, OSError) as error:
        notes.append(str(error).splitlines()[0])
        return None


def _published(settings: Settings, spec: Spec, progress: checkpoint.Progress) -> datetime | None:
    """Return how new the input is that the published version of gold reflects."""
    (source,) = spec.sources
    with suppress(DeltaError, OSError):  # the log no longer reaches back to that version
        return tables.newest_at(settings.lake, source, progress.table_versions)
    return None


def _behind(reflected: dict[str, datetime | None], by_role: dict[str, topics.Topic]) -> float | None:
    """Seconds by which the newest input is ahead of what a layer reflects, the worst over the input topics.

    Only for a layer that has something left to read: the newest input may be refused, repeated or stale, and then
    never shows in a table.
    """
    behind = [
        (newest - seen).total_seconds()
        for role, seen in reflected.items()
        if seen is not None and role in by_role and (newest := by_role[role].newest) is not None
    ]
    return max(0.0, *behind) if behind else None


def _iso(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds") if moment else None
