"""Silver: count each purchase once, and note every change of a profile.

Reads      bronze.purchase_events and bronze.customer_profiles, change data feeds, one batch cut over both
Writes     bronze.quarantine (append: repeats with other content), silver.purchases (append),
           silver.profile_changes (append), in this order
Grain      one row per purchase_id; one row per change of a customer's profile
On restart each topic's side of a part is in its table, whose newest commit says so, or is judged as before, by a past
           without it; quarantine comes first, so what is in a table is done; each write carries a transaction id
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Reason, Table
from customer_activity.contracts.columns import IS_TOMBSTONE, POSITION, PROFILE_FIELDS, PURCHASE_FIELDS, TRACE, names
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.changes import ChangeStream, Spreadable, Step, table_of
from customer_activity.engine.stream import Append, Context, Steps
from customer_activity.engine.workers import Executors
from customer_activity.lake import conflicts, lookup, pieces
from customer_activity.lake.datafiles import FileWriter, write_at_once
from customer_activity.lake.feeds import Feed
from customer_activity.lake.microbatch import ACCEPTED, QUARANTINED, MicroBatch
from customer_activity.lake.pieces import Piece
from customer_activity.settings import Settings
from customer_activity.state.keyed import NEWEST, State
from customer_activity.state.profile_records import records as records_of
from customer_activity.streams.silver import profiles, purchases, spread
from customer_activity.streams.silver import state as past
from customer_activity.streams.silver.order import in_order
from customer_activity.streams.silver.state import NEEDS
from customer_activity.topology import Reads, Spec, Writes

SPEC = Spec(
    "silver",
    reads=(
        Reads(Table.PURCHASE_EVENTS, progress=Table.PURCHASES),
        Reads(Table.PROFILE_EVENTS, progress=Table.PROFILE_CHANGES),
    ),
    writes=(
        Writes(Table.PURCHASES, key=("purchase_id",)),
        Writes(
            Table.PROFILE_CHANGES,
            key=("customer_id",),
            order=("landing", "partition", "offset"),
            ended="is_tombstone",
        ),
        Writes(Table.QUARANTINE, sources=(Table.PURCHASE_EVENTS,)),
    ),
    promises="a purchase counts once; the newest profile update since the last tombstone wins",
    is_spread=True,
)
SIDES = {
    Table.PURCHASE_EVENTS: names([*PURCHASE_FIELDS, *POSITION, *TRACE]),
    Table.PROFILE_EVENTS: names([*PROFILE_FIELDS, *IS_TOMBSTONE, *POSITION, *TRACE]),
}


def prepare(context: Context) -> Spreadable:
    """Open the state: what is counted, and the current profiles."""
    settings, ids = context.settings, context.ids
    state = context.state(SPEC.name, NEEDS)
    by_tasks = partial(spread.step, executors=Executors(context.spark), settings=settings, ids=ids)
    return Spreadable(
        step=partial(step, settings=settings, state=state),
        spread=partial(step_by_tasks, state=state, by_tasks=by_tasks),
        state=state,
        begin=lambda part: {made: NEWEST for side, made, _ in spread.SIDES if part.added[side]},
        is_near=partial(spread.is_near, settings=settings, ids=ids),
        replaces=lambda _: spread.has_all(settings=settings, ids=ids),
    )


def step_by_tasks(part: Feed, batch: MicroBatch, *, state: State, by_tasks: Step) -> Steps:
    """Judge a part by tasks, which leaves the state behind."""
    try:
        yield from by_tasks(part, batch)
    finally:
        for table in (Table.PURCHASES, Table.PROFILE_CHANGES):
            state.fall_behind(table)


def step(part: Feed, batch: MicroBatch, *, settings: Settings, state: State) -> Steps:
    """Judge a part by the state, or, a large one's purchases, against the whole table."""
    with batch.phase("read"):
        bought = table_of(part, Table.PURCHASE_EVENTS, SIDES[Table.PURCHASE_EVENTS]) if part.is_small else None
        updates = updates_of(part)
    if part.added[Table.PURCHASE_EVENTS]:
        if bought is None:
            yield from count_many(part, batch, settings=settings, state=state)
        else:
            yield from count(bought, batch, settings=settings, state=state)
    if part.added[Table.PROFILE_EVENTS]:
        yield from change_profiles(updates, batch, settings=settings, state=state)


def updates_of(part: Feed) -> pa.Table:
    """Return a part's profile records, of updates that follow each other and say the same the first one alone.

    A large part is read one row group after the other, which has 32 MB at most: on all cores Arrow reads whole files
    ahead, and a file of the same record over and over has gigabytes.
    """
    columns, files = SIDES[Table.PROFILE_EVENTS], part.added[Table.PROFILE_EVENTS]
    schema = pa.schema([arrow_schema(Table.PROFILE_EVENTS).field(name) for name in columns])
    if part.has_few(Table.PROFILE_EVENTS):
        batches = part.batches(Table.PROFILE_EVENTS, columns)
        found = (pa.Table.from_batches([some.cast(schema)]) for some in batches)
    else:
        read = (pieces.read(part.lake, Piece(Table.PROFILE_EVENTS, file.path), columns) for file in files)
        found = (rows for _, rows in chain.from_iterable(read))
    try:
        return pa.concat_tables(map(profiles.without_repeats, chain([schema.empty_table()], found)))
    except FileNotFoundError as error:
        raise part.lost(Table.PROFILE_EVENTS) from error


