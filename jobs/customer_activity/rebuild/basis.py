"""What a rebuild begins with and is held against: bronze, silver and gold at versions that belong together.

Gold's newest commit names the pair of silver versions that it was computed from, and silver's newest commit up to each
of them says how far it had read bronze. So a rebuild from there must come to the very rows of that silver and that
gold, whatever the streams do meanwhile. It is so with any streams: from the last of them back to what has landed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from deltalake import DeltaTable

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.checkpoints import checkpoint
from customer_activity.checkpoints.resumption import NOTHING, read_by, refuse_snapshot
from customer_activity.engine.derived import Derived, Joined
from customer_activity.errors import TransientError
from customer_activity.lake import delta, deltalog, feeds, history
from customer_activity.operations import current_rows
from customer_activity.quality.snapshot import Relations, as_read, relation_of
from customer_activity.topology import Edge, Spec


class Current(NamedTuple):
    """The tables of a stream behind the hot path, and its sources as far as they were read; None: nothing of one."""

    stream: Derived | Joined
    tables: Mapping[Table, DeltaTable]
    sources: Mapping[Table, DeltaTable | None]


class Basis(NamedTuple):
    """Tables at versions that belong together; None where nothing had been read of one, or written to it.

    Attributes:
        landed: bronze's tables of events as silver had read them.
        live: silver's tables as gold had read them, and gold's changes.
        current: the tables of the streams behind the hot path.
    """

    landed: Mapping[Table, DeltaTable | None]
    live: Mapping[Table, DeltaTable | None]
    current: Sequence[Current]

    @property
    def versions(self) -> dict[str, int]:
        """Version by table, for whoever wants to look at the same."""
        both = {**self.landed, **self.live}
        for each in self.current:
            both |= each.tables
        return {table.label: opened.version() for table, opened in both.items() if opened is not None}

    def landed_relations(self) -> Relations:
        """Return the events, by the name that queries use."""
        return {f"landed.{name_of(table)}": relation_of(table, opened) for table, opened in self.landed.items()}

    def live_relations(self) -> Relations:
        """Return silver and gold, by the name that queries use."""
        return {f"live.{name_of(table)}": relation_of(table, opened) for table, opened in self.live.items()}


def find(lake: str) -> Basis:
    """Open the tables.

    Raises:
        SettingsError: there is no lake.
        TransientError: a version is not in a log any more, or what was read is not known by version yet.
    """
    delta.require_tables(lake)
    landed: dict[Table, DeltaTable | None] = {}
    live: dict[Table, DeltaTable | None] = {}
    for spec in reversed(topology.rebuilt()):
        for table in spec.telling:
            if table not in live:  # no stream that is rebuilt reads it
                live[table] = _newest(lake, table)
        for edge in spec.edges:
            note = _note(lake, edge.stream, edge.made, live[edge.made])
            refuse_snapshot(note, edge.stream, edge.read, "rebuild again")
            if edge in topology.judging():
                # Later batches that wrote nothing had nothing that counts, so they are as good as not read.
                landed[edge.read] = _at(lake, edge.read, _read(lake, edge, note))
            else:
                live[edge.read] = _with_repairs(lake, edge.read, _at(lake, edge.read, _read(lake, edge, note)))
    return Basis(landed, live, [_as_noted(lake, spec) for spec in topology.following()])


def at_rest(lake: str) -> Basis:
    """Open the newest of silver and gold, which belongs together where they have read all and nobody writes.

    Raises:
        TransientError: they have not.
    """
    for spec in topology.rebuilt():
        done = checkpoint.progress(lake, spec.name)
        read = {} if done is None else done.table_versions
        for table in spec.sources:
            versions = (max(0, read.get(delta.table_id(lake, table), 0)), deltalog.newest_version(lake, table))
            if feeds.read(lake, {table: []}, {table: versions}).files:
                raise TransientError(
                    f"{spec.name} has not read all of {table.label}: versions {versions[0] + 1} to {versions[1]}",
                    remedy="a driver has run in between: stop it, and try again",
                )
    return newest(lake)._replace(current=[_as_noted(lake, spec) for spec in topology.following()])


def newest(lake: str) -> Basis:
    """Open the newest of everything, whether it belongs together or not."""
    events = [edge.read for edge in topology.judging()]
    made = [table for spec in topology.rebuilt() for table in spec.telling]
    opened = {table: _at(lake, table, deltalog.newest_version(lake, table)) for table in (*events, *made)}
    streams = (current_rows.stream_of(spec.name).as_noted(lake) for spec in topology.following())
    current = [
        Current(each, _tables(lake, each), {table: _newest(lake, table) for table in each.spec.sources})
        for each in streams
    ]
    return Basis({each: opened[each] for each in events}, {each: opened[each] for each in made}, current)


def read_upto(lake: str, behind: Spec) -> dict[Table, int]:
    """Return the version of each source that a stream behind the hot path has read last; -1: nothing of it."""
    return {
        edge.read: _read(lake, edge, _note(lake, edge.stream, edge.made, _newest(lake, edge.made)))
        for edge in behind.edges
    }


def _as_noted(lake: str, spec: Spec) -> Current:
    """Open a stream's tables, and their sources at the versions that their newest commits note as read.

    Raises:
        TransientError: a part of a batch is in some of the tables, and not in all.
    """
    stream = current_rows.stream_of(spec.name).as_noted(lake)
    tables = _tables(lake, stream)
    notes = {table: _note(lake, spec.name, table, opened) for table, opened in tables.items()}
    if len({(note.get("generation"), note.get("batch_id"), note.get("upto")) for note in notes.values()}) > 1:
        raise TransientError(
            f"{spec.name} is at work on a batch, or was interrupted in one",
            remedy="let it go on (`activity stream --available-now`), then rebuild again",
        )
    sources = {edge.read: _at(lake, edge.read, _read(lake, edge, notes[edge.made])) for edge in spec.edges}
    return Current(stream, tables, sources)


def _tables(lake: str, stream: Derived | Joined) -> dict[Table, DeltaTable]:
    """Open the tables that follow from a stream's sources."""
    of_stream = stream.spec.telling if isinstance(stream, Joined) else [stream.target]
    return {table: _newest(lake, table) for table in of_stream}


