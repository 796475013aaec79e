"""Make the tables of a stream behind the hot path say what all of the tables that it follows comes to.

For one that was damaged, that was restored from a backup when the log of its source no longer reaches back so far, or
whose source was corrected or restored itself. Only the rows that differ are replaced, in one commit.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence

import duckdb
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction

from customer_activity import topology
from customer_activity.catalog import Table, lease_id, table_path
from customer_activity.checkpoints import checkpoint, offsets
from customer_activity.checkpoints.offsets import OffsetRange
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.derived import Computed, Derived, Joined
from customer_activity.errors import ChangeFeedLost
from customer_activity.lake import deltalog, feeds
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.lake.named_operations import Operation
from customer_activity.lake.replacing import replace
from customer_activity.operations import differences
from customer_activity.settings import Settings
from customer_activity.streams.registry import STREAMS

FIRST = 1  # the batch that it is: the one before would have read nothing


def make(lake: str, query: str, epoch: int, note: dict[str, object] | None = None, by: Settings | None = None) -> Table:
    """Replace the rows that differ, and write the query's checkpoint as if one batch had read all; return its table.

    There must be no checkpoint, and no driver. After a crash the table has what its newest commit says, as ever.

    Args:
        lake: whose table.
        query: one behind the hot path.
        epoch: of its lease, which this process holds.
        note: what else the commit notes.
        by: what defines the rows where not what the table was computed by.
    """
    known = stream_of(query)
    stream = known.as_noted(lake) if by is None else known.as_set(by)
    sources = opened(lake, query)
    batch = as_read(lake, query, str(uuid.uuid4()), sources)
    computed = computed_at(stream, sources)
    fence = Transaction(lease_id(query), epoch)
    if isinstance(stream, Derived):
        for other, missing in stream.besides().items():  # first: what follows from it is not there before it
            fenced = CommitProperties(app_transactions=[fence])
            replace(lake, other, stream.spec.how(other).key, (), missing.to_batches(), fenced)
    for table, rows in computed.tables.items():
        with duckdb.connect(":memory:") as database:
            key = stream.spec.how(table).key
            going, coming = _differing(database, key, rows, _held(lake, table, rows.schema))
            told = {
                **json.loads(batch.metadata()),
                **computed.note,
                **(_named(table) if going.num_rows else {}),
                **(note or {}),
            }
            properties = CommitProperties(
                app_transactions=[Transaction(*batch.transaction(table)), fence],
                custom_metadata={"userMetadata": json.dumps(told, sort_keys=True)},
            )
            replace(lake, table, key, going.to_batches(), coming.to_batches(), properties)
    checkpoint.write(lake, query, batch.generation, FIRST, OffsetRange(**batch.cut), is_committed=True)
    return table


def _named(table: Table) -> dict[str, str]:
    """Name the operation where another table is made of this one: its stream cannot go on from rows that are gone.

    A stream that is off now has read some of them, perhaps, and is to know of it when it is on again.
    """
    is_read = any(edge.read is table for spec in (*topology.specs(), *topology.off()) for edge in spec.edges)
    return {"operation": Operation.CORRECTION.value} if is_read else {}


def stream_of(query: str) -> Derived | Joined:
    """Return the stream of a query behind the hot path."""
    stream = STREAMS[query]
    if not isinstance(stream, Derived | Joined):
        raise TypeError(f"{query} does not follow a table")
    return stream


def computed_at(stream: Derived | Joined, sources: Mapping[Table, DeltaTable | None]) -> Computed:
    """Return what all rows of a stream's sources come to, as these were opened; None: nothing is read of one."""
    if isinstance(stream, Joined):
        return stream.computed({table: _rows_of(sources[table], table, read) for table, read in stream.columns.items()})
    rows = stream.rows(_rows_of(sources[stream.source], stream.source, stream.columns))
    return Computed({stream.target: rows}, stream.note(rows))


def _rows_of(opened: DeltaTable | None, table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield a table's rows, be it of a release before.

    Raises:
        ChangeFeedLost: it lacks files of its own.
    """
    if opened is None:
        return
    try:
        yield from opened.to_pyarrow_dataset(schema=arrow_schema(table)).to_batches(columns=list(columns))
    except FileNotFoundError as error:
        raise ChangeFeedLost(
            f"{table.label}: files of version {opened.version()} are gone, of which its rows are", remedy=feeds.LOST
        ) from error


def opened(lake: str, query: str) -> dict[Table, DeltaTable]:
    """Open what a query reads, in the order in which it reads it."""
    return {table: DeltaTable(table_path(lake, table)) for table in STREAMS[query].spec.sources}


def as_read(lake: str, query: str, generation: str, sources: Mapping[Table, DeltaTable]) -> MicroBatch:
    """Return the batch that a query would have made, had it read all of its sources as they were opened: its first one.

    Nothing newer is asked of their logs: whoever writes them may be at work, and what they have had since is unread.
    """
    ids = {table: str(found.metadata().id) for table, found in sources.items()}
    versions = {table: found.version() for table, found in sources.items()}
    end = [offsets.after(ids[table], versions[table]) for table in sources]
    batch = MicroBatch(query, generation, FIRST, cut=OffsetRange(end, end)._asdict())
    read = {table: deltalog.position(lake, table, ids[table], versions[table]) for table in sources}
    batch.extra |= {deltalog.READ: deltalog.as_note(read)} | {table.label: at for table, at in versions.items()}
    return batch


def _held(lake: str, table: Table, schema: pa.Schema) -> pa.Table:
    return DeltaTable(table_path(lake, table)).to_pyarrow_dataset().to_table(columns=schema.names).cast(schema)


def _differing(
    database: duckdb.DuckDBPyConnection, key: Sequence[str], rows: pa.Table, held: pa.Table
) -> tuple[pa.Table, pa.Table]:
    """Return the keys of which the table holds rows that are not right, and the right rows that are to come.

    Rows that are only missing are appended: whoever reads the table's change feed goes on with them.
    """
    database.execute("SET TimeZone = 'UTC'")
    database.register("right_rows", rows)
    database.register("held", held)
    differences.find(database, "rows", key, "held", "right_rows")
    coming = database.sql(differences.of_keys("right_rows", "rows_keys", key))
    going = database.sql(f"SELECT DISTINCT {differences.listed(key)} FROM rows_gone")  # noqa: S608 - the names are ours
    return going.to_arrow_table(), coming.to_arrow_table().cast(rows.schema)
