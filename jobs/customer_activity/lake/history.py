"""What the commits of a table said: in its log, and kept beside it when the log is shortened.

`<lake>/_history/<table>/<first>-<last>.jsonl` has a line a commit: its `commitInfo` with its version, which tells who
wrote, when, which batch, its counts and offsets. A file is there as a whole or not at all. Former releases wrote them
in place: a line that was cut off is left out, because the log kept its entry and the next file has it again.

The log is read here and not by `DeltaTable.history`: that counts versions down from the one that is open, and begins
with the newest there is, so a commit that came meanwhile moves every version by one (delta-io/delta-rs, issue 4488).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from pyarrow import fs

from customer_activity.catalog import Table, history_path, table_path
from customer_activity.lake import deltalog
from customer_activity.lake.microbatch import metadata_of
from customer_activity.storage.filesystem import filesystem, write_whole

SUFFIX = ".jsonl"


def latest_metadata(lake: str, table: Table, query: str, upto: int | None = None) -> dict[str, Any]:
    """Return what a stream's newest commit to a table, up to a version, carries; empty when the log has none."""
    newest = deltalog.newest_version(lake, table) if upto is None else upto
    notes = (metadata_of(said.get("userMetadata")) for said in log_entries(lake, table, newest))
    return next((note for note in notes if note.get("query") == query), {})


def log_entries(lake: str, table: Table, upto: int) -> Iterator[dict[str, Any]]:
    """Yield what each commit said, with its version, from one version back as far as the log goes."""
    files, folder = filesystem(table_path(lake, table))
    ahead = 1  # mostly the first one has what is wanted
    version = upto
    while version >= 0:
        wanted = range(version, max(version - ahead, -1), -1)
        for at, said in zip(wanted, _said_in(files, f"{folder}/_delta_log", wanted), strict=True):
            if said is None:
                return
            yield {"version": at, **said}
        version -= len(wanted)
        if not isinstance(files, fs.LocalFileSystem):  # each waits for an answer
            ahead = min(2 * ahead, deltalog.READERS)


def _said_in(files: fs.FileSystem, log: str, versions: range) -> list[dict[str, Any] | None]:
    """Return what some versions' commits said, several asked for at once; None where the log does not have one."""

    def said(version: int) -> dict[str, Any] | None:
        try:
            return _said(files, f"{log}/{version:020}.json")
        except FileNotFoundError:
            return None

    if len(versions) == 1:
        return [said(versions[0])]
    with ThreadPoolExecutor(len(versions), thread_name_prefix="history") as pool:
        return list(pool.map(said, versions))


def archived_entries(lake: str, table: Table) -> Iterator[dict[str, Any]]:
    """Yield what the commits said, with their versions, that the log has no longer."""
    files, folder = filesystem(history_path(lake, table))
    kept = [entry.path for entry in files.get_file_info(fs.FileSelector(folder, allow_not_found=True))]
    paths = [path for path in kept if path.endswith(SUFFIX)]
    if isinstance(files, fs.LocalFileSystem):
        for path in paths:
            yield from filter(None, map(_line, lines_of(files, path)))
        return
    # Each waits for an answer. So many at a time: a history of years does not fit into memory.
    with ThreadPoolExecutor(deltalog.READERS, thread_name_prefix="history") as pool:
        for start in range(0, len(paths), deltalog.READERS):
            for lines in pool.map(partial(lines_of, files), paths[start : start + deltalog.READERS]):
                yield from filter(None, map(_line, lines))


def backwards(lake: str, table: Table, upto: int) -> Iterator[dict[str, Any]]:
    """Yield what each commit said, with its version, from one version back: from the log, then from what is kept."""
    version = upto + 1
    for said in log_entries(lake, table, upto):
        version = said["version"]
        yield said
    files, folder = filesystem(history_path(lake, table))
    kept = [entry.path for entry in files.get_file_info(fs.FileSelector(folder, allow_not_found=True))]
    for path in sorted((path for path in kept if path.endswith(SUFFIX)), reverse=True):
        for said in filter(None, map(_line, reversed(lines_of(files, path)))):
            if said["version"] < version:  # an interrupted shortening leaves some in both
                version = said["version"]
                yield said


def lines_of(files: fs.FileSystem, path: str) -> list[bytes]:
    """Return the lines of a file of the history."""
    with files.open_input_stream(path) as stream:
        lines: list[bytes] = stream.read().splitlines()
        return lines


def _line(line: bytes) -> dict[str, Any] | None:
    """Return what a line says; None for one that was cut off."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) and "version" in said else None


def keep(lake: str, table: Table, entries: Sequence[tuple[int, str]]) -> None:
    """Keep what some commits said; of each, `entries` has the version and the path of its log entry, in order."""
    if not entries:
        return
    files, _ = filesystem(table_path(lake, table))
    lines = [json.dumps({"version": version, **_said(files, path)}) for version, path in entries]
    name = f"{entries[0][0]:020}-{entries[-1][0]:020}{SUFFIX}"
    write_whole(f"{history_path(lake, table)}/{name}", "\n".join(lines).encode())


def _said(files: fs.FileSystem, path: str) -> dict[str, Any]:
    with files.open_input_stream(path) as stream:
        actions = (json.loads(line) for line in stream.read().splitlines())
        return next((dict(action["commitInfo"]) for action in actions if "commitInfo" in action), {})
