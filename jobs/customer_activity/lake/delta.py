"""Delta tables: create them, and read them and their change feed in Spark.

What is written is in `commits.py` (appends, and current rows by executors) and `merging.py` (current rows by the
driver), each once a batch by its transaction id.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from pyarrow.fs import FileType

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import TABLES, arrow_schema
from customer_activity.errors import LakeOfAnotherRelease, SettingsError
from customer_activity.lake import corrections, layout
from customer_activity.lake.checksums import write_checksum
from customer_activity.storage.filesystem import filesystem, keep_private, settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROPERTIES = {
    "delta.enableChangeDataFeed": "true",
    # Readers of version 1 read these tables: no deletion vectors, no column mapping.
    "delta.enableDeletionVectors": "false",
    # Never inside a commit: the batch whose turn it is would wait two or three seconds. See `maintenance`.
    "delta.checkpointInterval": "1000000",
    # Nobody but `maintenance` shortens a log: it knows the readers.
    "delta.enableExpiredLogCleanup": "false",
}

# The tables are for everyone with access to the lake. The indexes have names and addresses by customer, outside of any
# table's rights, and the others are the driver's alone.
PRIVATE_FOLDERS = ("_index", "_state", "_checkpoints", "_history", "_audit", "_corrections")

VERSIONS = "customeractivity.ChangeFeedVersions"  # compiled by set-up: infra/spark

# A stream that was away, or that is behind a faster one, takes what waits in batches of a few minutes at most, of
# whole versions. A checkpoint of an earlier release may end inside one (offsets.OffsetRange.versions).
MOST_BYTES_A_BATCH = 512 << 20  # of Parquet: some eight million purchases
MOST_FILES_A_BATCH = 8_192  # of small commits, worked on in parts: before it begins, Spark reads each of them twice


def ensure_tables(lake: str) -> None:
    """Create the tables that are not there yet; each is a commit of its own, made here in milliseconds.

    What lies beside them on a local lake is readable by its owner alone from then on.

    Raises:
        CorrectionUnfinished: a correction was interrupted.
        LakeOfAnotherRelease: those that are there are not of this release.
    """
    corrections.refuse_unfinished(lake)
    layout.refuse_others(lake)
    for folder in PRIVATE_FOLDERS if "://" not in lake else ():
        keep_private(Path(lake, folder))
    _create_missing(lake)


def complete_tables(lake: str) -> None:
    """Create the tables that are not there yet of a lake whose correction is to be finished.

    Raises:
        LakeOfAnotherRelease: those that are there are not of this release.
    """
    try:
        layout.refuse_others(lake)
    except LakeOfAnotherRelease as error:
        raise LakeOfAnotherRelease(
            f"{error.what}; a correction of it was interrupted",
            remedy="finish it with the release that began it (`activity rebuild --apply` there), then migrate",
        ) from None
    _create_missing(lake)


def _create_missing(lake: str) -> None:
    for table in topology.tables():
        if not DeltaTable.is_deltatable(table_path(lake, table)):
            create(lake, table)


def create(lake: str, table: Table) -> None:
    """Create a table."""
    path = table_path(lake, table)
    DeltaTable.create(
        path,
        schema=arrow_schema(table),
        mode="ignore",
        configuration={
            **PROPERTIES,
            "delta.dataSkippingStatsColumns": ",".join(TABLES[table].statistics),
            # As long as `maintenance` keeps files that were replaced: each is an entry of every checkpoint.
            "delta.deletedFileRetentionDuration": f"interval {TABLES[table].kept.files_hours} hours",
            layout.PROPERTY: str(layout.CURRENT),
        },
        raise_if_key_not_exists=False,  # our own is none of Delta's
    )
    write_checksum(path, 0)
    settle(f"{path}/_delta_log/{0:020}.json")


def require_tables(lake: str) -> None:
    """Make sure that there is a lake, and that its tables belong together.

    Raises:
        SettingsError: there is none.
        CorrectionUnfinished: a correction was interrupted.
        LakeOfAnotherRelease: the lake is not of this release.
    """
    corrections.refuse_unfinished(lake)
    layout.refuse_others(lake)
    if not DeltaTable.is_deltatable(table_path(lake, Table.PURCHASE_EVENTS)):
        raise SettingsError(f"there are no tables at {lake}", remedy="set ACTIVITY_LAKE to the lake that you mean")


def table_id(lake: str, table: Table) -> str:
    """Return the table's id: a table that was dropped and created has another one."""
    return str(DeltaTable(table_path(lake, table)).metadata().id)


def read(spark: SparkSession, lake: str, table: Table) -> DataFrame:
    """Read a table."""
    return spark.read.format("delta").load(table_path(lake, table))


def read_versions(
    spark: SparkSession, lake: str, table: Table, table_id: str, *, starting_version: int | None
) -> DataFrame:
    """Stream the versions of a table, for Spark to plan batches of: whole versions, and no rows.

    Delta's own source says the same, and reads the log, makes a table state and plans a DataFrame of the rows for it:
    see infra/spark/ChangeFeedVersions.scala, and ADR 52. Their offsets are the same.

    Args:
        spark: the session.
        lake: where the table is.
        table: which one.
        table_id: the table's; a checkpoint of another one is refused.
        starting_version: the first version that a stream without a checkpoint reads; None where its log was shortened:
            all versions up to the newest one are its first batch.

    Produces `_commit_version`.
    """
    reader = spark.readStream.format(VERSIONS).option("tableId", table_id)
    reader = reader.option("maxFilesPerTrigger", MOST_FILES_A_BATCH).option("maxBytesPerTrigger", MOST_BYTES_A_BATCH)
    return reader.option("startingVersion", starting_version or 0).load(table_path(lake, table))


def begins(lake: str, tables: Iterable[Table]) -> dict[Table, int | None]:
    """Return the first version that a first batch reads of each table; None where a log was shortened."""
    return {table: first_version(lake, table) for table in tables}


def first_version(lake: str, table: Table) -> int | None:
    """Return 0 where a table's log still begins at the beginning, None where it was cleaned."""
    files, folder = filesystem(table_path(lake, table))
    return None if files.get_file_info(f"{folder}/_delta_log/{0:020}.json").type == FileType.NotFound else 0
