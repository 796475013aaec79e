"""Parquet files for Delta tables, written where the rows are: in the driver, or in one of Spark's Python workers."""

from __future__ import annotations

import json
import os
import stat
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import TABLES, arrow_schema
from customer_activity.storage.filesystem import filesystem, settle

ROW_GROUP_ROWS = 65_536
ROW_GROUP_BYTES = 32 << 20  # of Arrow: a writer and a reader hold a row group whole
UNBOUNDED_BYTES = 1 << 62
TEXT_BOUND = 32  # characters of a text in statistics
LAST_CHARACTER = "\U0010ffff"


class DataFile(NamedTuple):
    """A Parquet file in a table's folder that no commit names yet."""

    path: str  # below the table
    size: int  # bytes
    rows: int
    stats: str  # Delta's, as JSON


class FileWriter:
    """Writes one Parquet file of a table, batch by batch; the file belongs to the table once it is committed."""

    def __init__(self, lake: str, table: Table, path: str = "", more: Sequence[pa.Field] = ()) -> None:
        """Open nothing yet: no rows, no file. Without a path below the table the file has a name of its own.

        A file that is none of the table's own rows may have `more` columns than these.
        """
        self.files, self.folder = filesystem(table_path(lake, table))
        self.table = table
        self.schema = pa.schema([*arrow_schema(table), *more])
        self.path = path or f"part-{uuid.uuid4()}.snappy.parquet"
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_rows = 0
        self.waiting_bytes = 0
        self.rows = 0
        self.bytes = 0  # of Arrow, what waits included
        self.writer: pq.ParquetWriter | None = None
        self.bounds: dict[str, tuple[Any, Any]] = {}

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Add rows; columns are taken by name."""
        if not rows.num_rows:
            return
        rows = rows.select(self.schema.names)
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
            for cut in pieces(batch, ROW_GROUP_BYTES):
                piece = narrow(cut).cast(self.schema)
                self.waiting.append(piece)
                self.waiting_rows += piece.num_rows
                self.waiting_bytes += piece.nbytes
                self.bytes += piece.nbytes
                if self.waiting_bytes >= ROW_GROUP_BYTES:
                    self._flush()
        if self.waiting_rows >= ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self.waiting:
            return
        rows = pa.Table.from_batches(self.waiting, self.schema)
        if self.writer is None:
            self._make_folder()
            # Whole numbers for decimals and lists named as Spark names them: what its readers do fastest.
            self.writer = pq.ParquetWriter(
                f"{self.folder}/{self.path}",
                self.schema,
                filesystem=self.files,
                compression="snappy",
                store_decimal_as_integer=True,
                write_page_index=False,
            )
        self.writer.write_table(rows)
        for column in TABLES[self.table].statistics:
            kind = self.schema.field(column).type
            if pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_string(kind):
                self._bound(column, pc.min_max(rows.column(column)).as_py())
        self.rows += rows.num_rows
        self.waiting, self.waiting_rows, self.waiting_bytes = [], 0, 0

    def _make_folder(self) -> None:
        """Make the folder that the file is in, where it is one below the table's; on S3 there are none.

        It is open to whom the table's is: readers of its change data feed need it.
        """
        below = PurePosixPath(self.path).parent
        if below.name and isinstance(self.files, fs.LocalFileSystem):
            folder = Path(self.folder) / below
            folder.mkdir(exist_ok=True)
            mode = stat.S_IMODE(Path(self.folder).stat().st_mode)
            if stat.S_IMODE(folder.stat().st_mode) != mode:
                with suppress(PermissionError):  # another user has made it in this moment, and does the same
                    folder.chmod(mode)
            settle(str(folder))

    def _bound(self, column: str, found: dict[str, Any]) -> None:
        if found["min"] is None:
            return
        low, high = self.bounds.get(column, (found["min"], found["max"]))
        self.bounds[column] = min(low, found["min"]), max(high, found["max"])

    def close(self) -> DataFile | None:
        """Finish the file; None when there were no rows."""
        self._flush()
        if self.writer is None:
            return None
        self.writer.close()
        if isinstance(self.files, fs.LocalFileSystem):
            settle(f"{self.folder}/{self.path}")  # before a commit names it: a loss of power leaves no hollow file
        size = self.files.get_file_info(f"{self.folder}/{self.path}").size
        stats = {
            "numRecords": self.rows,
            "minValues": {column: _stat(low) for column, (low, _) in self.bounds.items()},
            "maxValues": {column: _stat(high, is_max=True) for column, (_, high) in self.bounds.items()},
        }
        return DataFile(self.path, size, self.rows, json.dumps(stats, ensure_ascii=False))

    def abandon(self) -> None:
        """Remove what there is of the file; what cannot be removed is left to VACUUM."""
        with suppress(Exception):  # where a disk is full its end cannot be written
            if self.writer is not None:
                self.writer.close()
        with suppress(OSError):  # it is there without a writer, too, where not even its begin could be written
            self.files.delete_file(f"{self.folder}/{self.path}")


def _stat(value: Any, *, is_max: bool = False) -> Any:
    """Return a bound as Delta's statistics have it: times as text, cut to milliseconds (readers allow for the rest).

    A long text is cut, too.
    """
    if isinstance(value, str):
        return value if len(value) <= TEXT_BOUND else _above(value) if is_max else value[:TEXT_BOUND]
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
    return value.isoformat() if isinstance(value, date) else value


def _above(text: str) -> str:
    """Return a short text that is greater: cut before a character which the last of all characters can replace."""
    rest = text[TEXT_BOUND:].lstrip(LAST_CHARACTER)
    return f"{text.removesuffix(rest)}{LAST_CHARACTER}" if rest else text


def discard(lake: str, table: Table, files: Iterable[DataFile]) -> None:
    """Remove files that no commit names and none will; what cannot be removed is left to VACUUM."""
    storage, folder = filesystem(table_path(lake, table))
    for file in files:
        with suppress(OSError):
            storage.delete_file(f"{folder}/{file.path}")


def write_at_once(batches: Iterator[pa.RecordBatch], lake: str, table: Table) -> list[DataFile]:
    """Write rows into files of a table, a file a core: who is free takes the next batch. Nothing is committed."""
    asking = threading.Lock()

    def write() -> DataFile | None:
        writer = FileWriter(lake, table)
        while True:
            with asking:
                batch = next(batches, None)
            if batch is None:
                return writer.close()
            writer.write(batch)

    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores, thread_name_prefix="write") as pool:
        files = [working.result() for working in [pool.submit(write) for _ in range(cores)]]
    return [file for file in files if file is not None]


def stamped(rows: pa.Table, column: str, number: int, landed_at: datetime) -> pa.Table:
    """Add to rows the number of their landing, and in a column when that was."""
    at = pa.scalar(landed_at, pa.timestamp("us", tz="UTC"))
    rows = rows.append_column(column, pa.repeat(at, rows.num_rows))
    return rows.append_column("landing", pa.repeat(pa.scalar(number, pa.int64()), rows.num_rows))


def whole(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Give rows all columns of a schema; those that they lack are null."""
    for batch in batches:
        there = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns = [
            there[field.name].cast(field.type) if field.name in there else pa.nulls(batch.num_rows, field.type)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def in_parts(batches: Iterable[pa.RecordBatch], rows: int, most_bytes: int = UNBOUNDED_BYTES) -> Iterator[pa.Table]:
    """Put batches together into tables of so many rows or a few more, and of at most so many bytes or one row."""
    waiting: list[pa.RecordBatch] = []
    waiting_rows = waiting_bytes = 0
    for batch in batches:
        for piece in pieces(batch, most_bytes):
            size = piece.nbytes
            if waiting_rows and waiting_bytes + size > most_bytes:
                yield pa.Table.from_batches(waiting)
                waiting, waiting_rows, waiting_bytes = [], 0, 0
            waiting.append(piece)
            waiting_rows += piece.num_rows
            waiting_bytes += size
        if waiting_rows >= rows:
            yield pa.Table.from_batches(waiting)
            waiting, waiting_rows, waiting_bytes = [], 0, 0
    if waiting_rows:
        yield pa.Table.from_batches(waiting)


def wide(rows: pa.Table, but: Sequence[str]) -> pa.Table:
    """Return rows whose texts, but for those of some columns, may come to more than 2 GB where they come together.

    A column of `string` holds no more than that.
    """
    is_long = {field.name for field in rows.schema if pa.types.is_string(field.type)}.difference(but)
    fields = [field.with_type(pa.large_string()) if field.name in is_long else field for field in rows.schema]
    return rows.cast(pa.schema(fields))


def narrow(rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    """Return rows whose long texts can be cast to `string`: one that begins beyond 2 GB cannot, so they are copied."""
    if not any(map(pa.types.is_large_string, rows.schema.types)):
        return rows
    return rows.take(pa.array(np.arange(rows.num_rows)))


def pieces(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into pieces of at most so many bytes or one row; nothing is copied."""
    if batch.num_rows <= 1 or batch.nbytes <= most_bytes:
        yield batch
        return
    half = batch.num_rows // 2
    yield from pieces(batch.slice(0, half), most_bytes)
    yield from pieces(batch.slice(half), most_bytes)
