"""Profile records by customer, as local state: what a batch needs of them is looked up, and nothing else is read.

A customer's records are one text, a JSON array with an array for each of them, in any order: they are put in order
where they are used.
"""

from __future__ import annotations

import json
import sqlite3
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import deltalog
from customer_activity.state import profile_records
from customer_activity.state.columns import UNNUMBERED, plain_sql
from customer_activity.state.keyed import Holding, Needs, State

SCHEMA = arrow_schema(Table.PROFILE_CHANGES)
KEY, *SAID = SCHEMA.names
TABLES = """
CREATE TABLE IF NOT EXISTS history (customer_id TEXT PRIMARY KEY, records TEXT NOT NULL) WITHOUT ROWID;
"""
INSERT = "INSERT INTO history VALUES (?, ?)"
ADD = f"""
{INSERT} ON CONFLICT (customer_id) DO UPDATE SET
    records = substr(records, 1, length(records) - 1) || ',' || substr(excluded.records, 2)
"""
SEED = f"""
SELECT customer_id, to_json(list(json_array({", ".join(plain_sql(SCHEMA.field(name)) for name in SAID)})))::VARCHAR
FROM (SELECT * REPLACE (coalesce(landing, {UNNUMBERED}) AS landing) FROM snapshot {{where}}) GROUP BY customer_id
"""  # noqa: S608 - the names are ours
MOST_CUSTOMERS = 10_000  # that are looked up at once: for more of them it is faster to read all that bronze has
LOOK_UP = "SELECT customer_id, records FROM wanted JOIN history ON customer_id = key"


def take(connection: sqlite3.Connection, rows: pa.Table) -> None:
    """Add records of bronze.customer_profiles to the state."""
    by_customer = groupby(profile_records.values(rows.sort_by(KEY)), key=itemgetter(0))
    found = ((customer, json.dumps([record[1:] for record in records])) for customer, records in by_customer)
    connection.executemany(ADD, found)


NEEDS = Needs(
    TABLES,
    [Holding(Table.PROFILE_EVENTS, SCHEMA.names, "DELETE FROM history", take, SEED, INSERT, Table.PROFILE_EVENTS)],
)


def records_of(state: State, lake: str, customers: pa.ChunkedArray) -> pa.Table | None:
    """Return some customers' profile records; None where they are many, or the state cannot tell them at once.

    It is brought on behind the stream then.
    """
    wanted = pc.unique(customers)
    if len(wanted) > MOST_CUSTOMERS:
        return None
    to = {Table.PROFILE_EVENTS: deltalog.newest_version(lake, Table.PROFILE_EVENTS)}
    if not state.fits():
        return None
    if not state.is_near(to):
        state.catch_up(to)
        return None
    state.bring(to)
    found = state.look_up(LOOK_UP, wanted.to_pylist())
    rows = [(customer, *record) for customer, text in found for record in json.loads(text)]
    columns = zip(*rows, strict=True) if rows else ((),) * len(SCHEMA)
    table = pa.table([_column(field, list(values)) for field, values in zip(SCHEMA, columns, strict=True)], SCHEMA)
    landing = table.column("landing")
    numbered = pc.if_else(pc.equal(landing, UNNUMBERED), pa.scalar(None, pa.int64()), landing)
    return table.set_column(SCHEMA.names.index("landing"), SCHEMA.field("landing"), numbered)


def _column(field: pa.Field, values: list[object]) -> pa.Array:
    kind = pa.int64() if pa.types.is_timestamp(field.type) else field.type
    return pa.array(values, kind).cast(field.type)
