"""Make the table of a stream behind the hot path say what all of the table that it follows comes to.

For one that was damaged, that was put back from a backup when the log of its source no longer reaches back so far, or
whose source was corrected or put back itself. Only the rows that differ are replaced, in one commit.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence

import duckdb
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction

from customer_activity import topology
from customer_activity.catalog import Table, lease_id, table_path
from customer_activity.checkpoints import checkpoint
from customer_activity.checkpoints.checkpoint import OffsetRange
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.derived import Derived
from customer_activity.lake import deltalog
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.lake.named_operations import Operation
from customer_activity.lake.replacing import replace
from customer_activity.operations import differences
from customer_activity.settings import Settings
from customer_activity.streams.registry import STREAMS

FIRST = 1  # the batch that it is: the one before would have read nothing


def make(lake: str, query: str, epoch: int, note: dict[str, object] | None = None, by: Settings | None = None) -> Table:
    """Replace the rows that differ, and write the query's checkpoint as if one batch had read all; return the table.

    There must be no checkpoint, and no driver. After a crash the table has what its newest commit says, as ever.

    Args:
        lake: whose table.
        query: one behind the hot path.
        epoch: of its lease, which this process holds.
        note: what else the commit notes.
        by: what defines the rows where not what the table was computed by.
    """
    stream = stream_of(query).as_noted(lake) if by is None else stream_of(query).as_set(by)
    table, key = stream.target, stream.spec.how(stream.target).key
    source = DeltaTable(table_path(lake, stream.source))
    rows = rows_at(stream, source)
    for other, missing in stream.besides().items():  # first: what follows from it is not there before it
        fence = CommitProperties(app_transactions=[Transaction(lease_id(query), epoch)])
        replace(lake, other, stream.spec.how(other).key, (), missing.to_batches(), fence)
    batch = as_read(lake, query, str(uuid.uuid4()))
    with duckdb.connect(":memory:") as database:
        keys, coming = _differing(database, key, rows, _held(lake, table, rows.schema))
        transactions = [Transaction(*batch.transaction(table)), Transaction(lease_id(query), epoch)]
        told = json.dumps(
            {
                **json.loads(batch.metadata()),
                **stream.note(rows),
                **(_named(table) if keys.num_rows else {}),
                **(note or {}),
            },
            sort_keys=True,
        )
        properties = CommitProperties(app_transactions=transactions, custom_metadata={"userMetadata": told})
        replace(lake, table, key, keys.to_batches(), coming.to_batches(), properties)
    checkpoint.write(lake, query, batch.generation, FIRST, OffsetRange(**batch.cut), is_committed=True)
    return table


def _named(table: Table) -> dict[str, str]:
    """Name the operation where another table is made of this one: its stream cannot go on from rows that are gone."""
    is_read = any(edge.read is table for edge in topology.edges())
    return {"operation": Operation.CORRECTION.value} if is_read else {}


def stream_of(query: str) -> Derived:
    """Return the stream of a query behind the hot path."""
    stream = STREAMS[query]
    if not isinstance(stream, Derived):
        raise TypeError(f"{query} does not follow a table")
    return stream


def rows_at(stream: Derived, source: DeltaTable) -> pa.Table:
    """Return the rows that all of a source comes to, as it was opened, be it of a release before."""
    rows = source.to_pyarrow_dataset(schema=arrow_schema(stream.source))
    return stream.rows(rows.to_batches(columns=list(stream.columns)))


def as_read(lake: str, query: str, generation: str) -> MicroBatch:
    """Return the batch that a query would have made, had it read all that its sources have: its first one."""
    sources = STREAMS[query].spec.sources
    ids = {table: str(DeltaTable(table_path(lake, table)).metadata().id) for table in sources}
    newest = {table: deltalog.newest_version(lake, table) for table in sources}
    end = [checkpoint.after(ids[table], newest[table]) for table in sources]
    batch = MicroBatch(query, generation, FIRST, cut=OffsetRange(end, end)._asdict())
    read = {table: deltalog.position(lake, table, ids[table], newest[table]) for table in sources}
    batch.extra |= {deltalog.READ: deltalog.as_note(read)} | {table.label: newest[table] for table in sources}
    return batch


def _held(lake: str, table: Table, schema: pa.Schema) -> pa.Table:
    return DeltaTable(table_path(lake, table)).to_pyarrow_dataset().to_table(columns=schema.names).cast(schema)


def _differing(
    database: duckdb.DuckDBPyConnection, key: Sequence[str], rows: pa.Table, held: pa.Table
) -> tuple[pa.Table, pa.Table]:
    """Return the keys of which the table does not hold the right rows, and these."""
    database.execute("SET TimeZone = 'UTC'")
    database.register("right_rows", rows)
    database.register("held", held)
    differences.find(database, "rows", key, "held", "right_rows")
    coming = database.sql(differences.of_keys("right_rows", "rows_keys", key))
    return database.table("rows_keys").to_arrow_table(), coming.to_arrow_table().cast(rows.schema)
