"""Bring records back from quarantine when what refused them was fixed: each enters bronze once, where it was.

Reads      bronze.quarantine, and what has landed of the same keys
Writes     the tables of records of the topics chosen (append), then bronze.quarantine (delete)
Grain      one row per record, with its first coordinates, key, value, headers and Kafka time
On restart a record that is in bronze already is not appended again; only its row in quarantine goes

A replay has landings of its own, with the next numbers: what it brings back is later than all that has landed, and in
the order in which it was refused (`order.py`). So a record that was overtaken stays: where another of the same key has
landed since it was refused, the record would come after one that was sent later; a profile would come back that was
replaced or deleted since. To have it all the same, send it again. No payment is overtaken: another one of its purchase
is money, too.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from customer_activity import topology
from customer_activity.catalog import REPLAY, Reason, Table, table_path
from customer_activity.checkpoints import checkpoint
from customer_activity.contracts import RULES
from customer_activity.contracts.columns import EACH_FOR_ITSELF, LANDED
from customer_activity.contracts.parsing import parse_batch
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import SettingsError, TerminalError, TransientError
from customer_activity.lake import audit, delta, footers, named_operations
from customer_activity.lake.microbatch import REMOVED, REPLAYED
from customer_activity.lake.numbering import BY_RULES, FIRST_LANDING, LANDING, REPLAYED_TO, Landing, Numbering
from customer_activity.lake.replacing import settle
from customer_activity.lease import lease
from customer_activity.quarantine import order
from customer_activity.quarantine.contents import PLACE, Selection, selected
from customer_activity.settings import Settings
from customer_activity.topology import Spec, Topic

# Nothing about the record itself was wrong, or there is none.
FOR_GOOD = (Reason.CONFLICTING_DUPLICATE, Reason.TOO_LARGE_TO_PUBLISH, Reason.TOTAL_OUT_OF_RANGE)
KEYS = {table: contract.field(contract.key).column for table, contract in LANDED.items()}
RAW = [*PLACE, "kafka_timestamp", "key", "value", "headers", "landing", "reason"]


class Replay(NamedTuple):
    """What came of the records chosen.

    Attributes:
        accepted: records that enter bronze, by topic.
        refused: records that are still refused, by reason.
        overtaken: records that stay because a later one of the same key has landed.
        elsewhere: records that stay because no stream that is on lands their topic, by topic.
    """

    accepted: dict[str, int]
    refused: dict[str, int]
    overtaken: int
    elsewhere: dict[str, int] = {}  # noqa: RUF012 - a default, which nobody changes


class HalfLanded(TerminalError):
    """Raised when a batch of bronze was interrupted between two of its commits."""


class Run(NamedTuple):
    """What one replay commits as: landings of a stream, an id, and the epochs that are held of the tables' writers."""

    stream: str
    landing: Landing  # the first one
    last: int  # the number of the last one
    id: str
    fencing_epoch: Callable[[str], int]


def replay(settings: Settings, selection: Selection, reason: str, *, dry_run: bool = False) -> Replay:
    """Judge the records chosen again, and let in those that are right by now.

    Args:
        settings: which lake; the contract is that of this release, and the currency the deployment's.
        selection: which records.
        reason: what was fixed; kept in the lake's `_audit` folder.
        dry_run: tell what would be done, and do nothing.

    Raises:
        SettingsError: there is no lake.
        QueryAlreadyRunning: a query runs that writes these tables.
        TerminalError: a batch of bronze may have landed in part.
        LeaseLost: a driver has taken one of these queries over meanwhile.
    """
    delta.require_tables(settings.lake)
    with nullcontext() if dry_run else lease.kept_out(settings.lake, topology.writers(Table.QUARANTINE)) as held:
        return bring_back(settings, selection, reason, None if held is None else held.fencing_epoch)


