"""Build silver and gold from bronze on a lake of their own, with the very queries that the streams run.

That lake's bronze has the landed records in the order of their landing, without the raw bytes: all of them, or those of
some customers with every record of a purchase id that is among theirs, because such a record may be the one that
counts.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import duckdb
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import AddAction
from pyspark.sql import SparkSession

from customer_activity import application
from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import delta, deltalog
from customer_activity.lake.datafiles import DataFile, FileWriter, in_parts, whole
from customer_activity.lake.named_operations import REBUILD
from customer_activity.rebuild.basis import name_of
from customer_activity.settings import Settings
from customer_activity.streams.gold.state import NAME as GOLD
from customer_activity.streams.silver.state import NAME as SILVER
from customer_activity.streams.silver.stream import SIDES

BUILT = (SILVER, GOLD)
IN_ORDER = 'ORDER BY landing NULLS FIRST, "partition", "offset"'
FILE_ROWS = 2_000_000  # each a commit: silver takes some hundred megabytes a batch, and whole commits are read fastest
ROWS_AT_A_TIME = 65_536


class Choice(NamedTuple):
    """Whose rows are rebuilt: everybody's unless it says otherwise; both together mean those that are in both.

    Attributes:
        customers: these.
        since, until: those who have a record of that time (Kafka's), the end not included.
    """

    customers: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_everybody(self) -> bool:
        """Whether nobody is left out."""
        return not self.customers and self.since is None and self.until is None


def choose(database: duckdb.DuckDBPyConnection, choice: Choice) -> int:
    """Make the table `chosen` of the customers that are rebuilt, from `landed`; return how many they are."""
    conditions = ["customer_id IS NOT NULL"]
    values: list[object] = []
    if choice.customers:
        conditions.append("customer_id IN (SELECT unnest(?))")
        values.append(list(choice.customers))
    for bound, comparison in ((choice.since, ">="), (choice.until, "<")):
        if bound is not None:
            conditions.append(f"kafka_timestamp {comparison} ?")
            values.append(bound)
    sides = (f"SELECT customer_id FROM landed.{name} WHERE {' AND '.join(conditions)}" for name in map(name_of, SIDES))
    database.execute(f"CREATE TABLE chosen AS {' UNION '.join(sides)}", [*values, *values])
    return int(database.execute("SELECT count(*) FROM chosen").fetchall()[0][0])


def build(
    spark: SparkSession, database: duckdb.DuckDBPyConnection, shadow: Settings, choice: Choice
) -> dict[Table, int]:
    """Build silver and gold of the customers that are `chosen` on a lake that is empty, from `landed`.

    Returns:
        Events that went in, by table.

    Raises:
        ActivityError: a query failed.
    """
    delta.ensure_tables(shadow.lake)
    taken = {table: land(database, shadow.lake, table, _of_whom(table, choice)) for table in SIDES}
    run(spark, shadow, BUILT)
    return taken


def run(spark: SparkSession, settings: Settings, queries: Sequence[str]) -> None:
    """Let some queries of a lake read what is there.

    Raises:
        ActivityError: a query failed, or a driver runs it.
    """
    application.host(spark, settings, queries, threading.Event(), available_now=True)


def _of_whom(table: Table, choice: Choice) -> str:
    """Return the clause that leaves the events of the customers that are `chosen`."""
    if choice.is_everybody:
        return ""
    if table is Table.PROFILE_EVENTS:
        return "SEMI JOIN chosen USING (customer_id)"
    theirs = f"SELECT purchase_id FROM landed.{name_of(table)} SEMI JOIN chosen USING (customer_id)"
    return f"WHERE purchase_id IN ({theirs})"


def land(database: duckdb.DuckDBPyConnection, lake: str, table: Table, which: str) -> int:
    """Write events of `landed` to a table, those that a clause leaves; return how many.

    Each file is a commit of its own.
    """
    columns = ", ".join(f'"{column}"' for column in SIDES[table])
    found = database.sql(f"SELECT {columns} FROM landed.{name_of(table)} {which} {IN_ORDER}")
    rows = 0
    for part in in_parts(whole(found.to_arrow_reader(ROWS_AT_A_TIME), arrow_schema(table)), FILE_ROWS):
        writer = FileWriter(lake, table)
        writer.write(part)
        if file := writer.close():
            add(lake, table, [file], said(table))
            rows += file.rows
    return rows


def said(table: Table) -> CommitProperties:
    """Return what tells readers that a commit's rows are the pipeline's."""
    return CommitProperties(custom_metadata={"userMetadata": json.dumps({"query": REBUILD, "table": table.label})})


def add(lake: str, table: Table, files: Sequence[DataFile], properties: CommitProperties | None = None) -> None:
    """Append files to a table that nobody else writes to, in one commit."""
    log = DeltaTable(table_path(lake, table))
    now = int(time.time() * 1000)
    added = [AddAction(file.path, file.size, {}, now, data_change=True, stats=file.stats) for file in files]
    log.create_write_transaction(
        [*added], mode="append", schema=log.schema(), partition_by=None, commit_properties=properties
    )
    deltalog.settle(lake, table, deltalog.newest_version(lake, table))
