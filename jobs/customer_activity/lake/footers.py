"""Make files that delta-rs has rewritten readable for every client: they must not ask for Arrow's view types.

A merge, a delete and an update of delta-rs read texts as Arrow's `string_view` and note that type in the files that
they write (`ARROW:schema` in the footer); a compaction takes it over. Arrow's reader then gives texts of that type,
which it cannot compare with others: `customer_id = 'A'` ends with "no kernel matching input types (string,
string_view)" in any client that reads through an Arrow data set (DuckDB, pandas, Polars). Nothing else needs the note:
without it each type follows from Parquet's own.

So one byte of the note's name is changed, in place: the file is as long as the log says, a reader sees the one or the
other, and a crash leaves the one or the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow import fs

from customer_activity.catalog import Table, table_path
from customer_activity.storage.filesystem import filesystem

NOTE = b"ARROW:schema"
OTHERWISE = b"ARROW:Schema"  # one byte of it differs: a file is never between the two
TAIL_BYTES = 8  # the footer's length, and the magic number
AT_ONCE = 8


class Place(NamedTuple):
    """A byte of a file that is to be another."""

    offset: int
    byte: bytes


def repair(lake: str, table: Table, paths: Iterable[str] | None = None) -> int:
    """Take the note of view types out of some of a table's files, all of its newest version's when none are given.

    Returns of how many files it was taken.
    """
    files, folder = filesystem(table_path(lake, table))
    if paths is None:
        newest = DeltaTable(table_path(lake, table))
        paths = pa.table(newest.get_add_actions()).column("path").to_pylist()
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="footers") as pool:
        return sum(pool.map(lambda path: _repair_file(files, f"{folder}/{path}"), paths))


def repair_commit(lake: str, table: Table, version: int) -> int:
    """Take the note out of the files that a commit has added; return of how many."""
    files, folder = filesystem(table_path(lake, table))
    with files.open_input_stream(f"{folder}/_delta_log/{version:020}.json") as stream:
        actions = [json.loads(line) for line in stream.read().splitlines()]
    added = [action[name]["path"] for action in actions for name in ("add", "cdc") if name in action]
    return repair(lake, table, added) if added else 0


def _repair_file(files: fs.FileSystem, path: str) -> bool:
    place = _note(files, path)
    if place is None:
        return False
    if isinstance(files, fs.LocalFileSystem):
        with Path(path).open("r+b") as file:
            file.seek(place.offset)
            file.write(place.byte)
        return True
    with files.open_input_stream(path) as stream:  # an object is written whole; it is of some megabytes
        data = bytearray(stream.read())
    data[place.offset : place.offset + 1] = place.byte
    with files.open_output_stream(path) as out:
        out.write(data)
    return True


def _note(files: fs.FileSystem, path: str) -> Place | None:
    """Return where a file notes view types; None where it does not."""
    with files.open_input_file(path) as file:
        size = file.size()
        tail = file.read_at(TAIL_BYTES, size - TAIL_BYTES)
        length = int.from_bytes(tail[:4], "little")
        first = size - TAIL_BYTES - length
        footer = file.read_at(length, first)
    if not _has_views(footer, tail):
        return None
    # Keys and values come after the columns' statistics, which may hold any text.
    at = footer.rindex(NOTE)
    if _has_views(footer[:at] + OTHERWISE + footer[at + len(NOTE) :], tail):
        raise ValueError(f"{path}: its footer does not follow Parquet's format")
    differs = next(number for number, (a, b) in enumerate(zip(NOTE, OTHERWISE, strict=True)) if a != b)
    return Place(first + at + differs, OTHERWISE[differs : differs + 1])


def _has_views(footer: bytes, tail: bytes) -> bool:
    metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + footer + tail))
    types = metadata.schema.to_arrow_schema().types
    return any(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind) for kind in types)
