"""Merge changes into a table of current rows, exactly once, without Spark: delta-rs does it in this process.

A MERGE of 500 rows into 20,000 takes Spark half a second and more of planning and small jobs; the same MERGE takes
delta-rs a tenth of one. What is merged is one row a key, and that much fits in this process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction
from pyspark.sql import DataFrame

from customer_activity import feeds, lease
from customer_activity.catalog import Table, table_path
from customer_activity.datafiles import arrow_schema, in_parts
from customer_activity.failpoints import FailPoint
from customer_activity.microbatch import MicroBatch
from customer_activity.schemas import SCHEMAS

PART_ROWS = 500_000  # reduced at a time: a large batch need not be here at once


def newest(
    changes: DataFrame, lake: str, source: Table, columns: Sequence[str], batch: MicroBatch, *, order: str
) -> pa.Table:
    """Bring the newest change of each customer here: that with the greatest `order`, which is unique to it.

    Args:
        changes: the batch's change feed of `source`, as Spark has planned it.
        lake: where the tables are.
        source: the table.
        columns: what the result has; `order` and `customer_id` are among them.
        batch: whose versions they are.
        order: a column that grows with each change of a customer.
    """
    feed = feeds.read(changes, lake, {source: columns}, batch.versions)
    schema = pa.schema([arrow_schema(source).field(name) for name in columns])
    parts = [newest_of(part, order) for part in in_parts(feed.batches(source, columns), PART_ROWS)]
    return newest_of(pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in parts)]), order)


def newest_of(changes: pa.Table, order: str) -> pa.Table:
    """Reduce changes to the newest of each customer."""
    # The order of keys first, and of whole rows those that stay: they are most of the bytes.
    ordered = pc.sort_indices(changes, [(order, "ascending")])
    keys = pa.table({"customer_id": changes.column("customer_id").take(ordered)})
    keys = keys.append_column("number", pa.array(range(keys.num_rows), pa.int64()))
    last = keys.group_by("customer_id").aggregate([("number", "max")]).column("number_max")
    return changes.take(ordered.take(last))


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
