"""What the rules' queries see as DuckDB relations: pinned tables, Kafka's offsets, the accounting, earlier results.

    bronze.… silver.… gold.…           each table at its newest version
    seen_by_<query>.…                  a table as its reader had seen it when it made what is pinned
    bronze.landed                      coordinates of every record of the input topics in bronze, quarantine included
    topic.offsets, topic.unlanded      what the input topics have (outside.py)
    topic.view, topic.published        what the view topic has (outside.py)
    accounting.topics, accounting.rows what the commits tell (accounting.py)
    history.results                    what earlier runs observed (results.py)
    getvariable('…')                   the deployment's values, as `variables` has them

DuckDB reads the Parquet files by column and keeps what does not fit into memory on disk: a table may be larger than
the machine. It lives in this process and needs no JVM, which would compete with the streams.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from customer_activity.catalog import Reason, Table
from customer_activity.contracts.columns import PROFILE_FIELDS, RAW, names
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import TransientError
from customer_activity.lake.lookup import PATTERN
from customer_activity.settings import Settings

MEMORY = "2GB"
PERSONAL = frozenset(names([*PROFILE_FIELDS, *RAW])) - {"customer_id", "updated_at"}
LANDED = """
CREATE VIEW bronze.landed AS
SELECT topic, partition, "offset", kafka_timestamp FROM bronze.purchase_events
UNION ALL SELECT topic, partition, "offset", kafka_timestamp FROM bronze.customer_profiles
UNION ALL SELECT topic, partition, "offset", kafka_timestamp FROM bronze.quarantine
WHERE "offset" IS NOT NULL AND reason <> 'conflicting_duplicate'
"""
WITH_PAYMENTS = f"""{LANDED}
UNION ALL SELECT topic, partition, "offset", kafka_timestamp FROM bronze.payment_events
"""
WITHOUT_PAYMENTS = f"{LANDED} AND topic <> getvariable('payment_topic')"  # of a time when their streams were on

# A table's columns by its name without the layer; of both `customer_profiles` silver's, all of which bronze's has.
DECLARED = {table.value.partition("/")[2]: arrow_schema(table) for table in Table}

# Rows in memory, rows elsewhere, or Parquet files of this machine.
Relation: TypeAlias = pa.Table | ds.Dataset | tuple[str, ...]
Relations: TypeAlias = Mapping[str, Relation]


def variables(settings: Settings) -> dict[str, Any]:
    """Return what rules may name as "$name", and queries as `getvariable('name')`."""
    return {
        "currency": settings.currency,
        "purchase_topic": settings.purchase_topic,
        "profile_topic": settings.profile_topic,
        "payment_topic": settings.payment_topic,
        "view_topic": settings.view_topic,
        "max_bad_share": settings.max_bad_share,
        "grace_hours": settings.grace_hours,
        "pace_seconds": max(settings.merge_seconds, settings.gold_seconds),
        "reasons": [reason.value for reason in Reason],
    }


@contextmanager
def opened(tables: Relations, values: Mapping[str, Any]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database in memory with the pinned tables in it, and what rules' queries may name besides.

    That is `now_us`, too: microseconds since the epoch, of a moment after everything that is pinned.
    """
    with database_of(tables) as database:
        database.execute(f"SET VARIABLE now_us = {time.time_ns() // 1_000}")
        for name, value in values.items():
            if not isinstance(value, list):
                database.execute(f"SET VARIABLE {name} = {literal(value)}")
        database.execute("CREATE SCHEMA frames")
        database.execute(WITH_PAYMENTS if Table.PAYMENT_EVENTS.label in tables else WITHOUT_PAYMENTS)
        yield database


@contextmanager
def database_of(tables: Relations) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database in memory with some tables in it."""
    with tempfile.TemporaryDirectory(prefix="activity-") as spill, duckdb.connect(":memory:") as database:
        database.execute(f"SET memory_limit = '{MEMORY}'")
        database.execute(f"SET temp_directory = '{spill}'")
        database.execute("SET TimeZone = 'UTC'")
        add(database, tables)
        yield database


def relation(table: DeltaTable) -> Relation:
    """Return an opened table's rows at its version, without reading them.

    Parquet files of this machine are DuckDB's to read: it does so on all cores, and Arrow's filters do not know the
    types of all files that delta-rs writes.
    """
    files = tuple(unquote(uri[7:]) if uri.startswith("file://") else uri for uri in table.file_uris())
    if not files:
        return table.to_pyarrow_dataset().schema.empty_table()
    is_here = files[0].startswith("/") and not PATTERN.intersection(*files)
    return files if is_here else table.to_pyarrow_dataset()


def as_read(uri: str, table: Table, version: int, then: str) -> DeltaTable | None:
    """Open a table at the version that a reader has seen last; None: it has seen nothing, and version 0 is empty.

    Raises:
        TransientError: the log no longer reaches back so far; `then` says what to do when the reader has gone on.
    """
    if version <= 0:
        return None
    try:
        return DeltaTable(uri, version=version)
    except DeltaError as error:
        raise TransientError(
            f"{table.label}: version {version}, the last that a reader has seen, is no longer in the log",
            remedy=f"let the streams run on (`activity stream --available-now`), then {then}",
        ) from error


def relation_of(table: Table, opened: DeltaTable | None) -> Relation:
    """Return the rows of a table; none where nothing of it has been seen."""
    return arrow_schema(table).empty_table() if opened is None else relation(opened)


def add(database: duckdb.DuckDBPyConnection, relations: Relations) -> None:
    """Put relations into a database under their names, `schema.name`."""
    for label, held in relations.items():
        schema, _, name = label.partition(".")
        database.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
        source = f'"{schema}__{name}"'
        if isinstance(held, tuple):
            listed = ", ".join(map(literal, held))  # and a folder `partition=3` above the lake is no column
            source = f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
        else:
            database.register(f"{schema}__{name}", held)
        there = database.execute(f"DESCRIBE SELECT * FROM {source}").fetchall() if name in DECLARED else []
        known = {str(column) for column, *_ in there}
        if there and (lacking := [column for column in DECLARED[name] if column.name not in known]):
            # Its files are all of a release before.
            database.register(f"{schema}__{name}__lacking", pa.schema(lacking).empty_table())
            source += f' UNION ALL BY NAME SELECT * FROM "{schema}__{name}__lacking"'
        database.execute(f'CREATE VIEW "{schema}"."{name}" AS SELECT * FROM {source}')


def literal(value: str | float) -> str:
    """Write a value as SQL has it."""
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def columns_of(table: str, columns: Iterable[str]) -> str:
    """Return the query that reads a table's columns."""
    listed = ", ".join(f'"{column}"' for column in columns)
    return f"SELECT {listed} FROM {table}"
