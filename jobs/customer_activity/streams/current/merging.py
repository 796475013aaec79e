"""Merge changes into a table of current rows, exactly once, without Spark: delta-rs does it in this process.

A MERGE of 500 rows into 20,000 takes Spark half a second and more of planning and small jobs; the same MERGE takes
delta-rs a tenth of one. A batch is merged in parts of whole versions: each is reduced to one row a key, which fits in
this process, and is one commit, which notes how far it has read. What is done of a batch that is repeated is told by
the newest of those notes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction

from customer_activity.catalog import Table, table_path
from customer_activity.checkpoints import resumption
from customer_activity.failpoints import FailPoint
from customer_activity.lake import delta, deltalog, feeds, footers
from customer_activity.lake.datafiles import arrow_schema, in_parts
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.lake.schemas import SCHEMAS
from customer_activity.lease import lease

PART_ROWS = 500_000  # reduced at a time

Reduce = Callable[[Iterable[pa.RecordBatch]], pa.Table]


def merge_changes(
    batch: MicroBatch,
    lake: str,
    source: Table,
    target: Table,
    columns: Sequence[str],
    reduce: Reduce,
    *,
    update: Mapping[str, str] | None = None,
    delete_when: str | None = None,
) -> None:
    """Merge a batch's changes of one table into another, part by part.

    Args:
        batch: whose versions they are.
        lake: where the tables are.
        source: what is read.
        target: what is merged into; `customer_id` is its key.
        columns: what is read of the source.
        reduce: makes one row a customer of a part's rows.
        update: new value by column; see `merge`.
        delete_when: condition for a delete; see `merge`.

    Raises:
        ChangeFeedLost: files or entries of the source are gone.
        ForeignCommit: the source has a commit that is not of the pipeline.
        LeaseLost: another driver has taken over.
    """
    table_id = delta.table_id(lake, source)
    batch.ids = {source: table_id}
    written = resumption.Written(lake, batch.query, [target], {source: table_id})
    with batch.phase("read"):
        feed = feeds.read(lake, {source: columns}, written.left(batch.versions, {source: target}))
    for changes, part in batch.parts(feed.parts()):
        part.extra[deltalog.READ] = deltalog.as_note({source: changes.end(source, table_id)})
        with batch.phase("compute"):
            rows = reduce(changes.batches(source, columns))
        with batch.phase("commit"):
            merge(rows, lake, target, part, key="customer_id", update=update, delete_when=delete_when)
        batch.progress(f"{source.label} up to version {changes.versions[source][1]} of {batch.versions[source][1]}")


def newest(source: Table, columns: Sequence[str], order: Sequence[str]) -> Reduce:
    """Return what reduces a table's changes to the newest of each customer.

    Args:
        source: the table.
        columns: what the result has; `customer_id` and those of `order` are among them.
        order: columns by which a customer's changes are in order, each change at a place of its own.
    """
    schema = pa.schema([arrow_schema(source).field(name) for name in columns])

    def reduce(batches: Iterable[pa.RecordBatch]) -> pa.Table:
        parts = [newest_of(part, order) for part in in_parts(batches, PART_ROWS)]
        return newest_of(pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in parts)]), order)

    return reduce


def newest_of(changes: pa.Table, order: Sequence[str]) -> pa.Table:
    """Reduce changes to the newest of each customer; a null of `order`, which are numbers, is before everything."""
    # The order of keys first, and of whole rows those that stay: they are most of the bytes.
    places = pa.table({name: pc.fill_null(changes.column(name), -1) for name in order})
    ordered = pc.sort_indices(places, [(name, "ascending") for name in order])
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
    application, number = batch.transaction(table)
    written = target.transaction_version(application)
    if not source.num_rows or (written is not None and written >= number):
        return
    batch.commits += 1
    transactions = [Transaction(application, number)]
    if (epoch := batch.hold()) is not None:
        if (target.transaction_version(batch.lease_id) or 0) > epoch:
            raise lease.lost(batch.query, epoch)
        transactions.append(Transaction(batch.lease_id, epoch))
    properties = CommitProperties(app_transactions=transactions, custom_metadata={"userMetadata": batch.metadata()})
    columns = {name: f"s.{name}" for name in SCHEMAS[table].fieldNames()}
    before = target.version()
    merger = target.merge(
        source, f"t.{key} = s.{key}", source_alias="s", target_alias="t", commit_properties=properties
    )
    if delete_when is not None:
        merger = merger.when_matched_delete(delete_when)
    merger = merger.when_matched_update(dict(update or columns))
    merger = merger.when_not_matched_insert(columns, predicate=f"NOT ({delete_when})" if delete_when else None)
    batch.reach(FailPoint.STAGED)
    merger.execute()
    if target.version() == before:
        # No row differs (customers who came and went), and delta-rs commits nothing. Table and checkpoint are compared
        # at every start, so each batch with changes leaves a commit.
        target.create_write_transaction(
            [], mode="append", schema=target.schema(), partition_by=None, commit_properties=properties
        )
        target.update_incremental()
    batch.reach(FailPoint.COMMITTED)
    footers.mend_commit(lake, table, target.version())
    deltalog.settle(lake, table, target.version())
    batch.rows += source.num_rows
