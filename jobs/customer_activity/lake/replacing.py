"""Replace rows of a table by their keys, in one commit: wrong rows are removed, right ones are added.

delta-rs merges it in this process. The commit's change feed has exactly these rows, whatever files it rewrites. A merge
holds the keys of the whole table (some 350 bytes a row); rows that only come are appended, a batch at a time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import AddAction

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import deltalog, footers
from customer_activity.lake.checksums import write_checksum
from customer_activity.lake.datafiles import FileWriter, whole

GOES = "goes"  # a column of what is merged: the row is the key of rows that go


def replace(
    lake: str,
    table: Table,
    key: Sequence[str],
    going: Sequence[pa.RecordBatch],
    coming: Iterable[pa.RecordBatch],
    properties: CommitProperties,
) -> int:
    """Remove all rows with the keys in `going`, add the rows in `coming`, and return the new version.

    `going` has the columns of `key`, and each key once; a null equals a null. `coming` has all columns of the table.
    Without either the commit carries its note alone.
    """
    if any(batch.num_rows for batch in going):
        _merge(lake, table, key, going, coming, properties)
    else:
        _append(lake, table, coming, properties)
    return settle(lake, table)


def settle(lake: str, table: Table) -> int:
    """Finish a table's newest commit: its files fit for every reader, its checksum, and all of it on the disk."""
    version = DeltaTable(table_path(lake, table)).version()
    footers.repair_commit(lake, table, version)
    write_checksum(table_path(lake, table), version)
    deltalog.settle(lake, table, version)
    return version


def _append(lake: str, table: Table, coming: Iterable[pa.RecordBatch], properties: CommitProperties) -> None:
    """Add rows; without any the commit carries its note alone."""
    writer = FileWriter(lake, table)
    for batch in coming:
        writer.write(batch)
    file, now = writer.close(), int(time.time() * 1000)
    added = [] if file is None else [AddAction(file.path, file.size, {}, now, data_change=True, stats=file.stats)]
    target = DeltaTable(table_path(lake, table))
    target.create_write_transaction(
        [*added], mode="append", schema=target.schema(), partition_by=None, commit_properties=properties
    )


def _merge(
    lake: str,
    table: Table,
    key: Sequence[str],
    going: Iterable[pa.RecordBatch],
    coming: Iterable[pa.RecordBatch],
    properties: CommitProperties,
) -> None:
    target = DeltaTable(table_path(lake, table))
    before = target.version()
    schema = arrow_schema(table)
    source = pa.RecordBatchReader.from_batches(
        schema.append(pa.field(GOES, pa.bool_())), _marked(schema, going, coming)
    )
    columns = {name: f"s.{_quoted(name)}" for name in schema.names}
    is_same = (f"{_as_text('t', name)} = {_as_text('s', name)}" for name in key)
    merger = target.merge(
        source,
        " AND ".join([f"s.{GOES}", *is_same]),
        source_alias="s",
        target_alias="t",
        commit_properties=properties,
    )
    merger.when_matched_delete().when_not_matched_insert(columns, predicate=f"NOT s.{GOES}").execute()
    if target.version() == before:  # no such key is there, and nothing comes: delta-rs commits nothing
        _append(lake, table, (), properties)


def _marked(
    schema: pa.Schema, going: Iterable[pa.RecordBatch], coming: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Give rows the columns of the table, as far as they have them, and say of each whether it goes."""
    marked = schema.append(pa.field(GOES, pa.bool_()))
    for batches, goes in ((going, True), (coming, False)):
        for batch in whole(batches, schema):
            marks = pa.repeat(pa.scalar(goes), batch.num_rows)
            yield pa.RecordBatch.from_arrays([*batch.columns, marks], schema=marked)


def _as_text(alias: str, name: str) -> str:
    """Have a null equal a null, in an equation by which rows can still be hashed; no key of a valid row is empty."""
    return f"coalesce(cast({alias}.{_quoted(name)} as varchar), '')"


def _quoted(name: str) -> str:
    """Have DataFusion take a name as it is: some are words of SQL."""
    return f'"{name}"'
