"""Versions of tables that somebody needs for longer than logs are kept, and who is no reader of their change feed.

Local state that is made behind its stream reads a table as it was at one version for minutes, and follows it from
there. `<lake>/_state/<stream>.<holder>.hold.json` says since when; maintenance removes neither log entries nor files
from there on (`maintenance.needed_from`). Each holder has a file of its own, so that a zombie that ends late releases
its own hold alone. A driver that was killed leaves its holds, and the next one with this state releases them, also
those of former releases, whose names have no holder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress

from pyarrow import fs

from customer_activity.catalog import Table
from customer_activity.storage.filesystem import filesystem, read_whole, write_whole

SUFFIX = ".hold.json"


def hold(lake: str, stream: str, holder: str, versions: Mapping[Table, int]) -> None:
    """Have tables be kept from these versions on, in the place of what the holder has held before."""
    told = {table.label: version for table, version in versions.items()}
    write_whole(_place(lake, stream, holder), json.dumps(told).encode())


def release(lake: str, stream: str, holder: str) -> None:
    """Release the hold of a holder."""
    files, place = filesystem(_place(lake, stream, holder))
    with suppress(FileNotFoundError):  # taken back
        files.delete_file(place)


def take_back(lake: str, stream: str) -> None:
    """Release all holds of a stream, those of other holders included."""
    files, _ = filesystem(lake)
    for whose, info in _found(lake):
        if whose == stream:
            with suppress(FileNotFoundError):  # released meanwhile
                files.delete_file(info.path)


def held(lake: str, table: Table) -> dict[str, int]:
    """Return the first version of a table that is held, by stream."""
    holds: dict[str, int] = {}
    for stream, info in _found(lake):
        told = _read(f"{lake}/_state/{info.base_name}")
        if told is None or table.label in told:
            first = 0 if told is None else told[table.label]
            holds[stream] = min(first, holds.get(stream, first))
    return holds


def _place(lake: str, stream: str, holder: str) -> str:
    return f"{lake}/_state/{stream}.{holder}{SUFFIX}"


def _found(lake: str) -> Iterator[tuple[str, fs.FileInfo]]:
    """Yield each hold's file with the stream that it is for."""
    files, place = filesystem(f"{lake}/_state")
    for info in files.get_file_info(fs.FileSelector(place, allow_not_found=True)):
        if info.type == fs.FileType.File and info.base_name.endswith(SUFFIX):
            yield info.base_name.partition(".")[0], info


def _read(location: str) -> dict[str, int] | None:
    """Read a hold; None where it is damaged: then everything is held until the next driver releases it."""
    try:
        told = json.loads(read_whole(location) or b"{}")
    except ValueError:
        return None
    return told if isinstance(told, dict) else None
