"""How large a table is, and how fast it grows: its newest version beside the oldest one that its log has of a span."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import TABLES
from customer_activity.lake import deltalog
from customer_activity.report import commits

MILLIS_A_DAY = 24 * commits.MILLIS_AN_HOUR
LEAST_MILLIS = 60_000  # what grew in less says nothing of a day


class Growth(NamedTuple):
    """A table's size.

    Attributes:
        table: its label.
        version: the newest one.
        rows, files, bytes: of that.
        rows_a_day, bytes_a_day: what a day brings at the pace since then, at the size that a row has now; None where
            that is too short ago.
        since: the moment of the older version that was looked at, in milliseconds.
    """

    table: str
    version: int
    rows: int
    files: int
    bytes: int
    rows_a_day: float | None
    bytes_a_day: float | None
    since: int | None


def is_appended(table: Table) -> bool:
    """Whether a table is only appended to."""
    return not TABLES[table].is_current


def of(lake: str, table: Table, begin: int) -> Growth | None:
    """Return a table's size and growth since a moment, as far as its log goes; None where there is no such table."""
    try:
        opened = DeltaTable(table_path(lake, table))
    except TableNotFoundError:
        return None
    rows, files, size = _size(opened)
    newest = opened.version()
    older = _older(lake, table, newest, begin)
    a_day, since = None, None
    if older is not None:
        try:
            opened.load_as_version(older.version)
            a_day, since = (rows - _size(opened)[0]) * MILLIS_A_DAY / older.millis, older.at
        except DeltaError:  # it was removed meanwhile
            pass
    bytes_a_day = None if a_day is None else a_day * size / rows if rows else 0.0
    return Growth(table.label, newest, rows, files, size, a_day, bytes_a_day, since)


class _Older(NamedTuple):
    version: int
    at: int
    millis: int  # from there to the newest


def _older(lake: str, table: Table, newest: int, begin: int) -> _Older | None:
    """Return the oldest version since a moment that the log has whole, if enough time has passed since then."""
    first = deltalog.first_whole_version(lake, table)
    ends = commits.at(lake, table, newest)
    if first is None or ends is None:
        return None
    version = commits.first_since(lake, table, range(first, newest), begin)
    at = None if version is None else commits.at(lake, table, version)
    if version is None or at is None or ends - at < LEAST_MILLIS:
        return None
    return _Older(version, at, ends - at)


def _size(opened: DeltaTable) -> tuple[int, int, int]:
    """Return rows, files and bytes; a file without statistics has no rows here."""
    files = pa.RecordBatchReader.from_stream(opened.get_add_actions(flatten=True)).read_all()
    rows = pc.sum(files["num_records"]).as_py() if "num_records" in files.column_names else 0
    return rows or 0, files.num_rows, pc.sum(files["size_bytes"]).as_py() or 0
