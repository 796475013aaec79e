"""What a rebuild begins with and is held against: bronze, silver and gold at versions that belong together.

Gold's newest commit names the pair of silver versions that it was computed from, and silver's newest commit up to each
of them says how far it had read bronze. So a rebuild from there must come to the very rows of that silver and that
gold, whatever the streams do meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.checkpoints import checkpoint
from customer_activity.checkpoints.resumption import read_by
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.changes import CurrentRows
from customer_activity.errors import TransientError
from customer_activity.lake import delta, feeds, history
from customer_activity.operations import current_rows
from customer_activity.quality.snapshot import Relation, Relations, relation
from customer_activity.streams.gold.state import NAME as GOLD
from customer_activity.streams.silver.state import NAME as SILVER

LANDED_OF = {Table.PURCHASES: Table.PURCHASE_EVENTS, Table.PROFILE_CHANGES: Table.PROFILE_EVENTS}


class Current(NamedTuple):
    """A table of current rows, and the one that it follows as far as it has read that; None: nothing of it."""

    stream: CurrentRows
    table: DeltaTable
    source: DeltaTable | None


class Basis(NamedTuple):
    """Tables at versions that belong together; None where nothing had been read of one, or written to it.

    Attributes:
        landed: bronze's tables of events as silver had read them.
        live: silver's tables as gold had read them, and gold's changes.
        current: the tables of current rows.
    """

    landed: Mapping[Table, DeltaTable | None]
    live: Mapping[Table, DeltaTable | None]
    current: Sequence[Current]

    @property
    def versions(self) -> dict[str, int]:
        """Version by table, for whoever wants to look at the same."""
        both = {**self.landed, **self.live, **{each.stream.target: each.table for each in self.current}}
        return {table.label: opened.version() for table, opened in both.items() if opened is not None}

    def landed_relations(self) -> Relations:
        """Return the events, by the name that queries use."""
        return {f"landed.{name_of(table)}": _relation(table, opened) for table, opened in self.landed.items()}

    def live_relations(self) -> Relations:
        """Return silver and gold, by the name that queries use."""
        return {f"live.{name_of(table)}": _relation(table, opened) for table, opened in self.live.items()}


def find(lake: str) -> Basis:
    """Open the tables.

    Raises:
        SettingsError: there is no lake.
        TransientError: a version is not in a log any more, or what was read is not known by version yet.
    """
    delta.require_tables(lake)
    gold = DeltaTable(table_path(lake, Table.ACTIVITY_CHANGES))
    pair = history.latest_metadata(lake, Table.ACTIVITY_CHANGES, GOLD, gold.version())
    live: dict[Table, DeltaTable | None] = {Table.ACTIVITY_CHANGES: gold}
    landed: dict[Table, DeltaTable | None] = {}
    for table, events in LANDED_OF.items():
        live[table] = _as_gold_read(lake, table, int(pair.get(table.label, 0)))
        landed[events] = _at(lake, events, _read_by_silver(lake, events, _note(lake, table, live[table])))
    return Basis(landed, live, [_as_noted(lake, spec.name) for spec in topology.behind()])


def at_rest(lake: str) -> Basis:
    """Open the newest of silver and gold, which belongs together where they have read all and nobody writes.

    Raises:
        TransientError: they have not.
    """
    for query, tables in ((SILVER, LANDED_OF.values()), (GOLD, LANDED_OF)):
        done = checkpoint.progress(lake, query)
        read = {} if done is None else done.table_versions
        for table in tables:
            versions = (max(0, read.get(delta.table_id(lake, table), 0)), DeltaTable(table_path(lake, table)).version())
            if feeds.read(lake, {table: []}, {table: versions}).files:
                raise TransientError(
                    f"{query} has not read all of {table.label}: versions {versions[0] + 1} to {versions[1]}",
                    remedy="a driver has run in between: stop it, and try again",
                )
    return newest(lake)._replace(current=[_as_noted(lake, spec.name) for spec in topology.behind()])


def newest(lake: str) -> Basis:
    """Open the newest of everything, whether it belongs together or not."""
    landed = {table: _at(lake, table, DeltaTable(table_path(lake, table)).version()) for table in LANDED_OF.values()}
    live = {table: _at(lake, table, DeltaTable(table_path(lake, table)).version()) for table in LANDED_OF}
    live[Table.ACTIVITY_CHANGES] = DeltaTable(table_path(lake, Table.ACTIVITY_CHANGES))
    streams = (current_rows.stream_of(spec.name) for spec in topology.behind())
    current = [
        Current(stream, DeltaTable(table_path(lake, stream.target)), DeltaTable(table_path(lake, stream.source)))
        for stream in streams
    ]
    return Basis(landed, live, current)


def _as_noted(lake: str, query: str) -> Current:
    """Open a table of current rows, and its source at the version that its newest commit notes as read."""
    stream = current_rows.stream_of(query)
    table = DeltaTable(table_path(lake, stream.target))
    note = history.latest_metadata(lake, stream.target, query, table.version())
    read = read_by(note, {stream.source: delta.table_id(lake, stream.source)}).get(stream.source, 0)
    return Current(stream, table, _at(lake, stream.source, read))


def _as_gold_read(lake: str, table: Table, version: int) -> DeltaTable | None:
    """Open a table of silver's at a version, with what others than silver have committed since: it is in there, too."""
    newest, read = DeltaTable(table_path(lake, table)), _at(lake, table, version)
    is_all = _note(lake, table, newest) == _note(lake, table, read)
    return newest if is_all else read


def _note(lake: str, table: Table, opened: DeltaTable | None) -> dict[str, Any]:
    return {} if opened is None else history.latest_metadata(lake, table, SILVER, opened.version())


def _read_by_silver(lake: str, events: Table, note: Mapping[str, Any]) -> int:
    """Return the version of a table of events that silver had read when it made the commit that has this note.

    Later batches that wrote nothing here had nothing that counts, so they are as good as not read.
    """
    if any('"isStartingVersion":true' in source for source in note.get("cut", {}).get("end", []) if source):
        raise TransientError(
            f"silver is still reading the initial snapshot of {events.label}: how far is unknown",
            remedy="rebuild again when it has caught up",
        )
    return read_by(note, {events: delta.table_id(lake, events)}).get(events, 0)


def _at(lake: str, table: Table, version: int) -> DeltaTable | None:
    if version <= 0:  # version 0 is the empty table
        return None
    try:
        return DeltaTable(table_path(lake, table), version=version)
    except DeltaError as error:
        raise TransientError(
            f"{table.label}: version {version}, which a reader has seen last, is not in the log any more",
            remedy="let the streams run on (`activity stream --available-now`), then rebuild again",
        ) from error


def _relation(table: Table, opened: DeltaTable | None) -> Relation:
    return arrow_schema(table).empty_table() if opened is None else relation(opened)


def name_of(table: Table) -> str:
    """Return a table's name without its layer."""
    return table.value.rpartition("/")[2]