def count(bought: pa.Table, batch: MicroBatch, *, settings: Settings, state: State) -> Steps:
    """Judge a small batch's purchases by the state; append those that count, quarantine conflicting repeats."""
    with batch.phase("compute"):
        state.bring({Table.PURCHASES: NEWEST}, batch.progress)
        bought = in_order(bought)
        records = list(purchases.firsts(bought))
        verdicts = purchases.judge(records, past.counted(state, (purchase_id for purchase_id, _ in records)))
        _count(Counter(verdicts), settings.purchase_topic, batch)
        accepted = bought.filter(pa.array([verdict == ACCEPTED for verdict in verdicts]))
    yield from _quarantine(bought, verdicts, settings)
    with state.change() as connection:
        version = yield Append(Table.PURCHASES, accepted)
        new = (record for record, verdict in zip(records, verdicts, strict=True) if verdict == ACCEPTED)
        past.add_purchases(connection, new)
        state.advance(Table.PURCHASES, version, batch.attempt)


def count_many(part: Feed, batch: MicroBatch, *, settings: Settings, state: State) -> Steps:
    """Append a large part's purchases: an id that is unique in the part and the table takes the fast path.

    The few others are judged as a small part's are. The state takes the table's new rows in before it is used again.
    """
    columns = SIDES[Table.PURCHASE_EVENTS]
    with batch.phase("compute"):
        ids = [some.column("purchase_id") for some in part.batches(Table.PURCHASE_EVENTS, ["purchase_id"])]
        counts = pc.value_counts(pa.chunked_array(ids, pa.string()))
        del ids
        different = counts.field("values")
        known = lookup.rows_of(settings.lake, Table.PURCHASES, purchases.COLUMNS, different, batch.progress)
        again = different.filter(pc.greater(counts.field("counts"), 1))
        suspects = pc.unique(pa.chunked_array([again, *known.column("purchase_id").chunks], pa.string()))
        suspected = _among(part.batches(Table.PURCHASE_EVENTS, columns), suspects)
        verdicts = purchases.judge(purchases.firsts(suspected), dict(purchases.firsts(known)))
        accepted = suspected.filter(pa.array([verdict == ACCEPTED for verdict in verdicts], pa.bool_()))
    with batch.phase("write"):
        rest = (
            some.filter(pc.invert(pc.is_in(some.column("purchase_id"), value_set=suspects)))
            for some in part.batches(Table.PURCHASE_EVENTS, columns)
        )
        written = write_at_once(chain(accepted.to_batches(), rest), settings.lake, Table.PURCHASES)
    _count(Counter(verdicts), settings.purchase_topic, batch)
    rows = sum(file.rows for file in written) - accepted.num_rows
    batch.count(settings.purchase_topic, ACCEPTED, rows)
    batch.rows += rows
    yield from _quarantine(suspected, verdicts, settings)
    yield Append(Table.PURCHASES, files=written)
    state.fall_behind(Table.PURCHASES)


def _among(batches: Iterator[pa.RecordBatch], ids: pa.Array) -> pa.Table:
    """Return the rows of these purchase ids, in the order of their records."""
    schema = arrow_schema(Table.PURCHASES)
    chosen = (part.filter(pc.is_in(part.column("purchase_id"), value_set=ids)) for part in batches) if len(ids) else ()
    parts = [part.select(schema.names).cast(schema) for part in chosen]
    return in_order(pa.Table.from_batches(parts, schema))


def change_profiles(updates: pa.Table, batch: MicroBatch, *, settings: Settings, state: State) -> Steps:
    """Judge profile records by the state and append what changes: a customer's last change, and an end before it."""
    state.bring({Table.PROFILE_CHANGES: NEWEST}, batch.progress)
    updates = in_order(updates)
    writer = FileWriter(settings.lake, Table.PROFILE_CHANGES)
    with state.change() as connection:
        with batch.phase("compute"):
            for some in profiles.by_customers(updates):
                customers = pc.unique(some.column("customer_id")).to_pylist()
                verdicts, numbers = profiles.judge(profiles.each(some), past.current(state, customers))
                repeats = some.column(profiles.REPEATS).to_pylist()
                _count(profiles.counted(verdicts, repeats), settings.profile_topic, batch)
                changes = some.take(pa.array(numbers, pa.int64()))
                writer.write(changes)
                past.change_profiles(connection, records_of(changes))
        version = yield Append(Table.PROFILE_CHANGES, files=[writer.close()])
        state.advance(Table.PROFILE_CHANGES, version, batch.attempt)


def _quarantine(bought: pa.Table, verdicts: list[str], settings: Settings) -> Steps:
    """Append conflicting repeats to quarantine with the raw bytes that bronze kept of them."""
    found = bought.filter(pa.array([verdict == QUARANTINED for verdict in verdicts], pa.bool_()))
    if not found.num_rows:
        return
    writer = FileWriter(settings.lake, Table.QUARANTINE)
    for rows in conflicts.landed(settings.lake, found.select(conflicts.PLACE)):
        writer.write(rows)
    yield Append(Table.QUARANTINE, files=[writer.close()], reasons={Reason.CONFLICTING_DUPLICATE: found.num_rows})


def _count(verdicts: Counter[str], topic: str, batch: MicroBatch) -> None:
    """Add the verdicts on a topic's records to the batch's accounting."""
    for verdict, count in verdicts.items():
        batch.count(topic, verdict, count)
    batch.rows += verdicts.total()


STREAM = ChangeStream(SPEC, SIDES, prepare)
