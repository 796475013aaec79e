"""The report's figures: a function of the lake, whose newest commit is its end."""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, NamedTuple

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.inspection.tables import TIME_COLUMN
from customer_activity.lake import delta, deltalog
from customer_activity.lake.named_operations import Kind, classify
from customer_activity.quality import runs as judged
from customer_activity.quality.runs import Result
from customer_activity.report import commits, growth
from customer_activity.report.commits import MILLIS_AN_HOUR, Commit
from customer_activity.report.growth import Growth
from customer_activity.settings import Settings

BUCKETS = 48
GOOD, READ, REFUSED = "good", "read", "quarantined"  # as bronze's commits count
MATCH_RATE = "purchases_with_a_profile"  # the rule that observes it


class Point(NamedTuple):
    """A value of a series, at a moment in milliseconds."""

    at: int
    value: float


class Series(NamedTuple):
    """Values over time, in their order; the name is for the reader."""

    name: str
    points: Sequence[Point]


class Figures(NamedTuple):
    """What the page shows. Moments are milliseconds since 1970.

    Attributes:
        pipeline, lake: whose.
        begin, end: the span; its end is the newest commit's.
        notes: what could not be read, or not so far back.
        freshness: of gold's current rows: seconds from the newest input in a merge to its commit, by bucket.
        throughput: records per second that landed, by topic and bucket.
        match_rate: share of purchases with a profile, by quality run.
        refused: records in quarantine by reason that landed in the span, the most frequent first.
        landed: records that landed in the span.
        runs: quality's results by run, the newest last.
        tables: sizes, and how they grow.
    """

    pipeline: str
    lake: str
    begin: int
    end: int
    notes: Sequence[str]
    freshness: Sequence[Series]
    throughput: Sequence[Series]
    match_rate: Series
    refused: Mapping[str, int]
    landed: int
    runs: Sequence[Sequence[Result]]
    tables: Sequence[Growth]


def collect(settings: Settings, hours: float) -> Figures:
    """Read the figures of some hours up to the newest commit.

    Raises:
        SettingsError: there is no lake.
    """
    lake, landing = settings.lake, topology.landing()
    written = topology.tables()
    delta.require_tables(lake)
    ends = [at for table in written if (at := commits.newest_at(lake, table)) is not None]
    end = max(ends)
    wanted = end - round(hours * MILLIS_AN_HOUR)
    read = {table: commits.since(lake, table, wanted) for table in landing.telling}
    firsts = {table: found.commits[-1].at for table, found in read.items() if found.commits}
    cut = [firsts[table] for table, found in read.items() if found.is_cut]
    begin = max(cut) if cut else min(firsts.values(), default=wanted)
    notes = [
        f"{table.label}: its newest {commits.MOST_COMMITS:,} commits were read, back to {said(firsts[table])}"
        for table, found in read.items()
        if found.is_cut
    ]
    counts = [batch for batch in _batches(landing.name, read.values()) if batch.at >= begin]
    followed = sorted(filter(_is_followed, written), key=growth.is_appended)
    freshness = [_freshness(lake, table, begin, end) for table in followed]
    results = judged.since(lake, begin)
    match_rate = [
        Point(result.at, result.observed)
        for result in results
        if result.rule == MATCH_RATE and result.observed is not None
    ]
    return Figures(
        pipeline=settings.pipeline,
        lake=lake,
        begin=begin,
        end=end,
        notes=notes,
        freshness=[series for series in freshness if series.points],
        throughput=_throughput(counts, begin, end),
        match_rate=Series("purchases with a profile", match_rate),
        refused=dict(_refused(counts).most_common()),
        landed=sum(outcomes.get(READ, 0) for batch in counts for outcomes in batch.counts.values()),
        runs=judged.by_run(results),
        tables=[found for table in written if (found := growth.of(lake, table, begin)) is not None],
    )


def as_data(figures: Figures) -> dict[str, Any]:
    """Return the figures as plain names and values."""
    plain = figures._asdict()
    for name in ("freshness", "throughput"):
        plain[name] = {series.name: [list(point) for point in series.points] for series in plain[name]}
    plain["match_rate"] = [list(point) for point in figures.match_rate.points]
    plain["runs"] = [[result._asdict() for result in run] for run in figures.runs]
    plain["tables"] = [table._asdict() for table in figures.tables]
    return plain


