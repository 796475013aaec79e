"""What Spark's executors do of a large part of gold: pure functions of files.

`pack` sums purchases up by customer, piece by piece: a customer with a third of them is one row of each. Changes of
profiles go as they are. Those of a bucket come together, and `change` has the driver's own SQL compute what differs: on
a database in memory that holds the state of these customers alone, looked up in the bucket's sorted runs. It writes the
rows of gold, and the customers' state since as one more run.

Executors import this module and need little for it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import executors
from customer_activity.engine.executors import Parcel
from customer_activity.lake import pieces
from customer_activity.lake.datafiles import FileWriter
from customer_activity.lake.pieces import Piece
from customer_activity.state import profile_records, sorted_runs
from customer_activity.state.columns import is_text
from customer_activity.state.sorted_runs import BUCKETS, Run
from customer_activity.streams.gold import state
from customer_activity.streams.gold.columns import as_columns
from customer_activity.streams.gold.state import NEEDS, SUMS

SIDES = {holding.table: list(holding.columns) for holding in NEEDS.holdings}
KINDS = [(table, is_past) for table in SIDES for is_past in (False, True)]  # of parcels, by number
LATEST = "latest_"  # what the columns of a customer's last profile record are called beside those of the sums
PROFILE = [
    pa.field(LATEST + column.name, pa.string() if is_text(column) else pa.int64())
    for column in arrow_schema(Table.PROFILE_CHANGES)
    if column.name != "customer_id"
]
RUN = pa.schema([("hi", pa.int64()), ("lo", pa.int64()), *SUMS, *PROFILE])
FORMAT = sorted_runs.made_by(RUN, NEEDS.tables, *(holding.seed for holding in NEEDS.holdings))
WANTED = "CREATE TEMP TABLE asked (customer_id TEXT PRIMARY KEY) WITHOUT ROWID"
SELECT = f"""
SELECT asked.customer_id, {", ".join(f"summary.{name}" for name in SUMS.names[1:])},
    {", ".join(f'latest."{field.name.removeprefix(LATEST)}"' for field in PROFILE)}
FROM asked LEFT JOIN summary ON summary.customer_id = asked.customer_id
LEFT JOIN latest ON latest.customer_id = asked.customer_id
"""  # noqa: S608 - the names are ours


class Work(NamedTuple):
    """What is to be done: plain values, which Spark brings to its executors.

    Attributes:
        lake: where the tables are.
        folder: where the sorted runs are.
        shares: what each task reads.
        lanes: how many there are.
        runs: by bucket.
        currency: the deployment's.
        view_version: of the rows.
        had_a_row: of customers whose row was frozen, whether they had one in gold before the part, as far as that was
            looked up.
        adds: whether what is learnt goes into the runs.
    """

    lake: str
    folder: str
    shares: Sequence[Sequence[Piece]]
    lanes: int
    runs: Mapping[int, Sequence[Run]]
    currency: str
    view_version: int
    had_a_row: Mapping[str, bool] = {}
    adds: bool = True


def pack(work: Work, numbers: Iterable[int]) -> Iterator[Parcel]:
    """Sum purchases up by customer, and pass profile changes on."""
    for piece in chain.from_iterable(work.shares[number] for number in numbers):
        groups: Iterator[pa.Table] = (rows for _, rows in pieces.read(work.lake, piece, SIDES[piece.table]))
        if piece.table is Table.PURCHASES:
            groups = iter([state.totalled(state.summarised(some) for some in groups)])
        for rows in groups:
            high, _ = sorted_runs.fingerprints(rows.column("customer_id"))
            lane_of = sorted_runs.buckets(high) * work.lanes // BUCKETS
            yield from executors.parcels(lane_of, rows, KINDS.index((piece.table, piece.is_past)))


class _FrozenAndEnded(Exception):
    """Raised, with the customers, where it takes a look at gold's table to tell whether a frozen row has to end."""


