"""Read what commits added to gold in the order in which it is published: by version, file and row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import ChangeFeedLost
from customer_activity.kafka.marker import Marker
from customer_activity.lake import deltalog, feeds
from customer_activity.lake.feeds import Added, Feed
from customer_activity.storage.filesystem import filesystem
from customer_activity.streams.publish.parts import VERSION, numbered

RESYNC = "find out what removed it; `activity resync publish --reason …` sends what differs"
TABLE = Table.ACTIVITY_CHANGES
KEY = ("customer_id", "view_version")
SMALL_BYTES = 1 << 20  # files up to this size are read whole
TOGETHER_FILES = 256
TOGETHER_BYTES = 4 << 20  # of Parquet
AT_ONCE = 8  # on S3 each waits for an answer
ROWS_AT_A_TIME = 8_192
BYTES_AT_A_TIME = 16 << 20  # of columns as they are in the file, decompressed


def rows(feed: Feed, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of gold.activity_changes that are in a feed: the columns, `_commit_version` and `_row`.

    Raises:
        ChangeFeedLost: a file is gone, or the log begins later: a table as it is has no order of changes.
    """
    if feed.added[TABLE] and not feed.commits.get(TABLE):
        raise ChangeFeedLost(f"{TABLE.label}: the log does not reach back to what is not published yet", remedy=RESYNC)
    files, folder = filesystem(table_path(feed.lake, TABLE))
    schema = pa.schema([arrow_schema(TABLE).field(name) for name in columns])
    return numbered(_read(files, folder, feed.added[TABLE], schema))


class Corrections(NamedTuple):
    """What corrections have retracted of gold's changes since some version.

    Attributes:
        upto: the version of the newest; -1 where there is none.
        retracted: by customer and view version, the version that retracted it last.
    """

    upto: int
    retracted: Mapping[tuple[str | None, int | None], int]


NONE = Corrections(-1, {})


def corrections(lake: str, since: int) -> Corrections:
    """Return what has been retracted since a version.

    Raises:
        ChangeFeedLost: what was kept of a correction is gone.
        Corrected: one has put right what a foreign commit changed: the feed does not tell what is wrong on the topic.
        ForeignCommit: gold has a commit that is none of the pipeline's.
    """
    feed = feeds.read(lake, {TABLE: KEY}, {TABLE: (since, deltalog.newest_version(lake, TABLE))}, even_retracted=True)
    found = feed.corrections
    files, folder = filesystem(table_path(lake, TABLE))
    schema = pa.schema([arrow_schema(TABLE).field(name) for name in KEY])
    retracted: dict[tuple[str | None, int | None], int] = {}
    for file in found:
        for rows in _read(files, folder, [file] if file.rows else [], schema):
            retracted |= dict.fromkeys(zip(*(rows.column(name).to_pylist() for name in KEY), strict=True), file.version)
    return Corrections(max((file.version for file in found), default=-1), retracted)


def standing(changes: Iterable[pa.Table], corrections: Corrections) -> Iterator[pa.Table]:
    """Leave out the changes that a later correction retracts."""
    for rows in changes:
        if not corrections.retracted:
            yield rows
            continue
        told = zip(*(rows.column(name).to_pylist() for name in (*KEY, VERSION)), strict=True)
        stands = [corrections.retracted.get((customer, version), -1) <= commit for customer, version, commit in told]
        yield rows.filter(pa.array(stands, pa.bool_()))


def named(feed: Feed, marker: Marker) -> Marker:
    """Add the own ids of the commits that made its version and the one after it, as far as that is begun."""
    begun = _commit(feed, marker, marker.version + 1) if marker.rows else ""
    return marker._replace(commit=_commit(feed, marker, marker.version), begun=begun)


def _commit(feed: Feed, marker: Marker, version: int) -> str:
    """Return the own id of a commit, from a feed or its log."""
    told = feed.commits.get(TABLE, {}).get(version)
    return told.commit if told else deltalog.position(feed.lake, TABLE, marker.table_id, version).commit


def _read(files: fs.FileSystem, folder: str, added: Sequence[Added], schema: pa.Schema) -> Iterator[pa.Table]:
    try:
        yield from _in_groups(files, folder, added, schema)
    except FileNotFoundError as error:
        raise ChangeFeedLost(
            f"{TABLE.label}: files are gone that versions {added[0].version} to {added[-1].version} added, and they "
            "are not published yet",
            remedy=RESYNC,
        ) from error


def _in_groups(files: fs.FileSystem, folder: str, added: Sequence[Added], schema: pa.Schema) -> Iterator[pa.Table]:
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="read") as pool:
        for group in _together(added):
            if len(group) == 1 and group[0].size > SMALL_BYTES:
                yield from _in_batches(files, folder, group[0], schema)
                continue
            found = list(pool.map(partial(_whole, files, folder, schema), group))
            counts = [part.num_rows for part in found]
            versions = np.repeat(np.asarray([file.version for file in group], np.int64), counts)
            yield pa.concat_tables(found).combine_chunks().append_column(VERSION, pa.array(versions))


def _together(added: Iterable[Added]) -> Iterator[list[Added]]:
    """Put small files together; a large one stays alone."""
    group: list[Added] = []
    size = 0
    for file in added:
        if group and (file.size > SMALL_BYTES or len(group) == TOGETHER_FILES or size + file.size > TOGETHER_BYTES):
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size
        if file.size > SMALL_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _whole(files: fs.FileSystem, folder: str, schema: pa.Schema, file: Added) -> pa.Table:
    return pq.read_table(f"{folder}/{file.path}", schema=schema, filesystem=files, use_threads=False)


def _in_batches(files: fs.FileSystem, folder: str, file: Added, schema: pa.Schema) -> Iterator[pa.Table]:
    with pq.ParquetFile(f"{folder}/{file.path}", filesystem=files) as opened:
        for number in range(opened.num_row_groups):
            group = opened.metadata.row_group(number)
            row_bytes = max(1, group.total_byte_size // max(1, group.num_rows))
            fitting = max(1, min(ROWS_AT_A_TIME, BYTES_AT_A_TIME // row_bytes))
            for batch in opened.iter_batches(fitting, row_groups=[number], columns=schema.names, use_threads=False):
                part = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
                version = pa.repeat(pa.scalar(file.version, pa.int64()), part.num_rows)
                yield part.append_column(VERSION, version)
