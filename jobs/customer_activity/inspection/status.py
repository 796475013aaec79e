"""`activity status`: what each stream is doing, how far it is behind, and what the tables and topics hold.

Everything is read from outside: status files, checkpoints, Delta logs, topic offsets. So it is right even when the
driver was killed, and never disturbs it. Each stream's lag is measured after that of the stream before it: when all are
zero, everything that was on the topics at the beginning has been processed.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import psutil
from deltalake.exceptions import DeltaError

from customer_activity import topology, unforeseen
from customer_activity.catalog import PROFILES_ROLE, PURCHASES_ROLE, VIEW_ROLE, Table
from customer_activity.checkpoints import checkpoint
from customer_activity.engine import gate
from customer_activity.engine.observability import HELD
from customer_activity.errors import ActivityError, BrokerUnavailable, CheckpointMismatch
from customer_activity.inspection import switched_off, tables, topics
from customer_activity.lake import corrections
from customer_activity.settings import Settings
from customer_activity.topology import Spec

INPUTS = (PURCHASES_ROLE, PROFILES_ROLE)
SILENT_SECONDS = 10.0  # a running application writes its status files at least every second


@dataclass
class QueryReport:
    """What is known of one stream, which its own files call a query."""

    query: str
    # Running, starting, held (by quality), stopped, failed; dead (its process is gone), silent (no sign for 10 s), not
    # started; off, though it has run before (of `Report.off`).
    state: str
    message: str = ""  # why it failed, or what its state means
    pid: int | None = None  # the driver's process
    # Its last batch: id, rows, seconds, at, and placement (where it was worked on, and why). Of a query that left no
    # status, only id and at.
    batch: dict[str, Any] | None = None
    progress_at: str | None = None  # when the batch at work last told how far it is, UTC; `message` has the words
    idle_at: str | None = None  # when it last found nothing to read, UTC
    rows_per_second: float | None = None  # of the last batch
    rows_total: int | None = None  # rows since its driver started
    # Milliseconds by phase of the last batch: read, compute, write, commit, publish; `turn` is what it waited for the
    # next one's turn, `spark` what the trigger took around it (offsets, planning, checkpoint).
    phases: dict[str, float] = field(default_factory=dict)
    lag_records: int | None = None  # Kafka records not yet landed (bronze); None when unknown
    lag_versions: int | None = None  # commits of upstream tables not yet read (the others); None when unknown
    lag: dict[str, int] = field(default_factory=dict)  # the same by topic or table
    unread_since: str | None = None  # when the oldest of those commits was made, UTC; None when unknown
    is_current: bool = False  # whether it and every query before it have read everything
    # How much newer the newest input is than what this layer reflects; 0 when it is current.
    freshness_seconds: float | None = None

    @property
    def is_caught_up(self) -> bool:
        """Whether nothing is left for it to read."""
        return 0 in (self.lag_records, self.lag_versions)


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
        progress = _progress(settings, spec.name, notes)
        queries.append(_query(settings, spec, progress, by_role))
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
        query = _query(settings, each.spec, _progress(settings, each.spec.name, notes), by_role)
        query.state, query.message = switched_off.OFF, each.what
        above = [known.get(before.name, False) for before in topology.upstream(each.spec, also=off)]
        query.is_current = known[each.spec.name] = query.is_caught_up and all(above)
        reflected = {role: table[each.spec.name] for role, table in shows.items() if each.spec.name in table}
        held = {table: _contents(settings, table, notes) for table in set(reflected.values())}
        newest = {role: here.newest for role, table in reflected.items() if (here := held[table]) is not None}
        query.freshness_seconds = 0.0 if query.is_current else _behind(newest, by_role)
        yield query


def states(settings: Settings) -> list[QueryReport]:
    """Return what the status files say and whether their processes still run, and nothing else."""
    return [_state(settings, query, None) for query in topology.names()]


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


def _progress(settings: Settings, query: str, notes: list[str]) -> checkpoint.Progress | None:
    try:
        return checkpoint.progress(settings.lake, query)
    except (CheckpointMismatch, OSError) as error:
        notes.append(str(error).splitlines()[0])
        return None


def _query(
    settings: Settings, spec: Spec, progress: checkpoint.Progress | None, by_role: dict[str, topics.Topic]
) -> QueryReport:
    """Put together what is known of one query; freshness comes later."""
    found = _state(settings, spec.name, progress)
    if spec.topics:
        offsets = progress.topic_offsets if progress else {}
        inputs = [by_role[role] for role in spec.topics if role in by_role]
        found.lag = {topic.name: topic.behind(offsets.get(topic.name, {})) for topic in inputs}
        found.lag_records = sum(found.lag.values()) if inputs else None
        return found
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
    return found


def _published(settings: Settings, spec: Spec, progress: checkpoint.Progress) -> datetime | None:
    """Return how new the input is that the published version of gold reflects."""
    (source,) = spec.sources
    with suppress(DeltaError, OSError):  # the log no longer reaches back to that version
        return tables.newest_at(settings.lake, source, progress.table_versions)
    return None


def _state(settings: Settings, query: str, progress: checkpoint.Progress | None) -> QueryReport:
    """Read a query's status file and judge whether its process still stands behind it."""
    committed = {"id": progress.batch_id, "at": _iso(progress.committed_at)} if progress else None
    path = settings.run_dir / "status" / f"{query}.json"
    try:
        status = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return QueryReport(query, "stopped" if progress else "not started", batch=committed)
    except (OSError, ValueError) as error:
        return QueryReport(query, "unknown", f"{path} cannot be read ({type(error).__name__})", batch=committed)
    state, message = status["state"], status["message"]
    age = (datetime.now(UTC) - datetime.fromisoformat(status["updated_at"])).total_seconds()
    is_at_work = state in ("starting", "running", HELD)
    is_here = status.get("host", socket.gethostname()) == socket.gethostname()  # another container has other processes
    if is_at_work and is_here and not is_alive(status["pid"]):
        state, message = "dead", f"its process {status['pid']} ended and left no message"
    elif is_at_work and age > SILENT_SECONDS:
        state, message = "silent", f"process {status['pid']} has written no status for {age:.0f} s"
    last = {
        "id": status["batch_id"],
        "rows": status["batch_rows"],
        "seconds": status["batch_seconds"],
        "at": status["last_batch_at"],
        "placement": status.get("placement", ""),
    }
    return QueryReport(
        query,
        state,
        message or status.get("progress", ""),
        pid=status["pid"],
        batch=last if status["batch_id"] is not None else committed,
        progress_at=status.get("progress_at"),
        idle_at=status.get("idle_at"),
        rows_per_second=status["rows_per_second"],
        rows_total=status["rows_total"],
        phases=_phases(status),
    )


def _phases(status: dict[str, Any]) -> dict[str, float]:
    """Return the last batch's phases, and what its trigger spent beside them."""
    phases = {name: float(millis) for name, millis in status.get("phases", {}).items()}
    spark = status.get("spark_phases", {})
    if phases and {"triggerExecution", "addBatch"} <= spark.keys():
        phases["spark"] = float(spark["triggerExecution"] - spark["addBatch"])
    return phases


def is_alive(pid: int) -> bool:
    """Whether a process of this machine runs."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


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
