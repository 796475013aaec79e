"""`activity status`: what each stream is doing, how far it is behind, and what the tables and topics hold.

Everything is read from outside: status files, checkpoints, Delta logs, topic offsets. So it is right even when the
driver was killed, and never disturbs it. Each stream's lag is measured after that of the stream before it: when all are
zero, everything that was on the topics at the beginning has been processed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from deltalake.exceptions import DeltaError

from customer_activity import topology, unforeseen
from customer_activity.catalog import VIEW_ROLE, Table
from customer_activity.checkpoints import checkpoint
from customer_activity.engine import gate
from customer_activity.engine.observability import HELD
from customer_activity.errors import ActivityError, BrokerUnavailable, CheckpointMismatch, StorageUnavailable
from customer_activity.inspection import query_status, switched_off, tables, topics
from customer_activity.inspection.query_status import QueryReport
from customer_activity.lake import corrections
from customer_activity.lease import lease
from customer_activity.settings import Settings
from customer_activity.topology import Spec

OPEN_SECONDS = 60.0  # a transaction that has been open for so long is told: most take less than a second


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


def report(settings: Settings, *, kept: tables.Kept | None = None) -> Report:
    """Look at everything once. What cannot be known is left out, with a note that says why.

    A driver that looks at itself keeps tables open for the next look. It holds leases before its streams have a status.
    """
    notes: list[str] = []
    by_role = _topics(settings, notes)
    queries = [_query(settings, spec, by_role, notes, kept) for spec in topology.specs()]
    if kept is None:
        _show_drivers_elsewhere(settings, queries, notes)
    if holding := gate.holding(settings.lake):
        notes.append(f"publishing is held by quality: {gate.describe(holding)}")
    if (correction := corrections.at_work(settings.lake)) is not None:
        notes.append(f"correction {correction.run} is at work, or was interrupted")
    held = [found for table in topology.tables() if (found := _contents(settings, table, notes, kept)) is not None]
    seen: dict[str, QueryReport] = {}
    for query, spec in zip(queries, topology.specs(), strict=True):
        seen[spec.name] = query
        _judge(query, [seen[above.name] for above in topology.upstream(spec)])
    off = list(_off(settings, seen, by_role, notes))
    return Report(datetime.now(UTC), settings.lake, queries, held, by_role, notes, off)


def _judge(query: QueryReport, upstream: Sequence[QueryReport]) -> None:
    """Say whether a query is current, and else since when what it and those above it have not read has waited.

    A wait that is unknown is no short one: with it that of all behind it is unknown.
    """
    has_all = query.is_caught_up and not query.held_back
    query.is_current = has_all and all(above.is_current for above in upstream)
    left = [above.waiting_since for above in upstream if not above.is_current]
    left += [] if has_all else [query.waiting_since]
    known = [since for since in left if since is not None]
    query.waiting_since = min(known, default=None) if len(known) == len(left) else None
    if query.is_current:
        query.freshness_seconds = 0.0
    elif query.waiting_since is not None:
        waited = datetime.now(UTC) - datetime.fromisoformat(query.waiting_since)
        query.freshness_seconds = max(0.0, waited.total_seconds())  # a producer's clock may be ahead of ours


def _off(
    settings: Settings, on: Mapping[str, QueryReport], by_role: dict[str, topics.Topic], notes: list[str]
) -> Iterator[QueryReport]:
    """Yield what is known of streams that are off and have run before: how far behind what they wrote is."""
    try:
        idle = switched_off.idle(settings)
    except (OSError, ActivityError) as error:
        notes.append(f"whether streams that are off have run before is unknown: {unforeseen.brief(error)}")
        return
    notes.extend(f"{each.what}: {switched_off.remedy([each])}" for each in idle)
    off, seen = topology.off(), dict(on)
    for each in idle:
        query = seen[each.spec.name] = _query(settings, each.spec, by_role, notes)
        query.state, query.message = switched_off.OFF, each.what
        if query.waiting_since is None and not query.is_caught_up:
            query.waiting_since = _iso(each.at)  # logs are not kept for one that is off
        above = [before.name for before in topology.upstream(each.spec, also=off)]
        _judge(query, [seen.get(name) or QueryReport(name, switched_off.OFF) for name in above])
        yield query


def _show_drivers_elsewhere(settings: Settings, queries: Sequence[QueryReport], notes: list[str]) -> None:
    """Show streams as running that have no status file here and whose lease is held: by a driver elsewhere.

    A lease counts for some seconds longer than a driver that was killed, and on a lake that is a folder than one that
    was stopped: there its own file knows better.
    """
    is_exact = "://" in settings.lake
    absent = [query for query in queries if query.state in ("not started", "stopped")]
    silent = {query.query: query for query in absent if is_exact or query.pid is None}
    try:
        at_work = lease.at_work(settings.lake, silent) if silent else set()
    except (OSError, ActivityError) as error:
        notes.append(f"whether another driver runs is unknown: {unforeseen.brief(error)}")
        return
    for name in at_work:
        silent[name].state, silent[name].message = "running", "by a driver, or a command, whose status is not here"


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


def _contents(settings: Settings, table: Table, notes: list[str], kept: tables.Kept | None) -> tables.Contents | None:
    try:
        return tables.contents(settings.lake, table, kept)
    except (DeltaError, OSError) as error:
        notes.append(f"{table.label} cannot be read: {unforeseen.brief(error)}")
        return None


def _query(
    settings: Settings,
    spec: Spec,
    by_role: dict[str, topics.Topic],
    notes: list[str],
    kept: tables.Kept | None = None,
) -> QueryReport:
    """Put together what is known of one query alone; a lag that cannot be known is left out."""
    found = query_status.read(settings, spec.name)
    try:
        progress = _progress(settings, found)
    except (CheckpointMismatch, StorageUnavailable, OSError) as error:
        notes.append(f"{spec.name}: its lag is unknown: {unforeseen.brief(error)}")
        return found
    if progress is not None and found.batch is None:
        found.state = "stopped" if found.state == "not started" else found.state
        found.batch = {"id": progress.batch_id, "at": _iso(progress.noted_at)}
    try:
        if spec.topics:
            _measure_topics(settings, spec, found, progress, by_role, notes)
        else:
            _measure_tables(settings, spec, found, progress, kept)
    except (DeltaError, OSError, ValueError) as error:  # ValueError: a torn log entry
        found.lag, found.lag_records, found.lag_versions, found.unread_since = {}, None, None, None
        notes.append(f"{spec.name}: its lag is unknown: {unforeseen.brief(error)}")
    return found


def _progress(settings: Settings, query: QueryReport) -> checkpoint.Progress | None:
    """Return up to where a query has read: with the batch that its driver says is done, or else with Spark's last.

    A query waits for its next turn inside the batch, behind the hot path for up to half a minute, and Spark notes the
    batch's end after that.
    """
    done = query.batch["id"] if query.batch is not None and query.state in ("running", HELD) else None
    return checkpoint.progress(settings.lake, query.query, done)


def _measure_topics(
    settings: Settings,
    spec: Spec,
    found: QueryReport,
    progress: checkpoint.Progress | None,
    by_role: dict[str, topics.Topic],
    notes: list[str],
) -> None:
    """Say how many records have not landed, and since when the oldest has waited."""
    read = progress.topic_offsets if progress else {}
    inputs = [by_role[role] for role in spec.topics if role in by_role]
    found.lag = {topic.name: topic.behind(read.get(topic.name, {})) for topic in inputs}
    found.lag_records = sum(found.lag.values()) if len(inputs) == len(spec.topics) else None
    unread = {topic.name: places for topic in inputs if (places := topic.unread(read.get(topic.name, {})))}
    found.waiting_since = _iso(topics.oldest(settings, unread)) if unread else None
    if unread and found.waiting_since is None:
        notes.append(f"how long records of {', '.join(unread)} have waited is unknown: Kafka handed none out")
    _measure_held_back(settings, found, inputs, notes)
    # One that is at work finds out itself, and may have read on since the topics were asked.
    for topic in inputs if found.state not in ("running", HELD) else ():
        if topic.is_shorter(read.get(topic.name, {})) and _is_still_shorter(settings, topic.name, read[topic.name]):
            found.lag_records = None
            notes.append(f"topic {topic.name} ends before what {spec.name} has read of it: recreated, or truncated")


def _measure_held_back(
    settings: Settings, found: QueryReport, inputs: Sequence[topics.Topic], notes: list[str]
) -> None:
    """Say what lies behind a transaction that does not end: Kafka hands nothing of it out, and no lag tells of it."""
    for topic in inputs:
        places = topic.held_back()
        since = topics.oldest(settings, {topic.name: places}, held_back=True) if places else None
        if since is None or (datetime.now(UTC) - since).total_seconds() < OPEN_SECONDS:
            continue
        offsets = sum(topic.ends[partition] - first for partition, first in places.items())
        found.held_back += offsets
        found.waiting_since = min(filter(None, (found.waiting_since, _iso(since))))
        notes.append(
            f"{offsets:,} offsets of topic {topic.name} are behind a transaction that has been open since "
            f"{_iso(since)}: its producer has to end it, or an administrator (`kafka-transactions.sh abort`)"
        )


def _is_still_shorter(settings: Settings, name: str, read: Mapping[int, int]) -> bool:
    """Whether a topic that is asked now ends before what was read: a driver elsewhere may have read on meanwhile."""
    try:
        found = topics.topics(settings, [name]).get(name)
    except BrokerUnavailable:
        return False
    return found is not None and found.is_shorter(read)


def _measure_tables(
    settings: Settings,
    spec: Spec,
    found: QueryReport,
    progress: checkpoint.Progress | None,
    kept: tables.Kept | None,
) -> None:
    """Say how many commits were not read, and since when the oldest is there; nothing of a table that is not."""
    versions = progress.table_versions if progress else {}
    for table in spec.sources:
        if (position := tables.position(settings.lake, table, kept)) is None:
            continue
        read = versions.get(position.table_id, -1)
        found.lag[table.label] = max(0, position.version - read)
        waiting = tables.waiting(settings.lake, table, read + 1) if position.version > read else None
        if waiting is not None:
            found.unread_since = min(filter(None, (found.unread_since, _iso(waiting.committed_at))))
            found.waiting_since = min(filter(None, (found.waiting_since, _iso(waiting.input_at))))
    found.lag_versions = sum(found.lag.values()) if found.lag else None


def _iso(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds") if moment else None
