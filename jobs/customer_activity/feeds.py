"""Read a batch's change feeds from the files that its commits added: no plan, no job, and no row through the JVM.

Spark plans which versions a batch has, and notes them in the checkpoint. The tables of the path are only appended to,
so the change feed of some versions is what their commits added: the files that `_delta_log/<version>.json` names. A
compaction's files are none of them (`dataChange` is false). Where that cannot be said, Spark's change feed is asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import dataset, fs
from pyspark.sql import DataFrame

from customer_activity import microbatch
from customer_activity.catalog import Table, table_path
from customer_activity.datafiles import arrow_schema
from customer_activity.storage import filesystem

SMALL_BATCH_FILES = 64
MANY_VERSIONS = 4_096  # each is a log entry to read; a hop that is further behind lets Spark list them
VERSION = pa.field("_commit_version", pa.int64())
SIDE = pa.field("side", pa.string())
READ_AHEAD = 4  # batches and files that are read before they are asked for

Versions = Mapping[Table, tuple[int, int]]


class Feed(Protocol):
    """What a batch reads of some tables."""

    @property
    def is_small(self) -> bool:
        """Whether all of it is cheap to hold."""
        ...

    def rows(self) -> pa.Table:
        """Return everything: `side` (the table's label), the columns of all, `_commit_version`."""
        ...

    def batches(self, table: Table, columns: Sequence[str], *, after: int = -1) -> Iterator[pa.RecordBatch]:
        """Yield one table's rows, those of versions after one; as many at a time as a large batch leaves room for."""
        ...

    def bounds(self, table: Table, *, after: int = -1) -> tuple[int, int] | None:
        """Return the first and the last version after one that has rows; None when there is none."""
        ...


class Added(NamedTuple):
    """A file that a commit added to a table."""

    version: int
    path: str
    size: int


class Files:
    """A feed that is read from the files that commits added."""

    def __init__(
        self, lake: str, columns: Mapping[Table, Sequence[str]], added: Mapping[Table, Sequence[Added]]
    ) -> None:
        """Open nothing yet."""
        self.lake = lake
        self.columns = columns
        self.added = added

    @property
    def is_small(self) -> bool:
        """Whether they are few and short."""
        every = [*chain.from_iterable(self.added.values())]
        return len(every) <= SMALL_BATCH_FILES and sum(file.size for file in every) <= microbatch.SMALL_BATCH_BYTES

    def rows(self) -> pa.Table:
        """Read all files, one after the other."""
        parts = [part for table in self.added for part in self._rows(table)]
        return pa.concat_tables(parts, promote_options="default")

    def batches(self, table: Table, columns: Sequence[str], *, after: int = -1) -> Iterator[pa.RecordBatch]:
        """Read few files one after the other, many on all cores, some row groups ahead of who asks."""
        files, folder = filesystem(table_path(self.lake, table))
        paths = [f"{folder}/{file.path}" for file in self.added[table] if file.version > after]
        schema = pa.schema([arrow_schema(table).field(name) for name in columns])
        if self.is_small or not paths:
            for path in paths:
                yield from pq.read_table(path, schema=schema, filesystem=files).to_batches()
            return
        found = dataset.dataset(paths, schema=schema, filesystem=files, format="parquet")
        yield from found.to_batches(batch_readahead=READ_AHEAD, fragment_readahead=READ_AHEAD)

    def bounds(self, table: Table, *, after: int = -1) -> tuple[int, int] | None:
        """Tell it from the commits."""
        versions = [file.version for file in self.added[table] if file.version > after]
        return (min(versions), max(versions)) if versions else None

    def _rows(self, table: Table) -> Iterator[pa.Table]:
        """Yield the rows of each file; an empty table first, which has the types."""
        files, folder = filesystem(table_path(self.lake, table))
        schema = pa.schema([arrow_schema(table).field(name) for name in self.columns[table]])
        yield _labelled(schema.empty_table(), table, 0)
        for file in self.added[table]:
            rows = pq.read_table(f"{folder}/{file.path}", schema=schema, filesystem=files)
            yield _labelled(rows, table, file.version)


class Rows:
    """A feed that Spark has brought here."""

    def __init__(self, rows: pa.Table) -> None:
        """Take the rows; where they are of one table alone, without `side`."""
        self.held = rows

    @property
    def is_small(self) -> bool:
        """Whether they are few."""
        return bool(self.held.num_rows <= microbatch.SMALL_BATCH_ROWS)

    def rows(self) -> pa.Table:
        """Return them."""
        return self.held

    def batches(self, table: Table, columns: Sequence[str], *, after: int = -1) -> Iterator[pa.RecordBatch]:
        """Choose from them."""
        return iter(self._of(table, after).select(list(columns)).to_batches())

    def bounds(self, table: Table, *, after: int = -1) -> tuple[int, int] | None:
        """Tell it from the rows."""
        found = pc.min_max(self._of(table, after).column(VERSION.name)).as_py()
        return None if found["min"] is None else (found["min"], found["max"])

    def _of(self, table: Table, after: int) -> pa.Table:
        chosen = self.held
        if SIDE.name in chosen.column_names:
            chosen = chosen.filter(pc.equal(chosen.column(SIDE.name), table.label))
        return chosen.filter(pc.greater(chosen.column(VERSION.name), after)) if after >= 0 else chosen


def read(changes: DataFrame, lake: str, columns: Mapping[Table, Sequence[str]], versions: Versions) -> Feed:
    """Return a batch's feed: from the files that commits added, else as Spark reads it.

    Args:
        changes: the feed as Spark has planned it: nobody runs that plan where files tell.
        lake: where the tables are.
        columns: what to read of each table; one that a table lacks is null in its rows.
        versions: by table, the version that was read last and the newest of the batch; empty when they are not known.
    """
    return appended(lake, columns, versions) or Rows(microbatch.fetched(changes))


def appended(lake: str, columns: Mapping[Table, Sequence[str]], versions: Versions) -> Files | None:
    """Return what was appended to some tables in a batch's versions.

    None when the versions are not known, there are too many, a commit did more than append, or its entry or a file of
    it is gone: Spark, asked instead, says which of its change feed is lost.
    """
    if not versions:
        return None
    found: dict[Table, list[Added]] = {}
    for table in columns:
        added = _added(lake, table, *versions[table])
        if added is None:
            return None
        found[table] = added
    return Files(lake, columns, found)


def _added(lake: str, table: Table, after: int, upto: int) -> list[Added] | None:
    """List the files that commits added; None when that cannot be said, is not all they did, or one is gone."""
    if upto - after > MANY_VERSIONS:
        return None
    files, folder = filesystem(table_path(lake, table))
    added: list[Added] = []
    for version in range(after + 1, upto + 1):
        actions = _actions(files, f"{folder}/_delta_log/{version:020}.json")
        if actions is None:
            return None
        for action in actions:
            if "cdc" in action or action.get("remove", {}).get("dataChange"):
                return None
            if action.get("add", {}).get("dataChange"):
                added.append(Added(version, unquote(action["add"]["path"]), action["add"]["size"]))
    infos = files.get_file_info([f"{folder}/{file.path}" for file in added])
    return None if any(info.type == fs.FileType.NotFound for info in infos) else added


def _actions(files: fs.FileSystem, path: str) -> list[dict[str, Any]] | None:
    try:
        with files.open_input_stream(path) as stream:
            return [json.loads(line) for line in stream.read().splitlines()]
    except FileNotFoundError:
        return None


def _labelled(rows: pa.Table, table: Table, version: int) -> pa.Table:
    rows = rows.append_column(SIDE, pa.repeat(pa.scalar(table.label), rows.num_rows))
    return rows.append_column(VERSION, pa.repeat(pa.scalar(version, pa.int64()), rows.num_rows))
