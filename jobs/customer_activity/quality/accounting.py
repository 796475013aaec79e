"""What the batches counted while they ran, added up from their commits' metadata: no table is scanned for it.

A batch writes several commits, each with the counts known by then, and counts only grow: of each the greatest is the
batch's, but for batches that landed in two attempts, between which Kafka compacted the topic (`_landings`). Commits
that a log has no longer are in the lake's `_history`. A correction tells the counts of all that it found, so what was
told before it does not count.

A lake has millions of commits, so of each no more is kept than its batch and its counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain
from operator import or_
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

from customer_activity import topology
from customer_activity.catalog import REPLAY, Table, table_path
from customer_activity.lake import history
from customer_activity.lake.microbatch import (
    ACCEPTED,
    COUNTED,
    DUPLICATE,
    QUARANTINED,
    READ,
    REMOVED,
    REPLAYED,
    STALE,
    metadata_of,
)
from customer_activity.quality.pins import Pins
from customer_activity.quality.snapshot import Relations
from customer_activity.settings import Settings

TABLES = (Table.PURCHASE_EVENTS, Table.PROFILE_EVENTS, Table.QUARANTINE, Table.PURCHASES, Table.PROFILE_CHANGES)

LANDING = (Table.PURCHASE_EVENTS, Table.PROFILE_EVENTS, Table.QUARANTINE)

BatchKey = tuple[str, str, int, int]
Counts = Mapping[tuple[str, str], int]  # by topic and outcome
Batches = Mapping[BatchKey, Counts]
OUTCOMES = (READ, ACCEPTED, QUARANTINED, DUPLICATE, STALE)
TOPICS_SCHEMA = pa.schema([("topic", pa.string()), *((outcome, pa.int64()) for outcome in OUTCOMES)])
ROWS_SCHEMA = pa.schema([("table", pa.string()), ("told", pa.int64())])


class Told(NamedTuple):
    """What the commits of a table tell."""

    is_whole: bool  # whether log and history go back to the first, or to the newest correction
    batches: Batches  # the counts of each batch, as its commits to this table have them
    versions: Mapping[BatchKey, int]  # the version of its first commit


class Commit(NamedTuple):
    """What is kept of a commit.

    Attributes:
        batch: whose it is; None where it is no batch's.
        counts: what the batch had counted by then, or all batches where it is a correction.
        is_known: of a correction, whether it tells the counts of all batches; None of another commit.
    """

    batch: BatchKey | None
    counts: Counts
    is_known: bool | None


def relations(settings: Settings, pins: Pins) -> Relations:
    """Return `accounting.topics` and `accounting.rows`; without rows where the commits are not all there any more."""
    payments = [table for table in (Table.PAYMENT_EVENTS,) if table in pins.tables]
    told = {table: _told(settings.lake, table, pins.tables[table]) for table in (*TABLES, *payments)}
    if not all(found.is_whole for found in told.values()):
        return {"accounting.topics": TOPICS_SCHEMA.empty_table(), "accounting.rows": ROWS_SCHEMA.empty_table()}
    sides = (
        (settings.purchase_topic, Table.PURCHASE_EVENTS, Table.PURCHASES),
        (settings.profile_topic, Table.PROFILE_EVENTS, Table.PROFILE_CHANGES),
    )
    topics = [
        {"topic": topic} | _through(topic, told, landed, judged, _seen(pins, judged)) for topic, landed, judged in sides
    ]
    rows = [
        {"table": table.label, "told": _sum(told[table], topic, ACCEPTED) + _sum(told[table], topic, REPLAYED)}
        for topic, table in (
            (settings.purchase_topic, Table.PURCHASE_EVENTS),
            (settings.profile_topic, Table.PROFILE_EVENTS),
            (settings.purchase_topic, Table.PURCHASES),
        )
    ]
    for table in payments:
        topic = settings.payment_topic
        topics.append({"topic": topic} | _of_landed(topic, told, table))
        rows.append({"table": table.label, "told": topics[-1][ACCEPTED]})
    held = told[Table.QUARANTINE]
    inputs = (settings.purchase_topic, settings.profile_topic, settings.payment_topic)
    refused = sum(_sum(held, topic, QUARANTINED) - _sum(held, topic, REMOVED) for topic in inputs)
    rows.append({"table": Table.QUARANTINE.label, "told": refused})
    return {
        "accounting.topics": pa.Table.from_pylist(topics, TOPICS_SCHEMA),
        "accounting.rows": pa.Table.from_pylist(rows, ROWS_SCHEMA),
    }


def _seen(pins: Pins, made: Table) -> int:
    """Return up to which version a table of judged records had read the landed ones, which are its one source."""
    return next(version for seen, version in pins.seen.items() if seen.made is made)


def _through(topic: str, told: Mapping[Table, Told], landed: Table, judged: Table, seen: int) -> dict[str, int]:
    """Return what the landing batches read that silver has seen, and what became of it."""
    total: Counter[str] = Counter()
    for batch, counts in _landings(topic, told, landed, LANDING):
        version = told[landed].versions.get(batch)
        # One that accepts records of the topic has a commit to its table, sooner or later.
        is_seen = not counts[ACCEPTED] if version is None else version <= seen
        if batch[0] == topology.landing().name and is_seen:
            total[READ] += counts[READ]
            total[QUARANTINED] += counts[QUARANTINED]
        elif batch[0] == REPLAY and version is not None and version <= seen:
            total[QUARANTINED] -= counts[REPLAYED]
    for batch, of_batch in told[judged].batches.items():
        if batch[0] in topology.writers(judged):
            for outcome in (ACCEPTED, QUARANTINED, DUPLICATE, STALE):
                total[outcome] += of_batch.get((topic, outcome), 0)
    return {outcome: total[outcome] for outcome in OUTCOMES}


def _of_landed(topic: str, told: Mapping[Table, Told], landed: Table) -> dict[str, int]:
    """Return what the batches read of a topic whose records nobody judges once they have landed."""
    total: Counter[str] = Counter()
    for batch, counts in _landings(topic, told, landed, (landed, Table.QUARANTINE)):
        if batch[0] == REPLAY:
            total[ACCEPTED] += counts[REPLAYED]
            total[QUARANTINED] -= counts[REPLAYED]
        else:
            for outcome in (READ, ACCEPTED, QUARANTINED):
                total[outcome] += counts[outcome]
    return {outcome: total[outcome] for outcome in OUTCOMES}


def _landings(
    topic: str, told: Mapping[Table, Told], landed: Table, tables: Sequence[Table]
) -> Iterator[tuple[BatchKey, Counter[str]]]:
    """Put together what each batch told of a topic with its commits to several tables.

    A batch that a crash cut in two reads fewer records when it is repeated, where Kafka has compacted the topic
    meanwhile. Its commits then tell of two attempts: each table has what its own commit tells, or nothing without one,
    and together that is what was read.
    """
    for number, table in enumerate(tables):
        for batch in told[table].batches:
            if any(batch in told[earlier].batches for earlier in tables[:number]):
                continue
            attempts = {
                each: _of(topic, told[each].batches[batch]) for each in tables[number:] if batch in told[each].batches
            }
            counts = reduce(or_, attempts.values())
            if len({of[READ] for of in attempts.values()}) > 1:
                for own, outcome in ((landed, ACCEPTED), (Table.QUARANTINE, QUARANTINED)):
                    counts[outcome] = attempts[own][outcome] if own in attempts else 0
                counts[READ] = counts[ACCEPTED] + counts[QUARANTINED]
            yield batch, counts


def _of(topic: str, counts: Counts) -> Counter[str]:
    return Counter({outcome: count for (of_topic, outcome), count in counts.items() if of_topic == topic})


def _sum(told: Told, topic: str, outcome: str) -> int:
    return sum(counts.get((topic, outcome), 0) for counts in told.batches.values())


def _told(lake: str, name: Table, table: DeltaTable) -> Told:
    """Read what a table's commits tell, up to its pinned version."""
    commits = _commits(lake, name, table.version())
    first = max((version for version, commit in commits.items() if commit.is_known is not None), default=0)
    is_known = first not in commits or commits[first].is_known is not False
    is_whole = is_known and all(version in commits for version in range(first, table.version() + 1))
    batches: dict[BatchKey, Counts] = {}
    versions: dict[BatchKey, int] = {}
    for version in sorted(version for version in commits if version >= first):
        batch, counts, _ = commits[version]
        if batch is None:
            continue
        versions.setdefault(batch, version)
        batches[batch] = Counter(batches[batch]) | Counter(counts) if batch in batches else counts
    return Told(is_whole, batches, versions)


