"""Bring an index to a place in a table's history, from any earlier state.

The invariant of silver and gold: before a batch is worked on, the index holds each table that it knows exactly as
it is where the batch begins, and after it exactly as it is where the batch ends. What an index held may have been lost,
be behind or ahead, be of a table that was restored from a backup, or be half made: `bring` looks, and takes the
shortest way that is sure:

1. The place is held already.
2. The index is behind it in the same history: it takes what the commits in between added, some at a time.
3. Else it is seeded from the table as it was at that version, in the order of keys; where files of that version are
   gone, from the newest version less what landed later.

Each part is a transaction, so after a kill it goes on where it was.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow.fs import FileType

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import ChangeFeedLost
from customer_activity.lake import deltalog, feeds, history
from customer_activity.lake.datafiles import in_parts
from customer_activity.lake.deltalog import Position
from customer_activity.lake.microbatch import metadata_of
from customer_activity.state.index import Index
from customer_activity.state.keyed import Holding
from customer_activity.storage.filesystem import filesystem

if TYPE_CHECKING:
    import duckdb
    from pyarrow import dataset

OnProgress = Callable[[str], None]

ROWS_AT_A_TIME = 100_000  # a transaction's; keys put in sorted by so many at a time make a tree grow fast
BYTES_AT_A_TIME = 64 << 20  # at most, of Arrow: a profile may have texts of a megabyte
VECTOR_ROWS = 2_048  # that DuckDB hands out at a time, as it has them
SEED_MEMORY = "1GB"  # of the sort; the rest is on the index's disk
READ_ROWS = 65_536  # at a time, of the rows that are sorted
TELL_SECONDS = 5.0  # between two words on how far reading is


def bring(index: Index, lake: str, holding: Holding, to: Position, progress: OnProgress = lambda _: None) -> None:
    """Have an index hold a table exactly at a place.

    Args:
        index: what to bring there.
        lake: where the table is.
        holding: what the index holds of it.
        to: the place; version -1 is before the table's first.
        progress: told how far it is, in words, at least every few seconds.

    Raises:
        ChangeFeedLost: neither the table at that version nor the newest one tells what was in it.
        ForeignCommit: a commit on the way there is none of the pipeline's.
        IndexDamaged: the index's file cannot be read.
    """
    with index.checked():
        held, begun = index.position(holding.table), index.seeding(holding.table)
    if held == to and (to.commit or to.version < 0):
        return
    if held is None and begun is not None and begun[0] != to and is_on_the_way(lake, holding.table, begun[0], to):
        with suppress(ChangeFeedLost):  # its files are gone meanwhile
            _seed(index, lake, holding, begun[0], progress)
            held = begun[0]
    if held is not None and is_on_the_way(lake, holding.table, held, to):
        try:
            _follow(index, lake, holding, held, to, progress)
        except ChangeFeedLost:  # compacted away, and the files removed
            _seed(index, lake, holding, to, progress)
    else:
        _seed(index, lake, holding, to, progress)


def is_on_the_way(lake: str, table: Table, held: Position, to: Position) -> bool:
    """Whether a place is in the history of another one, as the log tells it."""
    if held.table_id != to.table_id or held.version > to.version:
        return False
    if held.version < 0:
        return True
    return bool(held.commit) and deltalog.position(lake, table, held.table_id, held.version) == held


def _follow(index: Index, lake: str, holding: Holding, held: Position, to: Position, progress: OnProgress) -> None:
    """Take what the commits between two places added."""
    table = holding.table
    feed = feeds.read(lake, {table: holding.columns}, {table: (held.version, to.version)})
    done = 0
    for part in feed.parts(files=feeds.SMALL_BATCH_FILES):
        with index.change() as connection:
            for rows in in_parts(part.batches(table, holding.columns), ROWS_AT_A_TIME, BYTES_AT_A_TIME):
                holding.take(connection, rows)
                done += rows.num_rows
                progress(f"{table.label}: {done:,} rows that came since are in the local state")
            index.advance(table, part.end(table, to.table_id))
        after, upto = part.versions[table]
        if upto > after:
            progress(f"{table.label}: version {upto:,} of {to.version:,} is in the local state")


def _seed(index: Index, lake: str, holding: Holding, to: Position, progress: OnProgress) -> None:
    """Read the table as it was at a place, in the order of keys; go on after the last key where that was begun."""
    table = holding.table
    begun = index.seeding(table)
    if begun is not None and begun[0] == to and to.commit:
        last_key = begun[1]
    else:
        last_key = None
        with index.change() as connection:
            index.forget(table)
            connection.execute(holding.clear)
            index.seed(table, to, None)
    if to.version > 0:  # version 0 is the empty table
        with _sorting(index) as database:
            for rows in _in_order_of_keys(database, _files(lake, holding, to.version), holding, last_key, progress):
                with index.change() as connection:
                    connection.executemany(
                        holding.insert, zip(*(column.to_pylist() for column in rows.columns), strict=True)
                    )
                    index.seed(table, to, rows.column(0)[-1].as_py())
    with index.change():
        index.forget(table)
        index.advance(table, to)


def sorting(folder: Path, name: str) -> Path:
    """Return where the rows of an index are sorted that do not fit the memory."""
    return folder / f"sorting-{name}"


@contextmanager
def _sorting(index: Index) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database that sorts what does not fit its memory on the index's disk."""
    import duckdb  # noqa: PLC0415 - few commands need it

    folder = sorting(index.path.parent, index.path.stem)
    if folder.exists():  # of one that was killed
        shutil.rmtree(folder)
    with duckdb.connect(config={"memory_limit": SEED_MEMORY, "temp_directory": str(folder)}) as database:
        database.execute("SET enable_progress_bar = false")  # it would come between the lines of the driver's log
        database.execute("SET preserve_insertion_order = false")
        database.execute("SET arrow_large_buffer_size = true")  # texts of a vector may come to more than 2 GB
        yield database


