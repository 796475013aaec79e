"""Corrections of a lake: what each one changed, kept so that it can be finished and undone.

    <lake>/_corrections/<run>.json                         when, why, and what it has changed in which table
    <lake>/_corrections/at-work                            the same, of the one that is not through
    <lake>/<table>/_corrections/<run>.added.parquet        rows that come into a table
    <lake>/<table>/_corrections/<run>.retracted.parquet    rows that go from there

Its rows and `at-work` are written before the first commit. So whatever interrupts a correction, it can be finished from
there; and who reads a table's changes finds the rows that it added. Delta's readers and VACUUM pass such folders over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from customer_activity.catalog import Table, table_path
from customer_activity.errors import CorrectionUnfinished, SettingsError
from customer_activity.lake.datafiles import FileWriter
from customer_activity.storage.filesystem import filesystem, read_whole, write_whole

FOLDER = "_corrections"
AT_WORK = "at-work"
TIME = "%Y%m%dT%H%M%S%fZ"  # a run is called by its time, so that names are in the order of time


class Rows(msgspec.Struct, frozen=True):
    """Rows in a file of a table's folder that is no part of the table; no path where there are none."""

    path: str = ""
    size: int = 0
    rows: int = 0


class Change(msgspec.Struct, frozen=True):
    """What a correction does to a table: rows that go and rows that come, by the columns that name them."""

    key: tuple[str, ...]
    retracted: Rows
    added: Rows


class Correction(msgspec.Struct, frozen=True):
    """What a correction does, by label of a table where nothing else is said."""

    run: str
    at: datetime  # when it was begun
    reason: str  # what asked for it
    undoes: str  # the run that it undoes; empty where it undoes none
    changes: dict[str, Change]
    generations: dict[str, str]  # of the checkpoints that are written with it, by query
    landed: dict[str, int]  # the newest landing that is in a table of events
    # What silver's batches have counted when it is through, by topic and outcome; None where that is not known, because
    # what commits said is not all there any more.
    counted: dict[str, dict[str, dict[str, int]] | None]
    counted_before: dict[str, dict[str, dict[str, int]] | None]  # the same before it
    is_dropped: bool = False  # its rows are not kept any more, and all that counts is that it was


def new_run(lake: str, now: datetime) -> str:
    """Return a name for a run, which comes after those of all that are kept, wherever the clock was then."""
    last = max((correction.run for correction in made(lake)), default="")
    name = f"{now:{TIME}}"
    if name > last:
        return name
    return f"{datetime.strptime(last, TIME).replace(tzinfo=UTC) + timedelta(microseconds=1):{TIME}}"


def keep(lake: str, table: Table, run: str, what: str, batches: Iterable[pa.RecordBatch]) -> Rows:
    """Write rows that a correction adds or retracts beside a table."""
    files, folder = filesystem(table_path(lake, table))
    if isinstance(files, fs.LocalFileSystem):
        files.create_dir(f"{folder}/{FOLDER}", recursive=True)
    writer = FileWriter(lake, table, f"{FOLDER}/{run}.{what}.parquet")
    for batch in batches:
        writer.write(batch)
    file = writer.close()
    return Rows() if file is None else Rows(file.path, file.size, file.rows)