def change(work: Work, packed: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Compute what differs for the customers of some buckets; report the file with it, the runs, who is beyond range.

    The report has `frozen` alone, customers, where gold's table has to be asked first whether they had a row.
    """
    found = {KINDS[kind]: rows for kind, rows in executors.unpacked(packed).items()}
    if not found:
        return
    sums, past_sums = (
        state.totalled(filter(None, [found.get((Table.PURCHASES, is_past))])) for is_past in (False, True)
    )
    none = pa.schema([arrow_schema(Table.PROFILE_CHANGES).field(name) for name in SIDES[Table.PROFILE_CHANGES]])
    changes, past_changes = (
        found.get((Table.PROFILE_CHANGES, is_past), none.empty_table()) for is_past in (False, True)
    )
    customers = pc.unique(
        pa.chunked_array(
            [chunk for side in (sums, past_sums, changes, past_changes) for chunk in side.column("customer_id").chunks],
            pa.string(),
        )
    )
    high, low = sorted_runs.fingerprints(customers)
    of_bucket = sorted_runs.buckets(high)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(NEEDS.tables + WANTED)
        connection.execute("BEGIN")
        for bucket in np.unique(of_bucket).tolist():
            of_this = np.flatnonzero(of_bucket == bucket)
            runs = work.runs.get(bucket, ())
            for _, held in sorted_runs.look_up(work.folder, runs, high[of_this], low[of_this]):
                _put(connection, held)
        connection.executemany(state.ADD, state.tuples(past_sums))
        connection.executemany(profile_records.CHANGE, profile_records.values(profile_records.newest(past_changes)))
        try:
            written = _written(work, connection, sums, changes)
        except _FrozenAndEnded as error:
            yield {"frozen": list(error.args)}
            return
        runs_since = {}
        for bucket in np.unique(of_bucket).tolist() if work.adds else ():
            of_this = np.flatnonzero(of_bucket == bucket)
            rows = _taken(connection, customers.take(pa.array(of_this)))
            runs_since[bucket] = sorted_runs.added(work.folder, work.runs.get(bucket, ()), rows)
    yield {**written, "runs": runs_since}


def _written(work: Work, connection: sqlite3.Connection, sums: pa.Table, changes: pa.Table) -> dict[str, Any]:
    writer = FileWriter(work.lake, Table.ACTIVITY_CHANGES)
    profiles, ended = profile_records.newest(changes), state.with_an_end(changes)
    had_a_profile = {customer for (customer,) in connection.execute("SELECT customer_id FROM profile")}

    def in_gold(frozen: Sequence[str]) -> Iterable[str]:
        """Tell who has a row in gold: nobody who has no profile, and had none since before the part."""
        asked = had_a_profile.union(ended).intersection(frozen)
        if asked - work.had_a_row.keys():
            raise _FrozenAndEnded(*asked)
        return [customer for customer in asked if work.had_a_row[customer]]

    changed = state.take_in(connection, sums, profiles, ended, in_gold)
    for rows in changed.rows:
        writer.write(as_columns(rows, work.currency, work.view_version))
    return {"file": writer.close(), "beyond": changed.beyond}


def _put(connection: sqlite3.Connection, held: pa.Table) -> None:
    """Put rows of a run into the database."""
    with_sums = held.filter(pc.is_valid(held.column("purchase_count"))).select(SUMS.names)
    connection.executemany(state.INSERT, state.tuples(with_sums))
    last = ["customer_id", *(field.name for field in PROFILE)]
    with_profile = held.filter(pc.is_valid(held.column(f"{LATEST}is_tombstone"))).select(last)
    connection.executemany(profile_records.INSERT, state.tuples(with_profile))


def _taken(connection: sqlite3.Connection, customers: pa.Array) -> pa.Table:
    """Return what the database has of some customers, as a run has it."""
    connection.execute("DELETE FROM asked")
    connection.executemany("INSERT INTO asked VALUES (?)", state.tuples(pa.table({"customer_id": customers})))
    columns = zip(*connection.execute(SELECT), strict=True)
    rows = pa.table(
        [pa.array(cells, field.type) for cells, field in zip(columns, [*SUMS, *PROFILE], strict=True)],
        schema=pa.schema([*SUMS, *PROFILE]),
    )
    high, low = sorted_runs.fingerprints(rows.column("customer_id"))
    return rows.add_column(0, "hi", pa.array(high)).add_column(1, "lo", pa.array(low)).cast(RUN)
