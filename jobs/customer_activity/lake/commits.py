"""Append rows that are in this process: one Parquet file and one entry in the table's log, no Spark job.

Spark's own append of 500 rows plans a query, runs a job and takes most of a second on two busy cores; the same rows as
a file written here and a commit through Delta's own transaction take a twentieth of it. The transaction is the same
class that Spark's writer uses, so conflicts, checksums, checkpoints and the change feed are Delta's.

A file that was written and never committed (a crash between) belongs to nobody: VACUUM removes it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

from customer_activity.catalog import Table, table_path
from customer_activity.lake.datafiles import DataFile, FileWriter
from customer_activity.lake.failpoints import FailPoint
from customer_activity.lake.jvm import jvm
from customer_activity.lease import lease
from customer_activity.storage.filesystem import settle

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject, JVMView
    from pyspark.sql import SparkSession

    from customer_activity.lake.microbatch import MicroBatch


class _Java(NamedTuple):
    """What is needed of Delta's Java side, looked up once: each look-up by name asks the JVM about every dot."""

    delta_log: JavaObject
    action: JavaObject
    write: JavaObject
    append: JavaObject
    some: JavaObject
    none: JavaObject
    to_scala: JavaObject
    array_list: JavaObject


@cache
def _java(java: JVMView) -> _Java:
    # By JVM, not by session: a session may be one of several of the same JVM.
    package = java.org.apache.spark.sql.delta
    return _Java(
        package.DeltaLog,
        package.actions.Action,
        getattr(package, "DeltaOperations$Write"),
        java.org.apache.spark.sql.SaveMode.Append,
        java.scala.Option,
        java.scala.Option.empty(),
        java.scala.jdk.javaapi.CollectionConverters,
        java.java.util.ArrayList,
    )


def log_of(spark: SparkSession, lake: str, table: Table) -> JavaObject:
    """Return Delta's log of a table; the JVM keeps one object a table."""
    return _java(jvm(spark)).delta_log.forTable(spark._jsparkSession, table_path(lake, table))  # noqa: SLF001


def _last_batch(transaction: JavaObject, application: str) -> int:
    """Return an application's newest version in a table, and have the commit fail when another writer adds to it.

    `txnVersion` would say it, from a Spark job over the whole log (half a second); the checksum of the version, which
    Delta keeps in memory after its own commits, lists the same.
    """
    checksum = transaction.snapshot().checksumOpt()
    listed = checksum.get().setTransactions() if checksum.isDefined() else checksum
    if not listed.isDefined():
        return int(transaction.txnVersion(application))
    transaction.readTxn().addOne(application)
    transactions = listed.get()
    for number in range(transactions.size()):
        found = transactions.apply(number)
        if found.appId() == application:
            return int(found.version())
    return -1


def commit(
    spark: SparkSession,
    lake: str,
    table: Table,
    files: Sequence[DataFile | None],
    batch: MicroBatch,
    sources: Iterable[Table] | None = None,
) -> int | None:
    """Append files to a table, once for this batch; with no files the entry carries the batch's accounting alone.

    Args:
        spark: the session.
        lake: where the table is.
        table: which one.
        files: what to append; None stands for one that was not needed.
        batch: whose write it is.
        sources: the tables whose rows came to it; see `MicroBatch.transaction`.

    Returns:
        The new version; None when the batch is in the table already.
    """
    java = _java(jvm(spark))
    transaction = log_of(spark, lake, table).startTransaction()
    application, number = batch.transaction(table, sources)
    batch.commits += 1
    if _last_batch(transaction, application) >= number:
        return None
    now = int(time.time() * 1000)
    actions = java.array_list()
    versions = {application: number}
    if (epoch := batch.hold()) is not None:
        # Noted as read, too: a successor's commit from here on fails this one.
        if _last_batch(transaction, batch.lease_id) > epoch:
            raise lease.lost(batch.query, epoch)
        versions[batch.lease_id] = epoch
    for name, version in versions.items():
        entry: dict[str, Any] = {"txn": {"appId": name, "version": version, "lastUpdated": now}}
        actions.add(java.action.fromJson(json.dumps(entry)))
    for file in files:
        if file is not None:
            entry = {
                "path": file.path,
                "partitionValues": {},
                "size": file.size,
                "modificationTime": now,
                "dataChange": True,
                "stats": file.stats,
            }
            actions.add(java.action.fromJson(json.dumps({"add": entry})))
    none = java.none
    metadata = java.some.apply(batch.metadata())
    operation = java.write(java.append, none, none, metadata, none, none, none, none, none)
    batch.reach(FailPoint.STAGED)
    committed = int(transaction.commit(java.to_scala.asScala(actions).toSeq(), operation))
    # Before the checkpoint says that the batch is through.
    settle(f"{table_path(lake, table)}/_delta_log/{committed:020}.json")
    batch.reach(FailPoint.COMMITTED)
    return committed


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
