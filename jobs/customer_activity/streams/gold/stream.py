"""Gold: the current profile of a customer joined with everything the customer bought, one row a change.

Reads      silver.purchases and silver.profile_changes, change data feeds, one batch cut over both
Writes     bronze.quarantine (append: customers whose total is out of range), gold.activity_changes (append)
Grain      one row per part of a batch and customer whose row (profiles LEFT JOIN summaries) begins, changes or ends
On restart gold's newest commit names the pair of silver versions that it was computed from: the parts of a repeated
           batch up to it are left out, and the state is brought to where the next one begins
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from customer_activity.catalog import Reason, Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.changes import ChangeStream, Spreadable, table_of
from customer_activity.engine.stream import Append, Context, Steps
from customer_activity.engine.workers import Executors, Workers
from customer_activity.errors import ChangeFeedLost
from customer_activity.lake import history
from customer_activity.lake.datafiles import FileWriter, in_parts
from customer_activity.lake.deltalog import Position
from customer_activity.lake.feeds import Feed
from customer_activity.lake.microbatch import MicroBatch, Place, Placement
from customer_activity.lake.view_clock import ViewClock
from customer_activity.settings import Settings
from customer_activity.state import catalogue, profile_records
from customer_activity.state.keyed import State
from customer_activity.streams.gold import spread, tasks
from customer_activity.streams.gold.rows import parts
from customer_activity.streams.gold.spread import Changed
from customer_activity.streams.gold.state import NEEDS, change, with_an_end
from customer_activity.streams.gold.sums import summarised, totalled
from customer_activity.topology import How, Made, Reads, Spec, Writes

SPEC = Spec(
    "gold",
    reads=(
        Reads(Table.PURCHASES, progress=Table.ACTIVITY_CHANGES),
        Reads(Table.PROFILE_CHANGES, progress=Table.ACTIVITY_CHANGES),
    ),
    writes=(
        Writes(
            Table.ACTIVITY_CHANGES,
            key=("customer_id",),
            order=("view_version",),
            ended="is_gone",
            uneven=("view_version", "existed"),  # they count and compare the steps that led to a row
            # A total that does not fit its type freezes the row as it was last right.
            frozen="SELECT customer_id FROM {tables}.purchases GROUP BY ALL HAVING sum(amount) > 9999999999999999.99",
            made=(
                Made("profile_updated_at", ("updated_at",), How.IDENTITY),
                Made("purchase_count", ("purchase_id",), How.AGGREGATION),
                Made("total_amount", ("amount",), How.AGGREGATION),
                Made("currency"),
                Made("first_purchase_at", ("occurred_at",), How.AGGREGATION),
                Made("last_purchase_at", ("occurred_at",), How.AGGREGATION),
                Made("view_version"),
                Made("as_of", ("kafka_timestamp",), How.AGGREGATION),
                Made("existed", ("is_tombstone",)),
                Made("is_gone", ("is_tombstone",)),
            ),
        ),
        Writes(Table.QUARANTINE),
    ),
    promises="computed from one consistent pair of silver versions; a row is written only when it changed",
    is_spread=True,
)
SIDES = {holding.table: holding.columns for holding in NEEDS.holdings}
PART_ROWS = 500_000  # summed up at a time
FROZEN = "frozen"  # in a commit's note: how many customers its batch has put into quarantine


def begins(settings: Settings) -> dict[Table, int]:
    """Return the first version that a first batch reads of each table."""
    note = history.latest_metadata(settings.lake, Table.ACTIVITY_CHANGES, SPEC.name)
    return {table: max(0, int(note.get(table.label, 0))) for table in SIDES}


def prepare(context: Context) -> Spreadable:
    """Open the state, and a clock of versions."""
    settings = context.settings
    state = context.state(SPEC.name, NEEDS)
    clock = ViewClock.of(settings.lake)
    executors = Executors(context.spark)

    def is_near(part: Feed) -> bool:
        return spread.past_of(part, SPEC.name, settings=settings, ids=context.ids).is_near

    return Spreadable(
        step=partial(step, settings=settings, state=state, clock=clock),
        spread=partial(step_by_tasks, settings=settings, state=state, clock=clock, executors=executors),
        state=state,
        begin=lambda part: {table: after for table, (after, _) in part.versions.items()},
        is_near=is_near,
        replaces=is_near,
    )


def step_by_tasks(
    part: Feed, batch: MicroBatch, *, settings: Settings, state: State, clock: ViewClock, executors: Workers
) -> Steps:
    """Compute what differs by tasks, and append it, with what holds both sides since."""
    version, to = begun(part, batch, clock)
    try:
        changed = spread.change(
            part, batch, executors=executors, settings=settings, view_version=version, with_a_row=with_a_row
        )
    except ChangeFeedLost as error:
        if not state.is_kept:
            raise
        batch.placement = Placement(Place.DRIVER, error.what)  # local state may know another way to what was there
        yield from change_here(part, batch, settings=settings, state=state, to=to, version=version)
        return
    yield from append(changed, to, batch, settings)
    for table in SIDES:
        state.fall_behind(table)


def step(part: Feed, batch: MicroBatch, *, settings: Settings, state: State, clock: ViewClock) -> Steps:
    """Take both sides' changes in by the local state, and append the rows that differ."""
    version, to = begun(part, batch, clock)
    yield from change_here(part, batch, settings=settings, state=state, to=to, version=version)


