"""Make a table of current rows anew from all of the table that it follows.

For one that was put back from a backup when the log of its source no longer reaches back so far, or that follows a
source which was put back itself. Readers see the old rows until one commit replaces them.
"""

from __future__ import annotations

import uuid

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from customer_activity.catalog import Query, Table, lease_id, table_path
from customer_activity.checkpoints import checkpoint
from customer_activity.checkpoints.checkpoint import Cut
from customer_activity.lake import deltalog
from customer_activity.lake.datafiles import arrow_schema
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.streams.current import activity, profiles, summaries
from customer_activity.streams.current.merging import newest

FIRST = 1  # the batch that it is: the one before would have read nothing


def make(lake: str, query: Query, epoch: int) -> Table:
    """Replace the rows of a query's table, and write its checkpoint as if one batch had read all; return the table.

    There must be no checkpoint, and no driver. After a crash the table has what its newest commit says, as ever.

    Args:
        lake: whose table.
        query: one that merges into a table of current rows.
        epoch: of its lease, which this process holds.
    """
    follows = {Query.SUMMARIES: summaries, Query.PROFILES: profiles, Query.ACTIVITY: activity}[query]
    table: Table = follows.TARGET
    source: Table = follows.SOURCE
    opened = DeltaTable(table_path(lake, source))
    rows = _rows(query, opened)
    end = [checkpoint.after(str(opened.metadata().id), opened.version())]
    cut = Cut(end, end)
    batch = MicroBatch(query, str(uuid.uuid4()), FIRST, cut=cut._asdict())
    read = deltalog.position(lake, source, str(opened.metadata().id), opened.version())
    batch.extra[deltalog.READ] = deltalog.as_note({source: read})
    transactions = [Transaction(*batch.transaction(table)), Transaction(lease_id(query), epoch)]
    note = CommitProperties(app_transactions=transactions, custom_metadata={"userMetadata": batch.metadata()})
    write_deltalake(table_path(lake, table), rows, mode="overwrite", commit_properties=note)
    deltalog.settle(lake, table, DeltaTable(table_path(lake, table)).version())
    checkpoint.write(lake, query, batch.generation, FIRST, cut, is_through=True)
    return table


def _rows(query: Query, source: DeltaTable) -> pa.Table:
    """Return what a table of current rows has when it follows a source up to a version."""
    read = source.to_pyarrow_dataset().to_batches
    if query is Query.SUMMARIES:
        return summaries.summarise(read(columns=summaries.COLUMNS))
    follows = profiles if query is Query.PROFILES else activity
    rows = newest(follows.SOURCE, follows.COLUMNS, follows.ORDER)(read(columns=follows.COLUMNS))
    rows = rows.filter(pc.invert(rows.column(follows.GONE)))
    schema = arrow_schema(follows.TARGET)
    return rows.select(schema.names).cast(schema)
