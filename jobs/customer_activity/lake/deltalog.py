"""Read entries of a Delta log: what a version's commit did, and the id that no other commit has.

A version number alone does not name a commit: a table that was restored from a backup grows past the old numbers with
other commits. So a place in a table is its id, the version, and the commit's own id.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import unquote

from pyarrow import fs

from customer_activity.catalog import Table, table_path
from customer_activity.lake.microbatch import metadata_of
from customer_activity.storage.filesystem import filesystem
from customer_activity.storage.filesystem import settle as bring_to_disk

COMMIT = "commit"  # in a commit's `userMetadata`: its own id
READ = "read"  # in a commit's `userMetadata`: up to where its batch has read, by table
LANDED = "landed"  # in a commit's note: the newest landing that its batch has read, by table of events
ENTRY = re.compile(r"\d{20}\.json")
CHECKPOINT = re.compile(r"\d{20}\.checkpoint\.")
DIGEST_BYTES = 16
READERS = 32  # entries that are asked for at once where each answer takes its time
ENTRIES_AT_A_TIME = 256


class Entry(NamedTuple):
    """One log entry."""

    version: int
    commit: str  # the commit's own id: the one that it carries, else a digest of the entry
    actions: Sequence[Mapping[str, Any]]


class Position(NamedTuple):
    """A place in a table's history. `commit` is empty where the entry was gone by the time that it was asked for."""

    table_id: str
    version: int
    commit: str


def newest_version(lake: str, table: Table) -> int:
    """Return a table's newest version from the names in its log: nothing of it is opened; -1 when there is none."""
    return max((int(name[:20]) for name in _names(lake, table) if ENTRY.fullmatch(name)), default=-1)


def is_newest(lake: str, table: Table, version: int) -> bool:
    """Whether a version is a table's newest: two names are asked for, however many entries the log has."""
    files, folder = filesystem(table_path(lake, table))
    names = [f"{folder}/_delta_log/{at:020}.json" for at in (version, version + 1)]
    return [found.type for found in files.get_file_info(names)] == [fs.FileType.File, fs.FileType.NotFound]


def is_whole(lake: str, table: Table, version: int) -> bool:
    """Whether a log has all that makes a version: each entry since a checkpoint, or since the table's first."""
    names = _names(lake, table)
    entries = {int(name[:20]) for name in names if ENTRY.fullmatch(name)}
    checkpoints = (int(name[:20]) for name in names if CHECKPOINT.match(name))
    begin = max((at for at in checkpoints if at <= version), default=-1)
    return entries.issuperset(range(begin + 1, version + 1))


def first_whole_version(lake: str, table: Table) -> int | None:
    """Return the oldest version that a log has all of; None where it has none with an entry of its own."""
    names = _names(lake, table)
    entries = {int(name[:20]) for name in names if ENTRY.fullmatch(name)}
    checkpoints = {int(name[:20]) for name in names if CHECKPOINT.match(name)}
    return min(entries & (checkpoints | {0}), default=None)


def _names(lake: str, table: Table) -> Sequence[str]:
    files, folder = filesystem(table_path(lake, table))
    log = f"{folder}/_delta_log"
    if isinstance(files, fs.LocalFileSystem):
        return os.listdir(log)  # noqa: PTH208 - nothing is asked of the files
    return [found.base_name for found in files.get_file_info(fs.FileSelector(log))]


def entry(lake: str, table: Table, version: int) -> Entry | None:
    """Return a version's entry; None when the log does not have it (any more)."""
    files, folder = filesystem(table_path(lake, table))
    return _entry(files, folder, version)


def entries(lake: str, table: Table, versions: range) -> Iterator[Entry | None]:
    """Yield the entries of some versions, in order; None where the log does not have one."""
    files, folder = filesystem(table_path(lake, table))
    if isinstance(files, fs.LocalFileSystem) or len(versions) < READERS:
        yield from (_entry(files, folder, version) for version in versions)
        return
    with ThreadPoolExecutor(READERS, thread_name_prefix="log") as pool:
        for start in range(0, len(versions), ENTRIES_AT_A_TIME):
            part = versions[start : start + ENTRIES_AT_A_TIME]
            yield from pool.map(lambda version: _entry(files, folder, version), part)


def position(lake: str, table: Table, table_id: str, version: int) -> Position:
    """Return the place of a version of a table."""
    found = entry(lake, table, version) if version >= 0 else None
    return Position(table_id, version, "" if found is None else found.commit)


def noted(note: Mapping[str, Any]) -> dict[Table, Position]:
    """Return up to where a commit says that its batch has read, by table; empty where it says nothing of it."""
    found = note.get(READ, {})
    return {
        Table.labelled(label): Position(str(read["id"]), int(read["version"]), str(read["commit"]))
        for label, read in found.items()
    }


def as_note(read: Mapping[Table, Position]) -> dict[str, Any]:
    """Return what `noted` reads."""
    return {
        table.label: {"id": place.table_id, "version": place.version, "commit": place.commit}
        for table, place in read.items()
    }


def settle(lake: str, table: Table, version: int) -> None:
    """Have a commit of delta-rs's outlast a loss of power, with the files that it added."""
    if "://" in lake or (found := entry(lake, table, version)) is None:
        return
    folder = table_path(lake, table)
    added = (unquote(action["add"]["path"]) for action in found.actions if "add" in action)
    bring_to_disk(*(f"{folder}/{path}" for path in added), f"{folder}/_delta_log/{version:020}.json")


def _entry(files: fs.FileSystem, folder: str, version: int) -> Entry | None:
    try:
        with files.open_input_stream(f"{folder}/_delta_log/{version:020}.json") as stream:
            data = stream.read()
    except FileNotFoundError:
        return None
    actions = [json.loads(line) for line in data.splitlines()]
    info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if action.get("commitInfo")), {})
    own = metadata_of(info.get("userMetadata")).get(COMMIT)
    return Entry(version, own if isinstance(own, str) else blake2b(data, digest_size=DIGEST_BYTES).hexdigest(), actions)
