"""Commit files that this process or executors have written: one entry in the table's log, without a Spark job.

Spark's own append of 500 rows plans a query, runs a job and takes most of a second on two busy cores; the same rows as
a file written here and a commit through Delta's own transaction (`jvm.py`) take a twentieth of it. The transaction is
the same class that Spark's writer uses, so conflicts, checksums, checkpoints and the change feed are Delta's.

A file that was written and never committed (a crash between) belongs to nobody: VACUUM removes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import DeltaTable

from customer_activity.catalog import Table, lease_id, table_path
from customer_activity.errors import TransientError
from customer_activity.lake import jvm
from customer_activity.lake.datafiles import DataFile, FileWriter
from customer_activity.lake.failpoints import FailPoint, nowhere
from customer_activity.lake.feeds import Added
from customer_activity.lease import lease
from customer_activity.storage.filesystem import settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from customer_activity.lake.microbatch import MicroBatch


class Replaced(NamedTuple):
    """What new files take the place of.

    Attributes:
        version: of the table, which was read for them.
        files: all that it has at that version, or none of them.
        changed: files with the rows that differ, for its change data feed; without any the feed has all rows of both.
    """

    version: int
    files: Sequence[Added]
    changed: Sequence[DataFile]


def commit(
    spark: SparkSession,
    lake: str,
    table: Table,
    files: Sequence[DataFile | None],
    batch: MicroBatch,
    sources: Iterable[Table] | None = None,
    *,
    replaced: Replaced | None = None,
) -> int | None:
    """Add files to a table, once for this batch; with no files the entry carries the batch's accounting alone.

    None stands for a file that was not needed. `sources` are the tables whose rows came to it (see
    `MicroBatch.transaction`). Returns the new version; None when the batch is in the table already.

    Raises:
        LeaseLost: another driver has taken over.
        TransientError: the table is not at the version any more that is `replaced`. Where that happens only while the
            entry is written, Delta's own exception is raised.
    """
    path = table_path(lake, table)
    transaction = jvm.begin(spark, path)
    application, number = batch.transaction(table, sources)
    batch.commits += 1
    if jvm.last_version(transaction, application) >= number:
        return None
    now = int(time.time() * 1000)
    versions = {application: number}
    if (epoch := batch.fencing_epoch()) is not None:
        # Noted as read, too: a successor's commit from here on fails this one.
        if jvm.last_version(transaction, batch.lease_id) > epoch:
            raise lease.lost(batch.query, epoch)
        versions[batch.lease_id] = epoch
    noted = [{"txn": {"appId": name, "version": version, "lastUpdated": now}} for name, version in versions.items()]
    actions = [{"add": _as_added(file, now)} for file in files if file is not None]
    if replaced is not None:
        if (at := jvm.read_all(transaction)) != replaced.version:
            raise TransientError(
                f"{table.label} is at version {at}, and what was to be committed was made from {replaced.version}",
                remedy="start again: it is made from the newest one",
            )
        actions += [{"remove": _as_removed(file, now)} for file in replaced.files]
        actions += [{"cdc": _as_changed(file)} for file in replaced.changed]
    metadata = batch.metadata()
    batch.failpoint(FailPoint.STAGED)
    committed = jvm.commit(spark, transaction, [*noted, *actions], metadata, is_append=replaced is None)
    # Before the checkpoint says that the batch is through.
    settle(f"{path}/_delta_log/{committed:020}.json")
    batch.failpoint(FailPoint.COMMITTED)
    return committed


def rewrite(
    spark: SparkSession,
    lake: str,
    table: Table,
    removed: Sequence[Added],
    files: Sequence[DataFile],
    *,
    fencing_epochs: Mapping[str, Callable[[], int | None]],
    metadata: str,
    failpoint: Callable[[FailPoint], None] = nowhere,
) -> int:
    """Put files in the place of others that have the same rows; no reader of the change feed sees anything of it.

    What was appended since the files were listed is no conflict. The caller holds the table's writers meanwhile: the
    epochs of their leases are noted, as with each append of theirs, and one that lay between would be a conflict.

    Args:
        spark: the session.
        lake: where the table is.
        table: which one.
        removed: files that the table had when they were listed.
        files: that take their place.
        fencing_epochs: by query that writes the table, what tells the epoch of its lease; None: it has none.
        metadata: the commit's `userMetadata`.
        failpoint: called before the commit.

    Returns:
        The new version.

    Raises:
        LeaseLost: another driver has taken over.
        TransientError: somebody else has removed one of the files. Where that, or a successor's commit, happens only
            while the entry is written, Delta's own exception is raised.
    """
    path = table_path(lake, table)
    transaction = jvm.begin(spark, path)
    now = int(time.time() * 1000)
    noted = []
    for query, fencing_epoch in fencing_epochs.items():
        if (epoch := fencing_epoch()) is None:
            continue
        # Noted as read, too: from here on a successor's commit fails this one, whose files its VACUUM may have removed.
        if jvm.last_version(transaction, lease_id(query)) > epoch:
            raise lease.lost(query, epoch)
        noted.append({"txn": {"appId": lease_id(query), "version": epoch, "lastUpdated": now}})
    there = pa.table(DeltaTable(path, version=jvm.read_version(transaction)).get_add_actions()).column("path")
    if gone := {file.path for file in removed}.difference(map(unquote, there.to_pylist())):
        raise TransientError(
            f"somebody else has removed {len(gone)} of {len(removed)} files that were rewritten from {table.label}",
            remedy="nothing: what the table has by then is rewritten later",
        )
    actions = [
        *noted,
        *({"remove": _as_removed(file, now, data_change=False)} for file in removed),
        *({"add": _as_added(file, now, data_change=False)} for file in files),
    ]
    failpoint(FailPoint.STAGED)
    committed = jvm.commit(spark, transaction, actions, metadata)
    settle(f"{table_path(lake, table)}/_delta_log/{committed:020}.json")
    return committed


def _as_removed(file: Added, now: int, *, data_change: bool = True) -> dict[str, Any]:
    return {
        "path": quote(file.path),
        "deletionTimestamp": now,
        "dataChange": data_change,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": file.size,
    }


def _as_added(file: DataFile, now: int, *, data_change: bool = True) -> dict[str, Any]:
    return {
        "path": file.path,
        "partitionValues": {},
        "size": file.size,
        "modificationTime": now,
        "dataChange": data_change,
        "stats": file.stats,
    }


def _as_changed(file: DataFile) -> dict[str, Any]:
    return {"path": file.path, "partitionValues": {}, "size": file.size, "dataChange": False}


def newest(lake: str, table: Table, batch: MicroBatch, sources: Iterable[Table] | None = None) -> int | None:
    """Return the greatest number under which batches like this one are in a table; None when there is none."""
    application, _ = batch.transaction(table, sources)
    return DeltaTable(table_path(lake, table)).transaction_version(application)


def append(
    spark: SparkSession,
    lake: str,
    table: Table,
    rows: pa.Table | pa.RecordBatch,
    batch: MicroBatch,
    sources: Iterable[Table] | None = None,
) -> int | None:
    """Append rows to a table, once for this batch; see `commit`."""
    writer = FileWriter(lake, table)
    writer.write(rows)
    return commit(spark, lake, table, [writer.close()], batch, sources)
