"""Semi-join a table with many keys, where there is no index: the table is scanned, some files at a time.

Which files have such rows is found by the key alone, and these files are read once more. DuckDB finds them on this
machine: it compares a hundred million ids with a million in 5 s on two cores, and Arrow, which reads what is elsewhere,
in 13 s (`docs/PERFORMANCE.md`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import deltalog, feeds
from customer_activity.lake.pieces import ROW_BYTES
from customer_activity.storage.filesystem import filesystem

ROWS_AT_A_TIME, FILES_AT_A_TIME = 32_000_000, 500  # scanned at a time: a few seconds; each scan builds its hash table
MEMORY, THREADS = "1GB", 8  # of DuckDB; each thread has parts of a row group
PATTERN = frozenset("*?[")  # DuckDB takes a path with one of these for a pattern
AHEAD = {"batch_readahead": 2, "fragment_readahead": 8}  # of batches usually 16, which take three times the memory
FILE = "__filename"  # Arrow's name of it

Read = Callable[[Sequence[str], Sequence[str]], pa.Table]


def rows_of(
    lake: str, table: Table, columns: Sequence[str], keys: pa.Array, progress: Callable[[str], None] = lambda _: None
) -> pa.Table:
    """Return the rows of a table's newest version that have one of some keys, in no order.

    Args:
        lake: where the table is.
        table: whose rows.
        columns: what is read of them, the key, a text, first; what a file lacks is null.
        keys: to be found.
        progress: told how many rows have been compared, in words.

    Raises:
        ChangeFeedLost: entries of the table's log are gone.
        FileNotFoundError: a file of the table is gone.
    """
    schema = pa.schema([arrow_schema(table).field(name) for name in columns])
    files, folder = filesystem(table_path(lake, table))
    anywhere = partial(_anywhere, files, schema, keys)
    is_here = isinstance(files, fs.LocalFileSystem) and not PATTERN & set(folder)
    rows, done = [schema.empty_table()], 0
    with _here(schema, keys, anywhere) if is_here else nullcontext(anywhere) as read:
        for some in _groups(feeds.snapshot(lake, table, deltalog.newest_version(lake, table))) if len(keys) else ():
            found = read([f"{folder}/{file.path}" for file in some], [FILE])
            done += sum(file.rows for file in some)
            progress(f"{done:,} rows of {table.label} are compared with the batch")
            if names := pc.unique(found.column(FILE)).to_pylist():
                rows.append(read(names, columns).cast(schema))
                progress(f"{sum(map(len, rows)):,} rows of {table.label} have keys of the batch")
    return pa.concat_tables(rows)


def _groups(files: Sequence[feeds.Added]) -> Iterator[list[feeds.Added]]:
    group: list[feeds.Added] = []
    rows = 0
    for file in files:
        group.append(file)
        rows += file.rows or file.size // ROW_BYTES
        if rows >= ROWS_AT_A_TIME or len(group) == FILES_AT_A_TIME:
            yield group
            group, rows = [], 0
    if group:
        yield group


@contextmanager
def _here(schema: pa.Schema, keys: pa.Array, otherwise: Read) -> Iterator[Read]:
    """Yield what reads columns of such rows of files of this machine, or the names of the files that have some.

    Where that takes too much memory, or these are very many keys, they are read otherwise.
    """
    import duckdb  # noqa: PLC0415 - few commands need it

    key = schema.names[0]
    with duckdb.connect() as database:
        database.execute(f"SET memory_limit = '{MEMORY}'")
        database.execute(f"SET threads = {min(THREADS, os.cpu_count() or 1)}")
        database.execute("SET temp_directory = ''")  # no spilling: files of a killed driver would stay
        database.execute("SET preserve_insertion_order = false")
        database.execute("SET TimeZone = 'UTC'")  # of times that do not say it
        database.execute("SET enable_progress_bar = false")  # it would come between the lines of the driver's log
        database.register("wanted", pa.table({key: keys}))
        database.register("lacking", schema.empty_table())

        def read(paths: Sequence[str], columns: Sequence[str]) -> pa.Table:
            plain = "hive_partitioning = false"  # a folder `partition=3` above the lake is no column
            if columns == [FILE]:
                query = f"SELECT DISTINCT filename AS {FILE} FROM read_parquet($paths, filename = true, {plain})"  # noqa: S608
            else:
                named = ", ".join(f'"{name}"' for name in columns)
                there = f"FROM read_parquet($paths, union_by_name = true, {plain})"
                query = f"SELECT {named} FROM ({there} UNION ALL BY NAME FROM lacking)"  # noqa: S608
            try:
                return database.sql(f"{query} SEMI JOIN wanted USING ({key})", params={"paths": paths}).to_arrow_table()
            except duckdb.OutOfMemoryException:
                return otherwise(paths, columns)
            except duckdb.IOException:
                if lost := next((path for path in paths if not Path(path).exists()), None):
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), lost) from None
                raise

        yield read


def _anywhere(
    files: fs.FileSystem, schema: pa.Schema, keys: pa.Array, paths: Sequence[str], columns: Sequence[str]
) -> pa.Table:
    """Read columns of such rows of files of any file system, or the name of each one's file."""
    from pyarrow import dataset  # noqa: PLC0415 - brings pandas, which few commands need

    opened = dataset.dataset(paths, schema=schema, filesystem=files, format="parquet")
    having = dataset.field(schema.names[0]).isin(keys)
    return opened.to_table(columns=list(columns), filter=having, **AHEAD)