def _commits(lake: str, name: Table, newest: int) -> dict[int, Commit]:
    """Return what is kept of a table's commits, up to a version, by version."""
    commits: dict[int, Commit] = {}
    names: dict[tuple[str, str], tuple[str, str]] = {}  # each once: the same words are in all commits
    # The log first: what leaves it meanwhile is in the history by then.
    for said in chain(history.log_entries(lake, name, newest), history.archived_entries(lake, name)):
        if said["version"] > newest:
            continue
        note = metadata_of(said.get("userMetadata"))
        batch: BatchKey | None = None
        if "batch_id" in note:
            writer = (str(note["query"]), str(note.get("generation")))
            # What reads change feeds works in parts, which count by themselves.
            batch = (*names.setdefault(writer, writer), int(note["batch_id"]), int(note.get("upto", 0)))
        by_topic: Mapping[str, Mapping[str, int]] = note[COUNTED] or {} if COUNTED in note else note.get("counts", {})
        counts = {
            names.setdefault((topic, outcome), (topic, outcome)): count
            for topic, outcomes in by_topic.items()
            for outcome, count in outcomes.items()
            if count
        }
        commits[said["version"]] = Commit(batch, counts, note[COUNTED] is not None if COUNTED in note else None)
    return commits


def counted(lake: str, table: Table) -> dict[str, dict[str, int]] | None:
    """Return what all batches of a table of judged records have counted, by topic and outcome; None: not known."""
    total: dict[str, Counter[str]] = defaultdict(Counter)
    told = _told(lake, table, DeltaTable(table_path(lake, table)))
    if not told.is_whole:
        return None
    for counts in told.batches.values():
        for (topic, outcome), count in counts.items():
            total[topic][outcome] += count
    return {topic: dict(counts) for topic, counts in total.items()}
