"""Merge changes into a table of current rows, exactly once, without Spark: delta-rs does it in this process.

A MERGE of 500 rows into 20,000 takes Spark half a second and more of planning and small jobs; the same MERGE takes
delta-rs a tenth of one. Spark's part is to reduce the change feed to one row a key; that much fits in this process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from customer_activity import feeds, lease
from customer_activity.catalog import Table, table_path
from customer_activity.failpoints import FailPoint
from customer_activity.microbatch import MicroBatch, fetched
from customer_activity.schemas import SCHEMAS


def newest(
    changes: DataFrame, lake: str, source: Table, columns: Sequence[str], batch: MicroBatch, *, order: str
) -> pa.Table:
    """Bring the newest change of each customer here: that with the greatest `order`, which is unique to it.

    Args:
        changes: the batch's change feed of `source`, which Spark reduces where it is large.
        lake: where the tables are.
        source: the table that a small batch's changes are read from.
        columns: what the result has.
        batch: whose versions they are.
        order: a column that grows with each change of a customer.
    """
    few = feeds.appended(lake, {source: columns}, batch.versions)
    return fetched(newest_in_spark(changes, columns, order=order)) if few is None else newest_here(few, columns, order)


def newest_in_spark(changes: DataFrame, columns: Sequence[str], order: str) -> DataFrame:
    """Reduce changes to the newest of each customer."""
    newest_first = Window.partitionBy("customer_id").orderBy(F.desc(order))
    return changes.withColumn("rank", F.row_number().over(newest_first)).where(F.col("rank") == 1).select(*columns)


def newest_here(changes: pa.Table, columns: Sequence[str], order: str) -> pa.Table:
    """Reduce changes that are in this process as `newest_in_spark` does."""
    ordered = changes.sort_by(order)
    numbered = ordered.append_column("number", pa.array(range(ordered.num_rows), pa.int64()))
    last = numbered.group_by("customer_id").aggregate([("number", "max")]).column("number_max")
    return ordered.take(last).select(columns)


def merge(
    source: pa.Table,
    lake: str,
    table: Table,
    batch: MicroBatch,
    *,
    key: str,
    update: Mapping[str, str] | None = None,
    delete_when: str | None = None,
) -> None:
    """Merge one source row a key into a table, once for this batch.

    Args:
        source: `s` in the expressions; one row a key.
        lake: where the table is.
        table: the target, `t` in the expressions.
        batch: whose write this is.
        key: the column that both sides share.
        update: new value by column, all columns of the source's when not given.
        delete_when: condition on the source for a delete; such a row is never inserted.
    """
    target = DeltaTable(table_path(lake, table))
    application = batch.application_id(table)
    written = target.transaction_version(application)
    if not source.num_rows or (written is not None and written >= batch.batch_id):
        return
    batch.commits += 1
    transactions = [Transaction(application, batch.batch_id)]
    if (epoch := batch.hold()) is not None:
        if (target.transaction_version(batch.lease_id) or 0) > epoch:
            raise lease.lost(batch.query, epoch)
        transactions.append(Transaction(batch.lease_id, epoch))
    columns = {name: f"s.{name}" for name in SCHEMAS[table].fieldNames()}
    merger = target.merge(
        source,
        f"t.{key} = s.{key}",
        source_alias="s",
        target_alias="t",
        commit_properties=CommitProperties(
            app_transactions=transactions,
            custom_metadata={"userMetadata": batch.metadata()},
        ),
    )
    if delete_when is not None:
        merger = merger.when_matched_delete(delete_when)
    merger = merger.when_matched_update(dict(update or columns))
    merger = merger.when_not_matched_insert(columns, predicate=f"NOT ({delete_when})" if delete_when else None)
    batch.reach(FailPoint.STAGED)
    merger.execute()
    batch.reach(FailPoint.COMMITTED)
    batch.rows += source.num_rows
