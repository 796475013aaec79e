"""Build silver and gold from bronze on a lake of their own, with the very queries that the streams run.

That lake's bronze has the landed records in the order of their landing, without the raw bytes: all of them, or those of
some customers with every record of a purchase id that is among theirs, because such a record may be the one that
counts.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import duckdb
import pyarrow as pa
from deltalake import CommitProperties
from pyspark.sql import SparkSession

from customer_activity import application, topology
from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.changes import ChangeStream
from customer_activity.lake import delta
from customer_activity.lake.datafiles import in_parts, whole
from customer_activity.lake.named_operations import REBUILD
from customer_activity.lake.replacing import replace
from customer_activity.operations.differences import listed
from customer_activity.rebuild.basis import name_of
from customer_activity.settings import Settings
from customer_activity.streams.registry import STREAMS
from customer_activity.topology import Edge, Spec

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
    sides = [f"SELECT customer_id FROM landed.{name_of(table)} WHERE {' AND '.join(conditions)}" for table in events()]
    database.execute(f"CREATE TABLE chosen AS {' UNION '.join(sides)}", values * len(sides))
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
    taken = {table: land(database, shadow.lake, table, choice) for table in events()}
    run(spark, shadow, topology.rebuilt())
    return taken


def run(spark: SparkSession, settings: Settings, streams: Sequence[Spec]) -> None:
    """Let some streams of a lake read what is there.

    Raises:
        ActivityError: a query failed, or a driver runs it.
    """
    names = [spec.name for spec in streams]
    application.host(spark, settings, names, threading.Event(), available_now=True)


def events() -> dict[Table, list[Edge]]:
    """Return the tables of events that a rebuild begins with, and which tables are made from each."""
    edges = topology.judging()
    return {edge.read: [each for each in edges if each.read is edge.read] for edge in edges}


def land(database: duckdb.DuckDBPyConnection, lake: str, table: Table, choice: Choice) -> int:
    """Write the events of `landed` that are chosen to a table, as far as they are read; return how many.

    Each file is a commit of its own.
    """
    streams = [STREAMS[edge.stream] for edge in events()[table]]
    columns = dict.fromkeys(
        column for stream in streams if isinstance(stream, ChangeStream) for column in stream.columns[table]
    )
    which = "" if choice.is_everybody else f"WHERE {' OR '.join(_is_chosen(edge) for edge in events()[table])}"
    found = database.sql(f"SELECT {listed([*columns])} FROM landed.{name_of(table)} {which} {IN_ORDER}")
    rows = 0
    for part in in_parts(whole(found.to_arrow_reader(ROWS_AT_A_TIME), arrow_schema(table)), FILE_ROWS):
        add(lake, table, part.to_batches())
        rows += part.num_rows
    return rows


def _is_chosen(edge: Edge) -> str:
    """Return the condition that customers who are `chosen` have an event with the key of what is made of it."""
    key = listed(topology.spec(edge.stream).how(edge.made).key)
    return f"({key}) IN (SELECT {key} FROM landed.{name_of(edge.read)} SEMI JOIN chosen USING (customer_id))"


def add(lake: str, table: Table, rows: Iterable[pa.RecordBatch]) -> None:
    """Append rows to a table that nobody else writes to, in one commit, which readers take for the pipeline's own."""
    said = CommitProperties(custom_metadata={"userMetadata": json.dumps({"query": REBUILD, "table": table.label})})
    replace(lake, table, (), (), rows, said)
