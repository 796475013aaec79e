"""The pipeline as the portal shows it: what `activity status` reports, drawn as topics, streams and tables.

The figures are the report's; only rates are added, from two reports some seconds apart. It is made while somebody
looks, and once for all who do.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.inspection import status
from customer_activity.inspection.query_status import QueryReport
from customer_activity.inspection.status import Report
from customer_activity.settings import Settings
from customer_activity.topology import End, Spec, Topic

LOOK_SECONDS = 2.0  # between two reports: each reads the log of every table
RATE_SECONDS = 10.0  # over which rates are taken

Counts = dict[str, int]


class Pipeline:
    """Reports of one deployment."""

    def __init__(self, settings: Settings) -> None:
        """Take which deployment; nothing is read yet."""
        self.settings = settings
        self._lock = threading.Lock()
        self._looked_at = 0.0
        self._newest: dict[str, Any] = {}
        self._counts: deque[tuple[float, Counts]] = deque()

    def flow(self) -> dict[str, Any]:
        """Return the newest picture of the pipeline, which is made when it is older than a look.

        Raises:
            ActivityError: the lake does not answer.
        """
        with self._lock:
            if time.monotonic() - self._looked_at > LOOK_SECONDS:
                report = status.report(self.settings)
                self._looked_at = time.monotonic()
                self._newest = picture(self.settings, report, self._rates(counts(report)))
            return self._newest

    def _rates(self, now: Counts) -> dict[str, float]:
        """Return by how many a second each count has grown lately."""
        at = time.monotonic()
        self._counts.append((at, now))
        while len(self._counts) > 2 and at - self._counts[0][0] > RATE_SECONDS:  # noqa: PLR2004 - two make a rate
            self._counts.popleft()
        before_at, before = self._counts[0]
        seconds = at - before_at
        return {
            name: max(0, count - before[name]) / seconds for name, count in now.items() if name in before and seconds
        }


def counts(report: Report) -> Counts:
    """Return how many records or rows everything has had: of a topic the offsets at its end."""
    ends = {
        name_of(Topic(role)): sum(end for _, end in topic.offsets.values()) for role, topic in report.topics.items()
    }
    return ends | {name_of(held.table): held.rows for held in report.tables}


def picture(settings: Settings, report: Report, rates: dict[str, float]) -> dict[str, Any]:
    """Return topics and tables with how far from the input they are, and the streams between them."""
    depths = depths_of(topology.specs())
    held = {contents.table: contents for contents in report.tables}
    nodes = []
    for end, depth in depths.items():
        name = name_of(end)
        node: dict[str, Any] = {"id": name, "column": depth, "perSecond": rates.get(name)}
        if isinstance(end, Table):
            contents = held.get(end)
            node |= {
                "kind": "table",
                "label": end.label,
                "count": contents.rows if contents else 0,
                "bytes": contents.size_bytes if contents else 0,
                "newestEpochMillis": _millis(contents.newest if contents else None),
            }
        else:
            topic = report.topics.get(end.role)
            node |= {
                "kind": "topic",
                "label": settings.topics[end.role],
                "count": topic.records if topic else None,
                "newestEpochMillis": _millis(topic.newest if topic else None),
            }
        nodes.append(node)
    return {
        "atEpochMillis": _millis(report.at),
        "caughtUp": report.is_caught_up,
        "nodes": nodes,
        "streams": [_stream(spec, query) for spec, query in zip(topology.specs(), report.queries, strict=True)],
        "notes": report.notes,
    }


def depths_of(specs: tuple[Spec, ...]) -> dict[End, int]:
    """Return every source and target in the order of the streams, with how many streams it is away from the input."""
    depths: dict[End, int] = {}
    for spec in specs:
        for read in spec.reads:
            depths.setdefault(read.source, 0)
        depth = 1 + max(depths[read.source] for read in spec.reads)
        for write in spec.writes:
            if write.target not in _own_progress(spec):
                depths.setdefault(write.target, depth)  # of quarantine: the first stream that writes it
    return depths


def _stream(spec: Spec, query: QueryReport) -> dict[str, Any]:
    progress = _own_progress(spec)
    return {
        "name": spec.name,
        "state": query.state,
        "message": query.message,
        "reads": [name_of(read.source) for read in spec.reads],
        "writes": [name_of(write.target) for write in spec.writes if write.target not in progress],
        "isBehind": spec.is_behind,
        "promises": spec.promises,
        "lagRecords": query.lag_records,
        "lagCommits": query.lag_versions,
        "isCurrent": query.is_current,
        "freshnessSeconds": query.freshness_seconds,
        "rowsPerSecond": query.rows_per_second,
        "batchSeconds": (query.batch or {}).get("seconds"),
        "batchRows": (query.batch or {}).get("rows"),
        "batchAt": (query.batch or {}).get("at"),
    }


def _own_progress(spec: Spec) -> set[End]:
    """Return the topics that only tell how far a stream is."""
    return {read.progress for read in spec.reads if isinstance(read.progress, Topic)}


def name_of(end: End) -> str:
    """Return what a topic or a table is called in the picture."""
    return f"topic:{end.role}" if isinstance(end, Topic) else f"table:{end.label}"


def _millis(moment: Any) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)
