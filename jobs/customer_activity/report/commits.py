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
MILLIS_AN_HOUR = 3_600_000


class Commit(NamedTuple):
    """A commit: when it was made, in milliseconds, and what it noted."""

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
    said: Mapping[str, Any] = (
        next((action["commitInfo"] for action in entry.actions if "commitInfo" in action), {}) if entry else {}
    )
    return int(said["timestamp"]) if "timestamp" in said else None


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
        found.append(Commit(said["version"], int(said["timestamp"]), metadata_of(said.get("userMetadata"))))
    return Read(found, is_cut=False)


def entries(lake: str, table: Table, commits: Sequence[Commit]) -> list[tuple[Commit, deltalog.Entry]]:
    """Return whole log entries of some commits, evenly chosen where there are many, as far as the log has them."""
    step = max(1, -(-len(commits) // MOST_ENTRIES))
    chosen = commits[::step]
    with ThreadPoolExecutor(READERS, thread_name_prefix="report") as pool:
        found = pool.map(partial(deltalog.entry, lake, table), (commit.version for commit in chosen))
        return [(commit, entry) for commit, entry in zip(chosen, found, strict=True) if entry is not None]
