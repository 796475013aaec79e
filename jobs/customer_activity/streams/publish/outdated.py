"""Records that stand by themselves: each is sent once, for ever, and stays as it was sent, whatever becomes of its row.

Consumers may have acted on such a record. A row that is taken back or changed is kept as it was sent, in a table of the
publisher's own, before the publisher goes on behind that version. So what comes again is known, however late; and the
topic is what the published table has, with what is kept in the place of its rows. Only the publisher knows what it has
sent: a row that came and went while nothing was published is no such row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.stream import Append, Steps
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.streams.publish.changed import Changed

NOTED_AT = "noted_at"


def fields(table: Table) -> pa.Schema:
    """Return the columns that a record is made of: those of its outdated rows, but for when they were noted."""
    return pa.schema([field for field in arrow_schema(table) if field.name != NOTED_AT])


def kept(lake: str, table: Table, columns: Sequence[str]) -> pa.Table:
    """Return some columns of all outdated rows."""
    schema = pa.schema([arrow_schema(table).field(name) for name in columns])
    return DeltaTable(table_path(lake, table)).to_pyarrow_dataset().to_table(columns=schema.names).cast(schema)


def are_kept(lake: str, table: Table, name: str, rows: pa.Table) -> pa.Array:
    """Return which rows were sent before and are outdated, by the column that names them."""
    known = kept(lake, table, [name]).column(name).combine_chunks()
    return pc.is_in(rows.column(name).combine_chunks(), value_set=known)


def of_version(batch: MicroBatch, version: int, commit: str) -> MicroBatch:
    """Return what writes for a version of the published table, in whichever batch; it is the one that a commit made.

    Where the table is restored, the same version is another commit, and its rows are to be noted, too.
    """
    return replace(batch, generation=commit, batch_id=version, versions={})


def noting(lake: str, table: Table, name: str, rows: Changed, own: MicroBatch) -> Steps:
    """Keep the rows of a version that it changed or took back, as they were before; those that are kept stay so.

    Args:
        lake: where the table is.
        table: of outdated rows.
        name: the column that names them.
        rows: what the version changed.
        own: whose write it is: see `of_version`.
    """
    was_there = rows.before.filter(pc.is_valid(rows.before.column(name)))
    if not was_there.num_rows:
        return
    going = was_there.filter(pc.invert(are_kept(lake, table, name, was_there)))
    if going.num_rows:
        yield Append(table, noted(table, going), by=own)


def noted(table: Table, rows: pa.Table) -> pa.Table:
    """Return rows as the table of outdated ones has them, noted now."""
    now = pa.repeat(pa.scalar(datetime.now(UTC), arrow_schema(table).field(NOTED_AT).type), rows.num_rows)
    return rows.select(fields(table).names).append_column(NOTED_AT, now).cast(arrow_schema(table))
