"""Gold: the current profile of a customer joined with everything the customer bought, one row a change.

Reads      silver.purchases and silver.profile_changes, change data feeds, one batch cut over both
Writes     bronze.quarantine (append: customers whose total is out of range), gold.activity_changes (append)
Grain      one row per part of a batch and customer whose row (profiles LEFT JOIN summaries) begins, changes or ends
On restart gold's newest commit names the pair of silver versions that it was computed from: the parts of a repeated
           batch up to it are left out, and the state is brought to where the next one begins
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from customer_activity.catalog import Reason, Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.changes import ChangeStream, Step, table_of
from customer_activity.engine.stream import Append, Context, Steps
from customer_activity.lake import history
from customer_activity.lake.datafiles import FileWriter, in_parts
from customer_activity.lake.feeds import Feed
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.settings import Settings
from customer_activity.state.columns import is_text
from customer_activity.state.keyed import State
from customer_activity.streams.gold.state import (
    NAME,
    NEEDS,
    ROW,
    Row,
    change,
    latest,
    summarised,
    totalled,
    with_an_end,
)
from customer_activity.topology import Reads, Spec, Writes

SPEC = Spec(
    NAME,
    reads=(
        Reads(Table.PURCHASES, progress=Table.ACTIVITY_CHANGES),
        Reads(Table.PROFILE_CHANGES, progress=Table.ACTIVITY_CHANGES),
    ),
    writes=(Writes(Table.ACTIVITY_CHANGES, key=("customer_id", "view_version")), Writes(Table.QUARANTINE)),
    promises="computed from one consistent pair of silver versions; a row is written only when it changed",
)
SIDES = {holding.table: holding.columns for holding in NEEDS.holdings}
PART_ROWS = 500_000  # summed up at a time
SCHEMA = arrow_schema(Table.ACTIVITY_CHANGES)
TYPES = {column.name: pa.string() if is_text(column) else pa.int64() for column in SCHEMA}  # of the state's rows
TYPES["total_amount"] = pa.int64()  # cents
CENT = pa.scalar("0.01").cast(pa.decimal128(3, 2))
FROZEN = "frozen"  # in a commit's note: how many customers its batch has put into quarantine


def begins(settings: Settings) -> dict[Table, int]:
    """Return the first version that a first batch reads of each table."""
    note = history.latest_metadata(settings.lake, Table.ACTIVITY_CHANGES, NAME)
    return {table: max(0, int(note.get(table.label, 0))) for table in SIDES}


def prepare(context: Context) -> Step:
    """Open the state, and a clock of versions."""
    settings = context.settings
    return partial(step, settings=settings, state=context.state(NAME, NEEDS), clock=ViewClock.of(settings.lake))


def step(part: Feed, batch: MicroBatch, *, settings: Settings, state: State, clock: ViewClock) -> Steps:
    """Bring the state to where a part begins, take both sides' changes in, append the rows that differ."""
    lake = settings.lake
    with batch.phase("read"):
        state.bring({table: after for table, (after, _) in part.versions.items()}, batch.progress)
        bought = part.batches(Table.PURCHASES, SIDES[Table.PURCHASES])
        sums = totalled(summarised(some) for some in in_parts(bought, PART_ROWS))
        profile_changes = table_of(part, Table.PROFILE_CHANGES, SIDES[Table.PROFILE_CHANGES])
        profiles, ended = latest(profile_changes), with_an_end(profile_changes)
    to = {table: part.end(table, batch.ids[table]) for table in SIDES}
    batch.extra |= {table.label: place.version for table, place in to.items()}
    writer = FileWriter(lake, Table.ACTIVITY_CHANGES)
    version = clock.next()
    with batch.phase("compute"), change(state, sums, profiles, ended, to, partial(with_a_row, lake)) as changes:
        for rows in changes.rows:
            batch.rows += len(rows)
            writer.write(as_columns(rows, settings.currency, version))
        file = writer.close()
        if changes.beyond:
            batch.extra[FROZEN] = len(changes.beyond)
            yield Append(Table.QUARANTINE, frozen(changes.beyond, settings))
        # Also without a row: each part leaves a commit, by which table and checkpoint are compared.
        yield Append(Table.ACTIVITY_CHANGES, files=[file])


def with_a_row(lake: str, customers: Sequence[str]) -> list[str]:
    """Return those of some customers who have a row in gold, as the changes so far tell."""
    told = DeltaTable(table_path(lake, Table.ACTIVITY_CHANGES)).to_pyarrow_dataset()
    is_theirs = pc.field("customer_id").isin(pa.array(customers, pa.string()))
    changes = told.to_table(columns=["customer_id", "view_version", "is_gone"], filter=is_theirs).sort_by(
        "view_version"
    )
    is_gone = dict(zip(changes.column("customer_id").to_pylist(), changes.column("is_gone").to_pylist(), strict=True))
    return [customer for customer, gone in is_gone.items() if not gone]


def frozen(customers: Sequence[str], settings: Settings) -> pa.Table:
    """Return quarantine's rows of customers whose total has left decimal(18,2); no one record is at fault."""
    now = datetime.now(UTC)
    rows = [
        {
            "reason": Reason.TOTAL_OUT_OF_RANGE.value,
            "detail": "totalAmount: beyond 9999999999999999.99; the customer's row stays as it was",
            "key": customer.encode(),
            "topic": settings.purchase_topic,
            "quarantined_at": now,
        }
        for customer in customers
    ]
    return pa.Table.from_pylist(rows, arrow_schema(Table.QUARANTINE))


def as_columns(rows: Sequence[Row], currency: str, view_version: int) -> pa.Table:
    """Gold rows as gold.activity_changes has them."""
    values = zip(*rows, strict=True)
    columns = {name: pa.array(cells, TYPES[name]) for name, cells in zip(ROW, values, strict=True)}
    columns["total_amount"] = pc.multiply(columns["total_amount"].cast(pa.decimal128(19, 0)), CENT)
    columns |= {"currency": pa.repeat(currency, len(rows)), "view_version": pa.repeat(view_version, len(rows))}
    return pa.table([columns[name] for name in SCHEMA.names], SCHEMA.names).cast(SCHEMA)


class ViewClock:
    """Gives each batch a view version greater than every one before.

    A hybrid logical clock: the time in milliseconds, or one more than the last version where time has not moved on.
    So versions grow over deletes, restarts and rebuilds of the table without being stored anywhere else.
    """

    def __init__(self, newest: int = 0, *, now: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        """Start above the newest version known; `now` counts milliseconds."""
        self.newest = newest
        self.now = now

    @classmethod
    def of(cls, lake: str) -> ViewClock:
        """Start above the newest version in gold, as its files' statistics tell it."""
        files = pa.table(DeltaTable(table_path(lake, Table.ACTIVITY_CHANGES)).get_add_actions(flatten=True))
        column = "max.view_version"
        newest = pc.max(files.column(column)).as_py() if column in files.column_names else None
        return cls(newest or 0)

    def next(self) -> int:
        """Return the next version."""
        self.newest = max(self.now(), self.newest + 1)
        return self.newest


STREAM = ChangeStream(SPEC, SIDES, prepare, begins)
