"""Versions of tables that somebody needs for longer than logs are kept, and who is no reader of their change feed.

Local state that is made behind its stream reads a table as it was at one version for minutes, and follows it from
there. `<lake>/_state/<stream>.hold.json` says since when; maintenance removes neither log entries nor files from there
on (`maintenance.needed_from`). A driver that was killed leaves its holds, and the next one with this state takes them
back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyarrow import fs

from customer_activity.catalog import Table
from customer_activity.storage.filesystem import filesystem, read_whole, write_whole

SUFFIX = ".hold.json"


def hold(lake: str, stream: str, versions: Mapping[Table, int]) -> None:
    """Have tables be kept from these versions on, in the place of what was held for the stream before."""
    told = {table.label: version for table, version in versions.items()}
    write_whole(f"{lake}/_state/{stream}{SUFFIX}", json.dumps(told).encode())


def release(lake: str, stream: str) -> None:
    """Hold nothing for a stream any more."""
    files, place = filesystem(f"{lake}/_state/{stream}{SUFFIX}")
    if files.get_file_info(place).type == fs.FileType.File:
        files.delete_file(place)


def held(lake: str, table: Table) -> dict[str, int]:
    """Return the first version of a table that is held, by stream."""
    files, place = filesystem(f"{lake}/_state")
    found = files.get_file_info(fs.FileSelector(place, allow_not_found=True))
    holds: dict[str, int] = {}
    for info in found:
        if info.type == fs.FileType.File and info.base_name.endswith(SUFFIX):
            told = _read(f"{lake}/_state/{info.base_name}")
            if told is None or table.label in told:
                holds[info.base_name.removesuffix(SUFFIX)] = 0 if told is None else told[table.label]
    return holds


def _read(location: str) -> dict[str, int] | None:
    """Read a hold; None where it is damaged: then everything is held until the next driver releases it."""
    try:
        told = json.loads(read_whole(location) or b"{}")
    except ValueError:
        return None
    return told if isinstance(told, dict) else None
