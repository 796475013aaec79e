"""What commits tell over a span of time, read from the newest one back and no further than a bound."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from customer_activity.catalog import Table
from customer_activity.lake import deltalog, history
from customer_activity.lake.microbatch import metadata_of

MOST_COMMITS = 20_000  # of a table: some seconds' reading; half a day at one in two seconds
MOST_ENTRIES = 480  # of a log, whole ones with their files' statistics: as many as a chart can show
READERS = 32
TOLD = ("query", "generation", "batch_id", "upto", "counts", "by_reason")  # of a commit's note; the rest is long
MILLIS_AN_HOUR = 3_600_000


class Commit(NamedTuple):
    """A commit: when it was made, in milliseconds, and what it noted of TOLD."""

    version: int
    at: int
    note: dict[str, Any]


class Read(NamedTuple):
    """Commits of a table, the newest first; `is_cut`: there are older ones in the span, which were not read."""

    commits: Sequence[Commit]
    is_cut: bool


def newest_version(lake: str, table: Table) -> int:
    """Return a table's newest version; -1 where there is no such table."""
    try:
        return deltalog.newest_version(lake, table)
    except FileNotFoundError:
        return -1


def at(lake: str, table: Table, version: int) -> int | None:
    """Return when a version was committed; None where the log does not have it."""
    entry = deltalog.entry(lake, table, version)
    return None if entry is None else committed_at(entry)


def first_since(lake: str, table: Table, versions: range, begin: int) -> int | None:
    """Return the first of some versions, whose entries the log has, that was committed since a moment; None: none."""
    number = bisect_left(versions, begin, key=lambda version: at(lake, table, version) or 0)
    return versions[number] if number < len(versions) else None


def newest_at(lake: str, table: Table) -> int | None:
    """Return when a table's newest commit was made; None where there is none."""
    version = newest_version(lake, table)
    said = next(history.backwards(lake, table, version), None) if version >= 0 else None
    return None if said is None else int(said.get("timestamp", 0))


def since(lake: str, table: Table, begin: int) -> Read:
    """Read the commits that were made since a moment, and no more than MOST_COMMITS of the newest ones."""
    found: list[Commit] = []
    for said in history.backwards(lake, table, newest_version(lake, table)):
        if int(said.get("timestamp", 0)) < begin:
            return Read(found, is_cut=False)
        if len(found) >= MOST_COMMITS:
            return Read(found, is_cut=True)
        note = metadata_of(said.get("userMetadata"))
        told = {name: note[name] for name in TOLD if name in note}
        found.append(Commit(said["version"], int(said["timestamp"]), told))
    return Read(found, is_cut=False)


def sampled(lake: str, table: Table, begin: int) -> list[tuple[int, deltalog.Entry]]:
    """Return entries since a moment that the log has, with when they were committed; of many some, evenly chosen."""
    newest = newest_version(lake, table)
    oldest = deltalog.first_whole_version(lake, table) if newest >= 0 else None
    first = None if oldest is None else first_since(lake, table, range(oldest, newest + 1), begin)
    if first is None:
        return []
    step = max(1, -(-(newest + 1 - first) // MOST_ENTRIES))
    with ThreadPoolExecutor(READERS, thread_name_prefix="report") as pool:
        found = list(pool.map(partial(deltalog.entry, lake, table), range(newest, first - 1, -step)))
    return [(moment, entry) for entry in found if entry and (moment := committed_at(entry)) is not None]


def committed_at(entry: deltalog.Entry) -> int | None:
    """Return when a commit was made, as its entry tells; None where it does not."""
    said: Mapping[str, Any] = next((action["commitInfo"] for action in entry.actions if "commitInfo" in action), {})
    return int(said["timestamp"]) if "timestamp" in said else None
