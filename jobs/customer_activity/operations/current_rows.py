"""Make a table of current rows anew from all of the table that it follows.

For one that was put back from a backup when the log of its source no longer reaches back so far, or that follows a
source which was put back itself. Readers see the old rows until one commit replaces them.
"""

from __future__ import annotations

import uuid

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from customer_activity.catalog import Table, lease_id, table_path
from customer_activity.checkpoints import checkpoint
from customer_activity.checkpoints.checkpoint import OffsetRange
from customer_activity.engine.changes import CurrentRows
from customer_activity.lake import deltalog
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.streams.registry import STREAMS

FIRST = 1  # the batch that it is: the one before would have read nothing


def make(lake: str, query: str, epoch: int) -> Table:
    """Replace the rows of a query's table, and write its checkpoint as if one batch had read all; return the table.

    There must be no checkpoint, and no driver. After a crash the table has what its newest commit says, as ever.

    Args:
        lake: whose table.
        query: one that merges into a table of current rows.
        epoch: of its lease, which this process holds.
    """
    stream = STREAMS[query]
    if not isinstance(stream, CurrentRows):
        raise TypeError(f"{query} has no table of current rows")
    table, source = stream.target, stream.source
    opened = DeltaTable(table_path(lake, source))
    rows = stream.rows(opened.to_pyarrow_dataset().to_batches(columns=stream.columns))
    end = [checkpoint.after(str(opened.metadata().id), opened.version())]
    cut = OffsetRange(end, end)
    batch = MicroBatch(query, str(uuid.uuid4()), FIRST, cut=cut._asdict())
    read = deltalog.position(lake, source, str(opened.metadata().id), opened.version())
    batch.extra[deltalog.READ] = deltalog.as_note({source: read})
    transactions = [Transaction(*batch.transaction(table)), Transaction(lease_id(query), epoch)]
    note = CommitProperties(app_transactions=transactions, custom_metadata={"userMetadata": batch.metadata()})
    write_deltalake(table_path(lake, table), rows, mode="overwrite", commit_properties=note)
    deltalog.settle(lake, table, DeltaTable(table_path(lake, table)).version())
    checkpoint.write(lake, query, batch.generation, FIRST, cut, is_committed=True)
    return table