def bring_back(
    settings: Settings,
    selection: Selection,
    reason: str,
    fencing_epoch: Callable[[str], int] | None,
    landed: Mapping[str, int | None] | None = None,
) -> Replay:
    """Do it; without `fencing_epoch` tell what would be done.

    Args:
        settings: as for `replay`.
        selection: likewise.
        reason: likewise.
        fencing_epoch: tells the epoch that is held of a stream that writes to quarantine; none of them may write now.
        landed: by stream that lands, the batch that has landed whole, as a driver knows of its own.

    Raises:
        HalfLanded: a stream's newest batch may have landed in part.
        SettingsError: no stream that is on lands the topic that was chosen.
        LeaseLost: another driver has taken a stream over.
    """
    landed_topics = {topic for stream in topology.landings() for topic in tables_by_topic(settings, stream)}
    if selection.topic is not None and selection.topic not in landed_topics:
        raise SettingsError(
            f"no stream that is on lands {selection.topic}",
            remedy=f"choose one of {', '.join(sorted(landed_topics))}, or switch its stream on by ACTIVITY_STREAMS",
        )
    chosen = selected(settings.lake, selection, RAW)
    chosen = chosen.filter(pc.invert(pc.is_in(chosen.column("reason"), pa.array([r.value for r in FOR_GOOD]))))
    topics = Counter(chosen.column("topic").to_pylist())
    done = Replay({}, {}, 0, {topic: records for topic, records in topics.items() if topic not in landed_topics})
    for stream in topology.landings():
        tables = tables_by_topic(settings, stream)
        of_stream = chosen.filter(pc.is_in(chosen.column("topic"), pa.array(list(tables), pa.string())))
        numbering = Numbering(settings.lake, stream)
        if fencing_epoch is not None:
            _refuse_half_landed(settings.lake, stream.name, numbering, (landed or {}).get(stream.name))
        landing = numbering.of_replay()
        parsed = _parsed(of_stream, settings, tables, landing)
        refused = dict(Counter(parsed.column("reason").drop_null().to_pylist()))
        good = order.numbered(parsed.filter(pc.is_null(parsed.column("reason"))), landing.number)
        last = pc.max(good.column(order.NUMBER)).as_py() or landing.number
        run = Run(stream.name, landing, last, uuid.uuid4().hex[:8], fencing_epoch or (lambda _: 0))
        found = _enter(settings.lake, tables, good, run, is_dry=fencing_epoch is None)._replace(refused=refused)
        if found.accepted and fencing_epoch is not None:
            told = {name: value for name, value in found._asdict().items() if name != "elsewhere"}
            details = {"run": run.id, FIRST_LANDING: landing.number, LANDING: last, **told}
            audit.append(settings.lake, datetime.now(UTC), REPLAY, stream.name, reason, **details)
        done = Replay(
            done.accepted | found.accepted,
            dict(Counter(done.refused) + Counter(found.refused)),
            done.overtaken + found.overtaken,
            done.elsewhere,
        )
    return done


def tables_by_topic(settings: Settings, stream: Spec) -> dict[str, Table]:
    """Return the table of records of each topic that a stream lands."""
    return {
        settings.topics[read.source.role]: read.progress
        for read in stream.reads
        if isinstance(read.source, Topic) and isinstance(read.progress, Table)
    }


def _enter(lake: str, tables: Mapping[str, Table], good: pa.Table, run: Run, *, is_dry: bool) -> Replay:
    """Let in records of a stream that are right by now, unless it `is_dry`."""
    accepted: dict[str, int] = {}
    overtaken = 0
    for topic, table in tables.items():
        of_topic = good.filter(pc.equal(good.column("topic"), topic))
        log = DeltaTable(table_path(lake, table))  # what is appended is what was judged: nothing may come in between
        known = _landed(log, table, of_topic)
        is_free = table in EACH_FOR_ITSELF
        entering = of_topic if is_free else of_topic.filter(order.not_overtaken(of_topic, known, KEYS[table]))
        overtaken += of_topic.num_rows - entering.num_rows
        if entering.num_rows:
            accepted[topic] = entering.num_rows
            if not is_dry:
                _append(lake, table, log, entering.filter(_not_there(entering, known)), run, topic)
                _remove(lake, entering, run, topic)
    return Replay(accepted, {}, overtaken)


def _refuse_half_landed(lake: str, query: str, numbering: Numbering, landed: int | None) -> None:
    """Make sure that a stream's newest batch is whole: what is left of it has its number, which is below the replay's.

    Raises:
        HalfLanded: it may not be.
    """
    state = checkpoint.state(lake, query)
    if state is None or state.planned in (state.committed, landed):
        return
    if numbering.has(state.generation, state.planned):
        raise HalfLanded(
            f"batch {state.planned} of {query} was interrupted, and may have landed in part",
            remedy=f"let it finish first: `activity stream {query} --available-now`",
        )


