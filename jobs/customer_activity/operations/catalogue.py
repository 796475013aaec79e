"""Load the catalogue of products: what a file changes becomes a new version, and everything before it stays.

Reads      a file of the whole catalogue (CSV or Parquet)
Writes     reference.products (append)
Grain      one row per product that the file has otherwise, has anew, or has no longer
On restart a file that was loaded changes nothing; a load is one commit

Streams that use the catalogue find the new version by themselves. Rows of former versions are needed by whatever was
made with them, so none is ever removed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyarrow import csv

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.contracts.columns import PRODUCT_FIELDS, names
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import SettingsError, TerminalError, TransientError
from customer_activity.lake import delta
from customer_activity.lake.replacing import settle

QUERY = "catalogue"  # what its commits call themselves
ID = "product_id"
COLUMNS = (ID, *names(PRODUCT_FIELDS))
ATTEMPTS = 5  # the driver compacts the table while it is loaded
CONTROL = r"\p{Cc}"
CHANGED = """
WITH known AS (FROM held QUALIFY row_number() OVER (PARTITION BY product_id ORDER BY version DESC) = 1),
present AS (SELECT {columns} FROM known WHERE NOT is_gone)
SELECT *, false AS is_gone FROM (SELECT {columns} FROM given EXCEPT FROM present)
UNION ALL BY NAME
SELECT product_id, true AS is_gone FROM present ANTI JOIN given USING (product_id)
ORDER BY product_id
"""


class Loaded(NamedTuple):
    """What a load came to.

    Attributes:
        version: of the catalogue, since.
        products: that it has.
        changed: that are new or other than before.
        gone: that it has no longer.
    """

    version: int
    products: int
    changed: int
    gone: int


def load(lake: str, file: Path) -> Loaded:
    """Make a file the catalogue that is in force from now on.

    Raises:
        SettingsError: there is no lake, or no stream uses the catalogue.
        TerminalError: the file is no catalogue.
        TransientError: others wrote to the table meanwhile.
    """
    delta.require_tables(lake)
    if Table.PRODUCTS not in topology.tables():
        (writer,) = (spec.name for spec in topology.optional() if Table.PRODUCTS in spec.tables)
        raise SettingsError(f"{writer} is off, which uses the catalogue", remedy="add it to ACTIVITY_STREAMS")
    given = read(file)
    delta.ensure_tables(lake)
    for _ in range(ATTEMPTS):
        table = DeltaTable(table_path(lake, Table.PRODUCTS))
        version, rows = changes(table, given)
        gone = pc.sum(rows.column("is_gone")).as_py() or 0
        if not rows.num_rows:
            return Loaded(version - 1, given.num_rows, 0, 0)
        note = {"query": QUERY, "version": version}
        properties = CommitProperties(custom_metadata={"userMetadata": json.dumps(note)}, max_commit_retries=0)
        try:
            write_deltalake(table, rows, mode="append", commit_properties=properties)
        except CommitFailedError:
            continue
        settle(lake, Table.PRODUCTS)
        return Loaded(version, given.num_rows, rows.num_rows - gone, gone)
    raise TransientError(f"{Table.PRODUCTS.label} was written to by others meanwhile", remedy="load the file again")


def changes(table: DeltaTable, given: pa.Table) -> tuple[int, pa.Table]:
    """Return the number of the version that a catalogue would be, and the rows by which it differs from the newest."""
    schema = arrow_schema(Table.PRODUCTS)
    held = table.to_pyarrow_table(columns=schema.names)
    version = (pc.max(held.column("version")).as_py() or 0) + 1
    with duckdb.connect(":memory:") as database:
        database.register("held", held)
        database.register("given", given)
        found = database.sql(CHANGED.format(columns=", ".join(COLUMNS))).to_arrow_table()
    rows = found.num_rows
    found = found.append_column("version", pa.repeat(pa.scalar(version, pa.int64()), rows))
    found = found.append_column("loaded_at", pa.repeat(pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC")), rows))
    return version, found.select(schema.names).cast(schema)


def read(file: Path) -> pa.Table:
    """Read a catalogue: all columns as texts, an empty text as none.

    Raises:
        TerminalError: it cannot be read, or is no catalogue.
    """
    try:
        found = _opened(file)
    except (OSError, pa.ArrowException) as error:
        raise TerminalError(f"{file} cannot be read: {error}", remedy="give a catalogue as .csv or .parquet") from None
    _require_columns(file, found.column_names)
    columns = {}
    for name in COLUMNS:
        if name not in found.column_names:
            columns[name] = pa.nulls(found.num_rows, pa.string())
            continue
        try:
            texts = found.column(name).cast(pa.string())
        except pa.ArrowException:
            raise TerminalError(
                f"{file}: column {name} is {found.schema.field(name).type}, and no text", remedy="make it one"
            ) from None
        columns[name] = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    products = pa.table(columns)
    _require_ids(file, products.column(ID))
    return products


def _opened(file: Path) -> pa.Table:
    if file.suffix == ".parquet":
        return pq.read_table(file)
    if file.suffix == ".csv":
        texts = csv.ConvertOptions(column_types=dict.fromkeys(COLUMNS, pa.string()), strings_can_be_null=True)
        return csv.read_csv(file, convert_options=texts)
    raise TerminalError(f"{file} is neither .csv nor .parquet", remedy="give a catalogue as one of them")


def _require_columns(file: Path, found: Sequence[str]) -> None:
    unknown, takes = sorted(set(found) - set(COLUMNS)), f"a catalogue has {ID}, and some of {', '.join(COLUMNS[1:])}"
    if unknown:
        raise TerminalError(f"{file} has the unknown column {unknown[0]}", remedy=takes)
    if ID not in found:
        raise TerminalError(f"{file} has no column {ID}", remedy=takes)


def _require_ids(file: Path, ids: pa.ChunkedArray) -> None:
    remedy = "correct the file: nothing of it was loaded"
    if not len(ids):
        raise TerminalError(
            f"{file} has no product", remedy="an empty catalogue would end all products; give a full one"
        )
    if ids.null_count:
        raise TerminalError(f"{file}: {ids.null_count:,} rows have no {ID}", remedy=remedy)
    if pc.any(pc.match_substring_regex(ids, CONTROL)).as_py():
        raise TerminalError(f"{file}: a {ID} has control characters, which no purchase's may have", remedy=remedy)
    counts = pc.value_counts(ids)
    repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    if len(repeated):
        raise TerminalError(f"{file} has product {repeated[0].as_py()} more than once", remedy=remedy)
