"""Recompute the tables of streams behind the hot path from all that they follow, while the streams are stopped.

For windows that are to be others, and for late purchases that are to count after all. Only rows that differ are
replaced, in one commit a table. What is interrupted is done by the same command once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.checkpoints import checkpoint
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import derived
from customer_activity.engine.derived import Definition, Derived, Joined
from customer_activity.errors import SettingsError
from customer_activity.lake import audit, delta
from customer_activity.lake.named_operations import epochs_of
from customer_activity.lake.replacing import replace
from customer_activity.lease import lease
from customer_activity.operations import current_rows
from customer_activity.settings import Settings
from customer_activity.streams.registry import STREAMS

FencingEpoch = Callable[[str], int]


class Reprocessed(NamedTuple):
    """What `reprocess` took in.

    Attributes:
        purchases: late ones of the day that count from now on.
        streams: whose tables were recomputed.
    """

    purchases: int
    streams: Sequence[str]


def recompute(settings: Settings, stream: str, reason: str) -> list[str]:
    """Compute a stream's table by the settings, and those of the streams that follow it; return their names.

    Windows of one table are by one definition: with one of them all are recomputed.

    Raises:
        SettingsError: there is no lake, or the stream makes no table behind the hot path.
        QueryAlreadyRunning: a driver runs one of them.
    """
    delta.require_tables(settings.lake)
    if topology.spec(stream) not in topology.following():
        raise SettingsError(
            f"{stream} makes no table behind the hot path",
            remedy="`activity rebuild --apply` corrects the tables on it, and `activity resync` topics",
        )
    delta.ensure_tables(settings.lake)
    found, together = current_rows.stream_of(stream), [stream]
    if isinstance(found, Derived) and _is_of_windows(stream):
        together = [name for name in topology.readers(found.source) if name == stream or _is_of_windows(name)]
    streams = list(dict.fromkeys(name for one in together for name in _with_followers(one)))
    with lease.kept_out(settings.lake, streams) as held:
        _again(settings, streams, held.fencing_epoch)
    audit.append(settings.lake, datetime.now(UTC), "rebuild", stream, reason, streams=streams)
    return streams


def reprocess(settings: Settings, day: date, reason: str) -> Reprocessed:
    """Have late purchases of a day, in the configured time zone, count in all windows from now on.

    Raises:
        SettingsError: there is no lake, no stream of windows is on, or the settings are not those of the tables.
        QueryAlreadyRunning: a driver runs one of them.
    """
    if Table.LATE_EVENTS not in topology.tables():
        (writer,) = (spec.name for spec in topology.optional() if Table.LATE_EVENTS in spec.tables)
        raise SettingsError(f"{writer} is off, which tells what is late", remedy="add it to ACTIVITY_STREAMS")
    lake = settings.lake
    delta.require_tables(lake)
    delta.ensure_tables(lake)
    (source,) = topology.writers(Table.REPROCESSED)
    streams = [source, *(name for name in _with_followers(source) if _is_of_windows(name))]
    for name in streams[1:]:
        found = current_rows.stream_of(name)
        if isinstance(found, Joined):
            found.as_set(settings).require_same(lake)
        else:
            derived.require_same(lake, found.spec, found.target, Definition.of(settings))
    with lease.kept_out(lake, streams) as held:
        _again(settings, [source, *topology.writers(Table.LATE_EVENTS)], held.fencing_epoch)  # all that waits
        late = sorted(_late_of(settings, day) - derived.reprocessed(lake))
        if late:
            now = datetime.now(UTC)
            rows = [{"purchase_id": each, "day": day, "reprocessed_at": now, "reason": reason} for each in late]
            fence = epochs_of(lake, Table.REPROCESSED, held.fencing_epoch)
            coming = pa.Table.from_pylist(rows, arrow_schema(Table.REPROCESSED)).to_batches()
            replace(lake, Table.REPROCESSED, ("purchase_id",), (), coming, CommitProperties(app_transactions=fence))
        _again(settings, streams[1:], held.fencing_epoch)
    audit.append(lake, datetime.now(UTC), "reprocess", source, reason, day=str(day), purchases=len(late))
    return Reprocessed(len(late), streams[1:])


def _with_followers(stream: str) -> list[str]:
    """Return a stream with those whose tables follow from its own; what publishes them goes on from their changes."""
    tables = {spec.name for spec in topology.following()}
    return [name for name in topology.with_followers(stream) if name in tables]


def _is_of_windows(stream: str) -> bool:
    """Whether a stream's table is one of windows, or of what they leave out."""
    return getattr(STREAMS[stream], "definition", None) is not None


def _late_of(settings: Settings, day: date) -> set[str]:
    """Return the ids of purchases of a day that windows leave out."""
    zone = ZoneInfo(settings.time_zone)
    begin, end = (datetime.combine(each, time(), zone).astimezone(UTC) for each in (day, day + timedelta(days=1)))
    found = (
        DeltaTable(table_path(settings.lake, Table.LATE_EVENTS))
        .to_pyarrow_dataset()
        .to_table(columns=["purchase_id"], filter=(pc.field("occurred_at") >= begin) & (pc.field("occurred_at") < end))
    )
    return set(found.column("purchase_id").to_pylist())


def _again(settings: Settings, streams: Iterable[str], fencing_epoch: FencingEpoch) -> None:
    """Recompute the tables of streams, each after those that it follows."""
    for name in streams:
        checkpoint.set_aside(settings.lake, name, datetime.now(UTC))
        current_rows.make(settings.lake, name, fencing_epoch(name), by=settings)