def _files(lake: str, holding: Holding, version: int) -> dataset.Dataset:
    """Open the rows that a table had at a version.

    Raises:
        ChangeFeedLost: they cannot be told any more.
    """
    from pyarrow import dataset  # noqa: PLC0415 - brings pandas, which few commands need

    table = holding.table
    files, folder = filesystem(table_path(lake, table))
    there = arrow_schema(table)
    told = [name for name in ("landing",) if name in there.names]
    schema = pa.schema([there.field(name) for name in dict.fromkeys((*holding.columns, *told))])

    def opened(at: int) -> dataset.Dataset | None:
        paths = [f"{folder}/{file.path}" for file in feeds.snapshot(lake, table, at)]
        if any(info.type == FileType.NotFound for info in files.get_file_info(paths)):
            return None
        return dataset.dataset(paths, schema=schema, filesystem=files, format="parquet")

    try:
        found = opened(version)
    except ChangeFeedLost:
        found = None
    if found is not None:
        return found
    newest = opened(deltalog.newest_version(lake, table))
    landing = _newest_landing(lake, holding, version) if told else None
    if newest is None or landing is None:
        raise ChangeFeedLost(
            f"{table.label}: the files that it had at version {version} are gone, so what was in it is not known",
            remedy=feeds.LOST,
        )
    is_earlier = dataset.field("landing").is_null() | (dataset.field("landing") <= landing)
    return newest.filter(is_earlier)


def _newest_landing(lake: str, holding: Holding, version: int) -> int | None:
    """Return the newest landing whose records were in a table at a version, as its commits tell; None: they do not."""
    table = holding.table
    for said in history.backwards(lake, table, version):
        note = metadata_of(said.get("userMetadata"))
        if note.get("query") in topology.writers(table):
            landed = note.get(deltalog.LANDED, {}).get(holding.events.label)
            return None if landed is None else int(landed)
    return None


def _in_order_of_keys(
    database: duckdb.DuckDBPyConnection,
    snapshot: dataset.Dataset,
    holding: Holding,
    last_key: str | None,
    progress: OnProgress,
) -> Iterator[pa.Table]:
    """Yield the index's rows in the order of keys, those after one, or from it on."""
    import duckdb  # noqa: PLC0415 - few commands need it

    where = "" if last_key is None else f"WHERE {holding.key} {holding.goes_on_with} $last"
    given = {} if last_key is None else {"last": last_key}
    rows, label = snapshot.count_rows(), holding.table.label
    failures: list[BaseException] = []
    rows_read = _told(
        snapshot, lambda done: progress(f"{label}: {done:,} of {rows:,} rows are read for the local state"), failures
    )
    database.register("snapshot", pa.RecordBatchReader.from_batches(snapshot.schema, rows_read))
    query = f"{holding.seed.format(where=where)} ORDER BY {holding.key}"
    done = 0
    try:
        read = database.sql(query, params=given).to_arrow_reader(min(VECTOR_ROWS, ROWS_AT_A_TIME))
        for some in in_parts(read, ROWS_AT_A_TIME, BYTES_AT_A_TIME):
            yield some
            done += some.num_rows
            progress(f"{label}: {done:,} keys of {rows:,} rows are in the local state")
    except duckdb.Error as error:
        raise failures[0] if failures else error from error


def _told(
    snapshot: dataset.Dataset, progress: Callable[[int], None], failures: list[BaseException]
) -> Iterator[pa.RecordBatch]:
    """Yield a table's rows as they are read, and tell how far that is: a sort that hangs is not called alive.

    DuckDB cannot tell it: its `query_progress` is -1 for whatever it reads from Arrow. Nor does it pass on which error
    ended the reading, so that is noted.
    """
    from pyarrow import dataset  # noqa: PLC0415 - brings pandas, which few commands need

    read, due = 0, time.monotonic()
    # Without the usual sixteen batches, four files and whole row groups ahead, which take more memory than the sort.
    options = dataset.ParquetFragmentScanOptions(pre_buffer=False)
    try:
        for batch in snapshot.to_batches(
            batch_size=READ_ROWS, batch_readahead=1, fragment_readahead=1, fragment_scan_options=options
        ):
            yield batch
            read += batch.num_rows
            if time.monotonic() >= due:
                progress(read)
                due = time.monotonic() + TELL_SECONDS
    except BaseException as error:
        failures.append(error)
        raise