def _parsed(records: pa.Table, settings: Settings, tables: Mapping[str, Table], landing: Landing) -> pa.Table:
    """Judge raw records by the contract as bronze does."""
    contracts = {topic: LANDED[table] for topic, table in tables.items()}
    raw = records.select([*PLACE, "kafka_timestamp", "key", "value", "headers"])
    raw = raw.rename_columns([*PLACE, "timestamp", "key", "value", "headers"]).combine_chunks()
    batches = [
        parse_batch(part, contracts=contracts, currency=settings.currency, landed_at=landing.landed_at)
        for part in (raw.to_batches() or [pa.RecordBatch.from_pylist([], raw.schema)])
    ]
    parsed = pa.Table.from_batches(batches)
    refused_in = dict(zip(order.rows(records, PLACE), records.column("landing").to_pylist(), strict=True))
    landings = [refused_in[place] for place in order.rows(parsed, PLACE)]  # the parser sorts by topic
    return parsed.append_column("landing", pa.array(landings, pa.int64()))


def _landed(log: DeltaTable, table: Table, records: pa.Table) -> pa.Table:
    """Return key and place of what has landed of the same keys."""
    keys = pc.unique(records.column(KEYS[table]))
    events = log.to_pyarrow_dataset()
    return events.to_table(columns=[KEYS[table], *order.ORDER], filter=pc.field(KEYS[table]).isin(keys))


def _not_there(records: pa.Table, landed: pa.Table) -> pa.Array:
    """Whether each record is not in bronze: a replay that was interrupted may have appended it."""
    there = set(order.rows(landed, ["partition", "offset"]))
    return pa.array([place not in there for place in order.rows(records, ["partition", "offset"])], pa.bool_())


def _append(lake: str, table: Table, log: DeltaTable, records: pa.Table, run: Run, topic: str) -> None:
    if not records.num_rows:
        return
    schema = arrow_schema(table)
    at = pa.scalar(run.landing.landed_at, pa.timestamp("us", tz="UTC"))
    rows = records.drop_columns([LANDING]).rename_columns({order.NUMBER: LANDING})
    rows = rows.append_column("ingested_at", pa.repeat(at, rows.num_rows)).select(schema.names).cast(schema)
    note = _note(lake, table, run, topic, {REPLAYED: records.num_rows})
    try:
        write_deltalake(log, rows, mode="append", commit_properties=note)
    except CommitFailedError as error:
        raise TransientError(
            f"{table.label} was written to while records were judged by what it had", remedy="replay again"
        ) from error
    settle(lake, table)


def _remove(lake: str, records: pa.Table, run: Run, topic: str) -> None:
    """Take records out of quarantine that are in bronze."""
    path = table_path(lake, Table.QUARANTINE)
    table = DeltaTable(path)
    table.merge(
        records.select(PLACE),
        " AND ".join(f't."{name}" = s."{name}"' for name in PLACE) + f" AND t.reason <> '{FOR_GOOD[0].value}'",
        source_alias="s",
        target_alias="t",
        commit_properties=_note(lake, Table.QUARANTINE, run, topic, {REMOVED: records.num_rows}),
    ).when_matched_delete().execute()
    footers.repair(lake, Table.QUARANTINE)
    settle(lake, Table.QUARANTINE)


def _note(lake: str, table: Table, run: Run, topic: str, counts: Mapping[str, int]) -> CommitProperties:
    """What the commit tells: the accounting moves these records from quarantined to what silver makes of them."""
    note = {
        "query": REPLAY,
        "generation": run.id,
        "batch_id": 0,
        FIRST_LANDING: run.landing.number,
        LANDING: run.last,
        REPLAYED_TO: run.stream,
        BY_RULES: RULES,
        "counts": {topic: dict(counts)},
    }
    return CommitProperties(
        app_transactions=named_operations.epochs_of(lake, table, run.fencing_epoch),
        custom_metadata={"userMetadata": json.dumps(note, sort_keys=True)},
    )