def read(lake: str, table: Table, rows: Rows, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield such rows."""
    if not rows.rows:
        return
    files, folder = filesystem(table_path(lake, table))
    with pq.ParquetFile(f"{folder}/{rows.path}", filesystem=files) as file:
        yield from file.iter_batches(columns=columns and list(columns))


def begin(lake: str, correction: Correction) -> None:
    """Note that a correction has begun: until it is through nothing else runs on the lake."""
    write_whole(_path(lake, AT_WORK), _encoded(correction))


def withdraw(lake: str, run: str) -> None:
    """Take back that a correction has begun, where it is the one at work: nothing of it has been committed."""
    if (found := at_work(lake)) is not None and found.run == run:
        _clear(lake)


def _clear(lake: str) -> None:
    files, path = filesystem(_path(lake, AT_WORK))
    files.delete_file(path)


def sweep(lake: str) -> None:
    """Remove rows that were written for corrections which never began."""
    runs = {correction.run for correction in kept(lake)}
    for table in Table:
        files, folder = filesystem(table_path(lake, table))
        for entry in files.get_file_info(fs.FileSelector(f"{folder}/{FOLDER}", allow_not_found=True)):
            if entry.is_file and entry.base_name.partition(".")[0] not in runs:
                files.delete_file(entry.path)


def at_work(lake: str) -> Correction | None:
    """Return the correction that has begun and is not through; None when there is none."""
    return _read(lake, AT_WORK)


def finish(lake: str, correction: Correction) -> None:
    """Note that it is through, and keep it."""
    write_whole(_path(lake, f"{correction.run}.json"), _encoded(correction))
    _clear(lake)


def refuse_unfinished(lake: str) -> None:
    """Make sure that all tables of a lake are corrected, or none is.

    Raises:
        CorrectionUnfinished: a correction was interrupted.
    """
    if (correction := at_work(lake)) is not None:
        raise CorrectionUnfinished(
            f"{lake}: correction {correction.run} was interrupted, and some tables may have it and others not; "
            "nothing may run until it is finished",
            remedy="`activity rebuild --apply` finishes it, without rebuilding anything",
        )


def kept(lake: str) -> list[Correction]:
    """Return the corrections whose rows are kept, the oldest first."""
    return [correction for correction in made(lake) if not correction.is_dropped]


def made(lake: str) -> list[Correction]:
    """Return all corrections that were brought to their end, the oldest first."""
    files, folder = filesystem(_path(lake, ""))
    found = files.get_file_info(fs.FileSelector(folder.rstrip("/"), allow_not_found=True))
    names = sorted(entry.base_name for entry in found if entry.base_name.endswith(".json"))
    return [correction for name in names if (correction := _read(lake, name)) is not None]


def find(lake: str, run: str) -> Correction:
    """Return a correction.

    Raises:
        SettingsError: there is none of that name.
    """
    found = {correction.run: correction for correction in kept(lake)}
    if run not in found:
        listed = ", ".join(found) or "none"
        raise SettingsError(f"no correction {run} is kept at {lake}", remedy=f"there are: {listed}")
    return found[run]


def drop(lake: str, run: str) -> None:
    """Remove what is kept of a correction: it cannot be undone any more.

    Raises:
        SettingsError: there is none of that name.
        CorrectionUnfinished: one is at work.
    """
    refuse_unfinished(lake)
    correction = find(lake, run)
    # First: what is interrupted here is swept by the next correction. That it was is never forgotten: an earlier one
    # cannot be undone after it.
    write_whole(_path(lake, f"{run}.json"), _encoded(msgspec.structs.replace(correction, is_dropped=True)))
    for label, change in correction.changes.items():
        files, folder = filesystem(table_path(lake, Table.labelled(label)))
        for rows in (change.added, change.retracted):
            if rows.path and files.get_file_info(f"{folder}/{rows.path}").type != fs.FileType.NotFound:
                files.delete_file(f"{folder}/{rows.path}")


def noted(change: Change) -> Mapping[str, Any]:
    """Return what the commit of a change notes, for those who read the table's changes (`feeds.py`)."""
    return {"added": msgspec.to_builtins(change.added), "retracted": msgspec.to_builtins(change.retracted)}


def _encoded(correction: Correction) -> bytes:
    return msgspec.json.format(msgspec.json.encode(correction))


def _read(lake: str, name: str) -> Correction | None:
    data = read_whole(_path(lake, name))
    return None if data is None else msgspec.json.decode(data, type=Correction)


def _path(lake: str, name: str) -> str:
    return f"{lake}/{FOLDER}/{name}"
