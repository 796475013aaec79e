"""Bring records back from quarantine when what refused them was mended: each enters bronze once, where it was.

Reads      bronze.quarantine, and what has landed of the same keys
Writes     bronze.purchase_events, bronze.customer_profiles (append), then bronze.quarantine (delete)
Grain      one row per record, with its first coordinates, key, value, headers and Kafka time
On restart a record that is in bronze already is not appended again; only its row in quarantine goes

A record that was overtaken stays: where another of the same key has landed after it, that one was judged without it,
and a purchase would count twice or a profile come back. Who wants it all the same rebuilds silver and gold.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake

from customer_activity import audit, delta, lease
from customer_activity.bronze.parsing import parse_batch
from customer_activity.catalog import REPLAY, Query, Reason, Table, table_path
from customer_activity.checksums import write_checksum
from customer_activity.datafiles import arrow_schema
from customer_activity.microbatch import REMOVED, REPLAYED
from customer_activity.quarantine.contents import PLACE, Selection, selected
from customer_activity.settings import Settings

FOR_GOOD = (Reason.CONFLICTING_DUPLICATE, Reason.TOO_LARGE_TO_PUBLISH)  # nothing about the record itself was wrong
KEYS = {Table.PURCHASE_EVENTS: "purchase_id", Table.PROFILE_EVENTS: "customer_id"}
WRITERS = (Query.BRONZE, Query.SILVER, Query.PUBLISH)  # of these tables
RAW = [*PLACE, "kafka_timestamp", "key", "value", "headers", "reason"]


class Replay(NamedTuple):
    """What came of the records chosen.

    Attributes:
        accepted: records that enter bronze, by topic.
        refused: records that are still refused, by reason.
        overtaken: records that stay because a later one of the same key has landed.
    """

    accepted: dict[str, int]
    refused: dict[str, int]
    overtaken: int


def replay(settings: Settings, selection: Selection, reason: str, *, dry_run: bool = False) -> Replay:
    """Judge the records chosen anew, and let in those that are right by now.

    Args:
        settings: which lake; the contract is that of this release, and the currency the deployment's.
        selection: which records.
        reason: what was mended; kept in the lake's `_audit` folder.
        dry_run: tell what would be done, and do nothing.

    Raises:
        SettingsError: there is no lake.
        QueryAlreadyRunning: a query runs that writes these tables.
    """
    delta.require_tables(settings.lake)
    with nullcontext() if dry_run else lease.kept_out(settings.lake, WRITERS):
        return _replay(settings, selection, reason, dry_run=dry_run)


def _replay(settings: Settings, selection: Selection, reason: str, *, dry_run: bool) -> Replay:
    lake = settings.lake
    chosen = selected(lake, selection, RAW)
    chosen = chosen.filter(pc.invert(pc.is_in(chosen.column("reason"), pa.array([r.value for r in FOR_GOOD]))))
    parsed = _parsed(chosen, settings)
    refused = Counter(parsed.column("reason").drop_null().to_pylist())
    good = parsed.filter(pc.is_null(parsed.column("reason")))
    tables = {settings.purchase_topic: Table.PURCHASE_EVENTS, settings.profile_topic: Table.PROFILE_EVENTS}
    run, accepted, overtaken = uuid.uuid4().hex[:8], {}, 0
    for topic, table in tables.items():
        of_topic = good.filter(pc.equal(good.column("topic"), topic))
        landed = _landed(lake, table, of_topic)
        entering = of_topic.filter(_not_overtaken(of_topic, landed, KEYS[table]))
        overtaken += of_topic.num_rows - entering.num_rows
        if entering.num_rows:
            accepted[topic] = entering.num_rows
            if not dry_run:
                _append(lake, table, entering.filter(_not_there(entering, landed)), run, topic)
                _remove(lake, entering, run, topic)
    done = Replay(accepted, dict(refused), overtaken)
    if accepted and not dry_run:
        audit.note(lake, datetime.now(UTC), REPLAY, Query.BRONZE, reason, run=run, **done._asdict())
    return done


def _parsed(records: pa.Table, settings: Settings) -> pa.Table:
    """Judge raw records by the contract as bronze does."""
    raw = records.select([*PLACE, "kafka_timestamp", "key", "value", "headers"])
    raw = raw.rename_columns([*PLACE, "timestamp", "key", "value", "headers"]).combine_chunks()
    batches = [
        parse_batch(
            part,
            purchase_topic=settings.purchase_topic,
            profile_topic=settings.profile_topic,
            currency=settings.currency,
        )
        for part in (raw.to_batches() or [pa.RecordBatch.from_pylist([], raw.schema)])
    ]
    return pa.Table.from_batches(batches)


def _landed(lake: str, table: Table, records: pa.Table) -> pa.Table:
    """Return key and coordinates of what has landed of the same keys."""
    keys = pc.unique(records.column(KEYS[table]))
    events = DeltaTable(table_path(lake, table)).to_pyarrow_dataset()
    return events.to_table(columns=[KEYS[table], "partition", "offset"], filter=pc.field(KEYS[table]).isin(keys))


def _not_overtaken(records: pa.Table, landed: pa.Table, key: str) -> pa.Array:
    """Whether nothing of the same key has landed after each record, or in another partition."""
    places: dict[str, list[tuple[int, int]]] = {}
    for name, partition, offset in _rows(landed, [key, "partition", "offset"]):
        places.setdefault(name, []).append((partition, offset))
    return pa.array(
        [
            all(at[0] == partition and at[1] <= offset for at in places.get(name, ()))
            for name, partition, offset in _rows(records, [key, "partition", "offset"])
        ],
        pa.bool_(),
    )


def _not_there(records: pa.Table, landed: pa.Table) -> pa.Array:
    """Whether each record is not in bronze: a replay that was interrupted may have appended it."""
    there = set(_rows(landed, ["partition", "offset"]))
    return pa.array([place not in there for place in _rows(records, ["partition", "offset"])], pa.bool_())


def _rows(table: pa.Table, columns: list[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(table.column(name).to_pylist() for name in columns), strict=True))


def _append(lake: str, table: Table, records: pa.Table, run: str, topic: str) -> None:
    if not records.num_rows:
        return
    now = pa.scalar(datetime.fromtimestamp(time.time(), UTC), pa.timestamp("us", tz="UTC"))
    schema = arrow_schema(table)
    rows = records.append_column("ingested_at", pa.repeat(now, records.num_rows)).select(schema.names).cast(schema)
    path = table_path(lake, table)
    write_deltalake(path, rows, mode="append", commit_properties=_note(run, topic, {REPLAYED: records.num_rows}))
    write_checksum(path, DeltaTable(path).version())


def _remove(lake: str, records: pa.Table, run: str, topic: str) -> None:
    """Take records out of quarantine that are in bronze."""
    path = table_path(lake, Table.QUARANTINE)
    table = DeltaTable(path)
    table.merge(
        records.select(PLACE),
        " AND ".join(f't."{name}" = s."{name}"' for name in PLACE) + f" AND t.reason <> '{FOR_GOOD[0].value}'",
        source_alias="s",
        target_alias="t",
        commit_properties=_note(run, topic, {REMOVED: records.num_rows}),
    ).when_matched_delete().execute()
    write_checksum(path, DeltaTable(path).version())


def _note(run: str, topic: str, counts: Mapping[str, int]) -> CommitProperties:
    """What the commit tells: the accounting moves these records from quarantined to what silver makes of them."""
    note = {"query": REPLAY, "generation": run, "batch_id": 0, "counts": {topic: dict(counts)}}
    return CommitProperties(custom_metadata={"userMetadata": json.dumps(note, sort_keys=True)})
