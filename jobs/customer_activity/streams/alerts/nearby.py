"""Which purchases decide about some others: those of their customers, near them in event time.

They are read from the table itself, so there is no state that could be lost, and nothing to evict. Which files may have
them is told by their statistics. Files never change, so the columns of small ones are kept in memory, up to a bound:
what a batch adds is read once, and what is late looks further back, as far as the grace allows.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from customer_activity.catalog import table_path
from customer_activity.contracts.columns import UTC_MICROS
from customer_activity.lake.datafiles import in_parts
from customer_activity.lake.reducing import PART_ROWS
from customer_activity.storage.filesystem import filesystem
from customer_activity.streams.alerts.rules import SCHEMA, SOURCE
from customer_activity.streams.alerts.spans import Numbers, Spans

SMALL_ROWS = 50_000  # of a file that is kept
KEPT_ROWS = 1_000_000  # of all files that are kept: some 150 MB
FINEST = 1_000  # microseconds: bounds of a file are cut to milliseconds
NEVER_AFTER, NEVER_BEFORE = -(1 << 62), 1 << 62  # of a file without statistics


class File(NamedTuple):
    """A file of the table.

    Attributes:
        path: below the table.
        size: bytes.
        told: how many rows it has; None where it does not tell.
    """

    path: str
    size: int
    told: int | None

    @property
    def rows(self) -> int:
        """How many rows it has, as far as it tells."""
        return self.told or 0


class Nearby:
    """Looks purchases up in silver.timed_purchases, and keeps what it has read of small files."""

    def __init__(self, lake: str) -> None:
        """Read nothing yet."""
        self.lake = lake
        self.table: DeltaTable | None = None
        self.kept: OrderedDict[str, pa.Table] = OrderedDict()  # by path, the one used last at the end
        self.kept_rows = 0

    def of(self, customers: pa.Array, spans: Spans) -> pa.Table:
        """Return all purchases of some customers in some spans."""
        near = (batch for file in self.files(spans) for batch in self._near(file, spans).to_batches())
        found = (
            rows.filter(pc.is_in(rows.column("customer_id"), value_set=customers)) for rows in in_parts(near, PART_ROWS)
        )
        return pa.concat_tables([SCHEMA.empty_table(), *found])

    def _near(self, file: File, spans: Spans) -> pa.Table:
        """Return a file's rows in some spans."""
        rows = self._rows(file, spans)
        times = _micros(rows.column("occurred_at"))
        return rows.filter(pa.array(spans.meet(times, times)))

    def files(self, spans: Spans) -> list[File]:
        """List the files of the newest version that may have purchases in some spans."""
        if self.table is None:
            self.table = DeltaTable(table_path(self.lake, SOURCE))
        else:
            self.table.update_incremental()
        actions = pa.table(self.table.get_add_actions(flatten=True))
        if not actions.num_rows:
            return []
        firsts = _bounds(actions, "min.occurred_at", NEVER_AFTER)
        lasts = _bounds(actions, "max.occurred_at", NEVER_BEFORE)
        met = actions.filter(pa.array(spans.meet(firsts, lasts + FINEST)))
        columns = (met.column(name).to_pylist() for name in ("path", "size_bytes", "num_records"))
        return [File(unquote(path), size, rows) for path, size, rows in zip(*columns, strict=True)]

    def _rows(self, file: File, spans: Spans) -> pa.Table:
        """Return a file's rows: of a small one all, from memory, of a large one what may be in the spans."""
        files, folder = filesystem(table_path(self.lake, SOURCE))
        if file.told is None or file.told > SMALL_ROWS:
            first, last = (_moment(each) for each in (spans.begins[0], spans.ends[-1]))
            is_between = (pc.field("occurred_at") >= first) & (pc.field("occurred_at") <= last)
            return pq.read_table(f"{folder}/{file.path}", schema=SCHEMA, filesystem=files, filters=is_between)
        if file.path not in self.kept:
            self.kept[file.path] = pq.read_table(f"{folder}/{file.path}", schema=SCHEMA, filesystem=files)
            self.kept_rows += file.rows
        self.kept.move_to_end(file.path)
        while self.kept_rows > KEPT_ROWS:
            _, dropped = self.kept.popitem(last=False)
            self.kept_rows -= dropped.num_rows
        return self.kept[file.path]


def _bounds(actions: pa.Table, name: str, otherwise: int) -> Numbers:
    """Return a bound of each file by its statistics, where it has any."""
    if name not in actions.column_names:
        return np.full(actions.num_rows, otherwise)
    found = actions.column(name).cast(UTC_MICROS).cast(pa.int64())
    return np.asarray(pc.fill_null(found, otherwise).to_numpy(), np.int64)


def _micros(times: pa.ChunkedArray) -> Numbers:
    return np.asarray(times.cast(UTC_MICROS).cast(pa.int64()).to_numpy(), np.int64)


def _moment(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(micros))