def begun(part: Feed, batch: MicroBatch, clock: ViewClock) -> tuple[int, dict[Table, Position]]:
    """Return the version of a part's rows, and the pair of places that it ends at, which its commits note."""
    to = {table: part.end(table, batch.ids[table]) for table in SIDES}
    batch.extra |= {table.label: place.version for table, place in to.items()}
    return clock.next(), to


def append(changed: Changed, to: Mapping[Table, Position], batch: MicroBatch, settings: Settings) -> Steps:
    """Append what tasks have written, and note what holds both sides since."""
    batch.rows += sum(file.rows for file in changed.files)
    if changed.beyond:
        batch.extra[FROZEN] = len(changed.beyond)
        yield frozen(changed.beyond, settings)
    version = yield Append(Table.ACTIVITY_CHANGES, files=changed.files)
    if version is not None and changed.runs_since:
        catalogue.note(settings.lake, batch.query, tasks.FORMAT, to, {**changed.runs, **changed.runs_since})


def change_here(
    part: Feed, batch: MicroBatch, *, settings: Settings, state: State, to: Mapping[Table, Position], version: int
) -> Steps:
    """Bring the state to where a part begins, take both sides' changes in, append the rows that differ."""
    lake = settings.lake
    with batch.phase("read"):
        state.bring({table: after for table, (after, _) in part.versions.items()}, batch.progress)
        bought = part.batches(Table.PURCHASES, SIDES[Table.PURCHASES])
        sums = totalled(summarised(some) for some in in_parts(bought, PART_ROWS))
        profile_changes = table_of(part, Table.PROFILE_CHANGES, SIDES[Table.PROFILE_CHANGES])
        profiles, ended = profile_records.newest(profile_changes), with_an_end(profile_changes)
    writer = FileWriter(lake, Table.ACTIVITY_CHANGES)
    beyond: list[str] = []
    with batch.phase("compute"), change(state, sums, profiles, ended, to, partial(with_a_row, lake)) as changes:
        for changed in changes:
            batch.rows += changed.rows.num_rows
            for rows in parts(changed.rows, settings.currency, version):
                writer.write(rows)
            beyond += changed.beyond
        file = writer.close()
        if beyond:
            batch.extra[FROZEN] = len(beyond)
            yield frozen(beyond, settings)
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


def frozen(customers: Sequence[str], settings: Settings) -> Append:
    """Put customers into quarantine whose total has left decimal(18,2); no one record is at fault."""
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
    found = pa.Table.from_pylist(rows, arrow_schema(Table.QUARANTINE))
    return Append(Table.QUARANTINE, found, reasons={Reason.TOTAL_OUT_OF_RANGE: len(rows)})


STREAM = ChangeStream(SPEC, SIDES, prepare, begins)