def said(at: float) -> str:
    """Say a moment in words, UTC."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


@dataclass
class _Batch:
    """What a batch counted. Its commits all tell it, as far as it was known by then: counts only grow."""

    at: int = 0
    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    by_reason: Counter[str] = field(default_factory=Counter)

    def take(self, commit: Commit) -> None:
        """Take in what one of its commits tells."""
        self.at = max(self.at, commit.at)
        self.by_reason |= Counter(commit.note.get("by_reason", {}))
        for topic, outcomes in commit.note.get("counts", {}).items():
            self.counts[topic] |= Counter(outcomes)


def _batches(query: str, read: Iterable[commits.Read]) -> list[_Batch]:
    """Return what each batch of a stream counted, in their order."""
    found: dict[tuple[Any, ...], _Batch] = defaultdict(_Batch)
    for commit in (commit for of_table in read for commit in of_table.commits):
        note = commit.note
        if note.get("query") == query:
            found[note.get("generation"), note.get("batch_id"), note.get("upto")].take(commit)
    return sorted(found.values(), key=attrgetter("at"))


def _refused(batches: Iterable[_Batch]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for batch in batches:
        counted.update({reason: count for reason, count in batch.by_reason.items() if reason != GOOD})
    return counted


def _throughput(batches: Sequence[_Batch], begin: int, end: int) -> list[Series]:
    """Return records per second by topic: what landed in each bucket over its length; nothing is a zero."""
    width = bucket_width(begin, end)
    landed: dict[str, Counter[int]] = defaultdict(Counter)
    for batch in batches:
        for topic, outcomes in batch.counts.items():
            landed[topic][_bucket(batch.at, begin, width)] += outcomes.get(READ, 0)
    return [
        Series(topic, [Point(begin + round((n + 0.5) * width), 1000 * of_topic[n] / width) for n in range(BUCKETS)])
        for topic, of_topic in sorted(landed.items())
    ]


def _freshness(lake: str, table: Table, begin: int, end: int) -> Series:
    """Return by bucket the median of what merges were behind their newest input."""
    behind = [
        (at, (at - newest) / 1000)
        for at, entry in commits.sampled(lake, table, begin)
        # What a correction or a rebuild writes is old, and nothing was late.
        if classify(entry.actions).kind is not Kind.OPERATION
        and (newest := _newest_input(entry, TIME_COLUMN[table])) is not None
    ]
    return Series(table.label, _by_bucket(behind, begin, end, statistics.median))


def _newest_input(entry: deltalog.Entry, column: str) -> int | None:
    """Return the newest input that a commit's files reflect, by their statistics; None where it changed no row."""
    found = [
        moment
        for action in entry.actions
        if (add := action.get("add")) and add.get("dataChange")
        if (moment := json.loads(add.get("stats") or "{}").get("maxValues", {}).get(column)) is not None
    ]
    return round(max(datetime.fromisoformat(moment) for moment in found).timestamp() * 1000) if found else None


def _by_bucket(
    values: Sequence[tuple[int, float]], begin: int, end: int, of: Callable[[Sequence[float]], float]
) -> list[Point]:
    width, buckets = bucket_width(begin, end), defaultdict[int, list[float]](list)
    for at, value in values:
        buckets[_bucket(at, begin, width)].append(value)
    return [Point(begin + round((n + 0.5) * width), round(of(buckets[n]), 3)) for n in sorted(buckets)]


def bucket_width(begin: int, end: int) -> float:
    """Return the milliseconds that a point of freshness and of throughput stands for."""
    return max(end - begin, 1) / BUCKETS


def _bucket(at: int, begin: int, width: float) -> int:
    return min(max(int((at - begin) / width), 0), BUCKETS - 1)


def _is_followed(table: Table) -> bool:
    """Whether a table of gold tells which input its rows reflect."""
    return table.value.startswith("gold/") and TIME_COLUMN.get(table) == "as_of"
