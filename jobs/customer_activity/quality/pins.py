"""Which versions of the tables belong together, while the streams go on.

Every table is pinned at its newest version, readers before what they read. Beside it stands each table at the version
that a reader had seen when it made what is pinned: the reader's commit tells it, and its checkpoint where later batches
changed nothing. So a table and what it was made from are compared exactly, without stopping anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.checkpoints import checkpoint, offsets
from customer_activity.checkpoints.resumption import read_by, refuse_snapshot
from customer_activity.errors import SettingsError
from customer_activity.lake import deltalog, history
from customer_activity.quality.snapshot import Relation, Relations, as_read, relation, relation_of
from customer_activity.settings import Settings
from customer_activity.topology import Spec

Seen = topology.Edge
"""A table as a reader saw it: the reader, the table that tells by its commits, and the table that was read."""


def name_of(seen: Seen) -> str:
    """Return what queries call a table as a reader saw it."""
    return f"seen_by_{seen.stream}.{seen.read.value.partition('/')[2]}"


def seen_tables() -> list[Seen]:
    """Return who has seen what, readers before what they read."""
    return list(reversed(topology.edges()))


def order() -> list[Table]:
    """Return the tables in the order in which they are opened.

    Readers before what they read: what is opened later can only be newer. So is quarantine before the events: silver
    puts into it what has landed.
    """
    return list(dict.fromkeys([*(seen.made for seen in seen_tables()), Table.QUARANTINE, *topology.tables()]))


@dataclass(frozen=True)
class Pins:
    """The tables of one moment."""

    tables: Mapping[Table, DeltaTable]  # each at its newest version
    seen: Mapping[Seen, int]  # the version that each reader had seen of a table; 0 when it had seen nothing
    landed: Mapping[str, Mapping[int, int]]  # the next offset that bronze reads, by topic and partition

    @property
    def versions(self) -> dict[str, int]:
        """Version by the name that queries use."""
        newest = {table.label: opened.version() for table, opened in self.tables.items()}
        return newest | {name_of(seen): version for seen, version in self.seen.items()}

    def relations(self) -> Relations:
        """Return every table by the name that queries use.

        Raises:
            TransientError: the log no longer reaches back to what a reader has seen.
        """
        newest = {table.label: relation(opened) for table, opened in self.tables.items()}
        return newest | {name_of(seen): self._as_seen(seen.read, version) for seen, version in self.seen.items()}

    def _as_seen(self, table: Table, version: int) -> Relation:
        newest = self.tables[table]
        if version == newest.version():
            return relation(newest)
        return relation_of(table, as_read(newest.table_uri, table, version, "judge again"))


def pin(settings: Settings) -> Pins:
    """Open every table.

    Raises:
        SettingsError: there is no lake.
        TransientError: what a reader has seen is not known: it begins with a table as it was.
    """
    landings = topology.landings()
    readers = dict.fromkeys([*(each.name for each in landings), *(seen.stream for seen in seen_tables())])
    # Before the tables: whatever a checkpoint says is done is in a table that is opened after it.
    done = {query: checkpoint.progress(settings.lake, query) for query in readers}
    tables = {}
    for table in order():
        try:
            tables[table] = DeltaTable(table_path(settings.lake, table))
        except TableNotFoundError:
            raise SettingsError(
                f"no table {table.label} at {settings.lake}", remedy="run `activity stream`, or correct ACTIVITY_LAKE"
            ) from None
    seen = {seen: _seen(settings.lake, seen, tables, done[seen.stream]) for seen in seen_tables()}
    landed = {
        topic: offsets
        for each in landings
        for topic, offsets in _landed(settings.lake, tables, each, done[each.name]).items()
    }
    return Pins({table: tables[table] for table in topology.tables()}, seen, landed)


def _seen(lake: str, seen: Seen, tables: Mapping[Table, DeltaTable], done: checkpoint.Progress | None) -> int:
    """Return the newest version of a table that its reader has taken into what it made."""
    newest = history.latest_metadata(lake, seen.made, seen.stream, tables[seen.made].version())
    identity = str(tables[seen.read].metadata().id)
    if done is not None and done.batch_id >= newest.get("batch_id", -1):
        return done.table_versions.get(identity, 0)
    if (place := deltalog.noted(newest).get(seen.read)) is not None and place.table_id == identity:
        return place.version  # a part of a batch that is not through
    if seen.read.label in newest:  # gold of the release before names the pair
        return int(newest[seen.read.label])
    end = newest.get("cut", {}).get("end")
    if end is None:
        return 0
    refuse_snapshot(newest, seen.stream, seen.read, "judge again")
    return read_by(newest, {seen.read: identity}).get(seen.read, 0)


def _landed(
    lake: str, tables: Mapping[Table, DeltaTable], landing: Spec, done: checkpoint.Progress | None
) -> dict[str, dict[int, int]]:
    """Return offsets before which all is in the tables as they are pinned: the checkpoint said so before that."""
    if done is not None:
        return done.topic_offsets
    # A lake without its checkpoint: what was before the newest batch that any table has is in all of them.
    notes = [
        history.latest_metadata(lake, table, landing.name, tables[table].version())
        for table in landing.telling
        if table is not Table.QUARANTINE
    ]
    oldest = min(notes, key=lambda note: note.get("batch_id", -1))
    begin = oldest.get("cut", {}).get("begin")
    return {} if begin is None else offsets.topic_offsets(begin)
