"""Delta tables: create them, keep their logs short, and read them and their change feed in Spark.

What is written is in `commits.py` (appends) and `merging.py` (current rows), each once a batch by its transaction id.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from pyarrow.fs import FileType

from customer_activity.catalog import Table, table_path
from customer_activity.datafiles import arrow_schema
from customer_activity.schemas import STATISTICS
from customer_activity.storage import filesystem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROPERTIES = {
    "delta.enableChangeDataFeed": "true",
    # Readers of version 1 read these tables: no deletion vectors, no column mapping.
    "delta.enableDeletionVectors": "false",
    # Never inside a commit: the batch whose turn it is would wait two or three seconds. See `checkpoint`.
    "delta.checkpointInterval": "1000000",
    # A reader may be away for as long as the log is kept without losing the files of its change feed.
    "delta.logRetentionDuration": "interval 30 days",
    "delta.deletedFileRetentionDuration": "interval 30 days",
}

# A hop that was away, or that is behind a faster one, takes what waits in batches that fit its memory.
MOST_BYTES_A_BATCH = 512 << 20  # of Parquet: some eight million purchases

COMMITS_A_CHECKPOINT = 100  # a reader that opens the table reads so many small files at most


def ensure_tables(lake: str) -> None:
    """Create the tables that are not there yet; each is a commit of its own, made here in milliseconds."""
    for table in Table:
        path = table_path(lake, table)
        if DeltaTable.is_deltatable(path):
            continue
        DeltaTable.create(
            path,
            schema=arrow_schema(table),
            mode="ignore",
            configuration={**PROPERTIES, "delta.dataSkippingStatsColumns": STATISTICS[table]},
        )
        _write_first_checksum(path)


def _write_first_checksum(path: str) -> None:
    """Write the checksum of a table that was just created: version 0, without a file.

    Delta in Spark derives each version's checksum from the one before and takes the table's metadata from it; where
    there is none it runs jobs over the log, one to read the table and another to commit, some seconds at a cold start.
    The format is that of Delta's protocol, "Version Checksum File".
    """
    files, folder = filesystem(path)
    first = f"{folder}/_delta_log/{0:020}"
    with files.open_input_stream(f"{first}.json") as stream:
        actions = {name: body for line in stream.read().splitlines() for name, body in json.loads(line).items()}
    checksum = {
        "tableSizeBytes": 0,
        "numFiles": 0,
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [],
        "domainMetadata": [],
        "metadata": actions["metaData"],
        "protocol": actions["protocol"],
        "allFiles": [],
    }
    with files.open_output_stream(f"{first}.crc") as stream:
        stream.write(json.dumps(checksum).encode())


def table_id(lake: str, table: Table) -> str:
    """Return the table's id: a table that is made anew has another one."""
    return str(DeltaTable(table_path(lake, table)).metadata().id)


def is_empty(lake: str, table: Table) -> bool:
    """Whether a table has no files."""
    return not DeltaTable(table_path(lake, table)).file_uris()


def checkpoint(lake: str, tables: Iterable[Table], *, every: int = COMMITS_A_CHECKPOINT) -> None:
    """Write a checkpoint of each table's log that has grown by so many commits, and remove expired log files.

    delta-rs does it beside the streams in some hundredths of a second, where Spark does it inside a commit.
    """
    for table in tables:
        log = DeltaTable(table_path(lake, table))
        if log.version() - _last_checkpoint(lake, table) >= every:
            log.create_checkpoint()
            log.cleanup_metadata()


def _last_checkpoint(lake: str, table: Table) -> int:
    """Return the version of a table's newest checkpoint; 0 when it has none."""
    files, folder = filesystem(table_path(lake, table))
    try:
        with files.open_input_stream(f"{folder}/_delta_log/_last_checkpoint") as stream:
            return int(json.loads(stream.read())["version"])
    except FileNotFoundError:
        return 0


def read(spark: SparkSession, lake: str, table: Table) -> DataFrame:
    """Read a table."""
    return spark.read.format("delta").load(table_path(lake, table))


def read_changes(spark: SparkSession, lake: str, table: Table, *, starting_version: int | None = None) -> DataFrame:
    """Stream a table's change feed.

    Without a starting version a new query gets the table's present rows as inserts and then every change.

    Produces the table's columns, `_change_type` (insert, update_preimage, update_postimage, delete),
    `_commit_version` and `_commit_timestamp`.
    """
    reader = (
        spark.readStream.format("delta")
        .option("readChangeFeed", "true")
        .option("maxBytesPerTrigger", MOST_BYTES_A_BATCH)
    )
    if starting_version is None and _has_first_version(lake, table):
        starting_version = 0  # the same rows, without a job that works out which files the table has
    if starting_version is not None:
        reader = reader.option("startingVersion", starting_version)
    return reader.load(table_path(lake, table))


def _has_first_version(lake: str, table: Table) -> bool:
    """Whether a table's log still begins at the beginning."""
    files, folder = filesystem(table_path(lake, table))
    return bool(files.get_file_info(f"{folder}/_delta_log/{0:020}.json").type != FileType.NotFound)