def _with_repairs(lake: str, table: Table, read: DeltaTable | None) -> DeltaTable | None:
    """Take in what others than its writer have committed to a table since it was read: it is in there, too."""
    (writer,) = topology.writers(table)
    newest = _newest(lake, table)
    return newest if _note(lake, writer, table, newest) == _note(lake, writer, table, read) else read


def _newest(lake: str, table: Table) -> DeltaTable:
    return DeltaTable(table_path(lake, table))


def _note(lake: str, query: str, table: Table, opened: DeltaTable | None) -> dict[str, Any]:
    """Return what the newest commit of a query to a table, as it was opened, notes."""
    return {} if opened is None else history.latest_metadata(lake, table, query, opened.version())


def _read(lake: str, edge: Edge, note: Mapping[str, Any]) -> int:
    """Return the version of a table that a stream had read last when it made the commit that has this note."""
    if edge.read.label in note and not deltalog.noted(note):  # gold of a release before
        return int(note[edge.read.label])
    known = delta.table_id(lake, edge.read)
    if (place := deltalog.noted(note).get(edge.read)) is not None and place.table_id != known:
        raise TransientError(
            f"{edge.stream} has read {edge.read.label} as it was before it was created again",
            remedy="`activity status` says what does not fit; let the streams go on, then rebuild again",
        )
    return read_by(note, {edge.read: known}).get(edge.read, NOTHING)


def _at(lake: str, table: Table, version: int) -> DeltaTable | None:
    return as_read(table_path(lake, table), table, version, "rebuild again")


def name_of(table: Table) -> str:
    """Return a table's name without its layer."""
    return table.value.rpartition("/")[2]
