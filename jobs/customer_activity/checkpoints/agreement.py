"""Whether the layers of a lake belong together: what a stream has read and written is still there, and is the same.

Any of them may be restored from a backup: a table, a checkpoint, all of one day. Each of them looks healthy by itself;
a restored table even grows past the versions that its readers have read, with other rows. Two things give it away:

- A stream's newest commits and its checkpoint say up to where it has read its sources: which table, which version, and
  since commits have ids of their own, which commit. The table must have that very commit.
- What the checkpoint has read, and the query's tables do not name as read, must be nothing but maintenance: otherwise
  rows that were written are gone.

Publish compares what the view topic has itself, by its progress marker.

Releases before noted offsets alone, so of their commits the versions are compared and nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, takewhile
from typing import Any, NamedTuple

from deltalake import DeltaTable

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.checkpoints import checkpoint, offsets
from customer_activity.checkpoints.checkpoint import State
from customer_activity.lake import deltalog, history
from customer_activity.lake.deltalog import Position
from customer_activity.lake.microbatch import ACCEPTED, QUARANTINED, metadata_of
from customer_activity.lake.named_operations import Kind, Operation, classify

QUARANTINE = Table.QUARANTINE
NEWEST_COMMITS = 1_000  # of a table whose log is kept for a reader: no start looks through all of it
TOGETHER = "restore everything from one backup: what quarantine held is in no other table"
CORRECT = "`activity rebuild --apply` corrects silver and gold from bronze"

OF_BRONZE = "restore bronze's tables and its checkpoint from one backup: `recover` repeats only the newest batch"


class Fault(NamedTuple):
    """What does not belong together, and what repairs it."""

    what: str
    remedy: str


def find(lake: str, query: str, state: State | None, ids: Mapping[Table, str]) -> Fault | None:
    """Return how what a stream has read or written contradicts the tables; None when they belong together."""
    notes = dict(_notes(lake, query))
    read = [position for note in notes.values() for position in _noted(query, note).items()]
    planned = _planned(lake, query, state)
    for table, position in (*read, *planned.items()):
        if what := contradiction(lake, table, position, ids[table]):
            return Fault(f"{query} has read {table.label} {what}", _source_remedy(query, table))
    if state is not None and state.committed is not None and (what := _lack(lake, query, state.committed, notes)):
        return Fault(what, _own_remedy(query))
    if topology.spec(query).topics and state is not None and (what := _lack_of_events(lake, query, state, notes)):
        return Fault(what, OF_BRONZE)
    if query in topology.writers(QUARANTINE) and (what := _lack_of_quarantine(lake, query, notes)):
        return Fault(what, TOGETHER)
    return None


def _lack_of_events(lake: str, query: str, state: State, notes: Mapping[Table, Mapping[str, Any]]) -> str:
    """Say which of bronze's tables of events lacks a batch; empty when they have all, as far as the other one tells.

    A commit counts its batch's records of either topic. So where both had some, both tables have a commit of the batch,
    once it is through.
    """
    events = [read.progress for read in topology.spec(query).reads if isinstance(read.progress, Table)]
    for table, other in zip(events, reversed(events), strict=True):
        note = notes.get(table)
        if note is None and deltalog.entry(lake, table, 0) is None:
            continue  # its log may have had one
        if note is not None and note.get("generation") != state.generation:
            continue  # a batch that was recovered is in one of them under its former name
        newest = -1 if note is None else int(note["batch_id"])
        for said in _newest_notes(lake, other, query):
            batch_id = int(said["batch_id"])
            if said.get("generation") != state.generation or batch_id <= newest:
                break
            topics = [topic for topic, counts in said.get("counts", {}).items() if counts.get(ACCEPTED)]
            if len(topics) == len(events) and state.committed is not None and batch_id <= state.committed:
                return (
                    f"{table.label} lacks what batch {batch_id} of {query} wrote: it was restored to an earlier state"
                )
    return ""


def _lack_of_quarantine(lake: str, query: str, tables: Iterable[Table]) -> str:
    """Say what a query's newest commits count as quarantined and quarantine does not have; empty when it has.

    No query reads quarantine's feed, so no position tells. A batch writes there first: its commit must be there.
    What was quarantined before a correction is as that left it.
    """
    batches = (
        next((_batch(note) for note in _since_correction(lake, table, query) if _quarantined(note)), None)
        for table in tables
        if table is not QUARANTINE
    )
    for batch in filter(None, batches):
        if not _is_in_quarantine(lake, query, batch):
            return (
                f"{QUARANTINE.label} lacks what batch {batch[1]} of {query} wrote: it was restored to an earlier state"
            )
    return ""


def _is_in_quarantine(lake: str, query: str, batch: tuple[Any, Any]) -> bool:
    """Whether quarantine has a commit of a batch: in its log, or in what was kept of older ones.

    History is told from only where the log begins behind it: a table that was restored may have a longer log, and less
    than its history.
    """
    oldest = newest = deltalog.newest_version(lake, QUARANTINE)
    for said in history.log_entries(lake, QUARANTINE, newest):
        oldest = said["version"]
        if _is_of(said, query, batch):
            return True
    return any(
        said["version"] < oldest and _is_of(said, query, batch) for said in history.archived_entries(lake, QUARANTINE)
    )


def _is_of(said: Mapping[str, Any], query: str, batch: tuple[Any, Any]) -> bool:
    note = metadata_of(said.get("userMetadata"))
    return note.get("query") == query and _batch(note) == batch


def _newest_notes(lake: str, table: Table, query: str) -> Iterator[Mapping[str, Any]]:
    """Yield what a query's newest commits to a table note, the newest first."""
    said = history.log_entries(lake, table, deltalog.newest_version(lake, table))
    notes = (metadata_of(commit.get("userMetadata")) for commit in islice(said, NEWEST_COMMITS))
    return (note for note in notes if note.get("query") == query)


def _since_correction(lake: str, table: Table, query: str) -> Iterator[Mapping[str, Any]]:
    return takewhile(lambda note: note.get("operation") != Operation.CORRECTION, _newest_notes(lake, table, query))


def _batch(note: Mapping[str, Any]) -> tuple[Any, Any]:
    return note.get("generation"), note.get("batch_id")


def _quarantined(note: Mapping[str, Any]) -> int:
    """Return how many rows a batch has put into quarantine: records, and customers whose total is out of range."""
    records = sum(int(counts.get(QUARANTINED, 0)) for counts in note.get("counts", {}).values())
    return records + int(note.get("frozen", 0))


def contradiction(lake: str, table: Table, position: Position, table_id: str) -> str:
    """Say how a table is not the one that was read up to a position; empty when it is, as far as its log tells."""
    newest = deltalog.newest_version(lake, table)
    if position.table_id != table_id:
        return f"with the id {position.table_id}, and the table's is {table_id}"
    if position.version > newest:
        return (
            f"up to version {position.version}, and it ends with version {newest}: it was restored to an earlier state"
        )
    there = deltalog.entry(lake, table, position.version) if position.commit else None
    if there is not None and there.commit != position.commit:
        return f"up to version {position.version}, which is another commit now: it was restored to an earlier state"
    return ""


def reaches(lake: str, table: Table, position: Position) -> bool:
    """Whether a table's log still has all that came after a position, which is one of its own."""
    if contradiction(lake, table, position, str(DeltaTable(table_path(lake, table)).metadata().id)):
        return False
    newest = deltalog.newest_version(lake, table)
    return position.version >= newest or deltalog.entry(lake, table, position.version + 1) is not None


def _notes(lake: str, query: str) -> Iterator[tuple[Table, Mapping[str, Any]]]:
    """Yield what the query's newest commit to each of its tables carries.

    What publish now and then puts into quarantine says nothing of how far it is.
    """
    for table in topology.spec(query).telling:
        if note := history.latest_metadata(lake, table, query):
            yield table, note


def _noted(query: str, note: Mapping[str, Any]) -> dict[Table, Position]:
    """Return up to where a commit's batch had read; by its offsets alone where it is of a release before."""
    if found := deltalog.noted(note):
        return found
    return by_id(query, note.get("cut", {}).get("end") or ())


def _planned(lake: str, query: str, state: State | None) -> dict[Table, Position]:
    """Return up to where the newest batch of a query's checkpoint reads."""
    cut = None if state is None or state.planned is None else checkpoint.cut(lake, query, state.planned)
    return {} if cut is None else by_id(query, cut.end)


def by_id(query: str, noted: Iterable[str | None]) -> dict[Table, Position]:
    """Return the positions that a checkpoint's offsets tell, which are in the order of the sources.

    An offset inside a version counts as the one before.
    """
    found = {}
    for table, offset in zip(topology.spec(query).sources, noted, strict=False):
        for table_id, version in offsets.table_versions([offset]).items():
            found[table] = Position(table_id, version, "")
    return found


def _lack(lake: str, query: str, committed: int, notes: Mapping[Table, Mapping[str, Any]]) -> str:
    """Say what the checkpoint has committed and a table of the query's does not have; empty when it has all."""
    newest = max((note["batch_id"] for note in notes.values()), default=None)
    spec = topology.spec(query)
    if spec.topics and (newest is None or newest < committed):
        tables = ", ".join(table.label for table in spec.tables)
        return f"the checkpoint has committed batch {committed}, and the newest in {tables} is {newest}"
    cut = checkpoint.cut(lake, query, committed)
    through = {} if cut is None else by_id(query, cut.end)
    for writer, table, source in topology.edges():
        if writer != query or source not in through:
            continue
        note = notes.get(table)
        done = _done(lake, query, table, source, note)
        # Of a table made from several sources the release before left no commit with a batch that changed no row: what
        # it read is no lack.
        is_joined = sum(edge.made is table for edge in topology.edges()) > 1
        of_before = is_joined and (note is None or deltalog.READ not in note)
        after = None if done is None else range(done + 1, through[source].version + 1)
        version = None if after is None else _first_data(lake, source, after, with_ids=of_before)
        if version is not None:
            return f"{table.label} lacks what the checkpoint has read of {source.label} with version {version}"
    return ""


def _done(lake: str, query: str, table: Table, source: Table, note: Mapping[str, Any] | None) -> int | None:
    """Return the version of a source up to which a table has taken it; None when that is not known."""
    if note is not None:
        return position.version if (position := _noted(query, note).get(source)) else None
    # A log that begins at the beginning: nothing was written.
    return -1 if deltalog.entry(lake, table, 0) is not None else None


def _first_data(lake: str, table: Table, versions: range, *, with_ids: bool) -> int | None:
    """Return the first of some versions that added rows, as far as the log has them.

    Of those alone whose commits have ids of their own, where that is asked: no release before this one has read them.
    """
    for entry in deltalog.entries(lake, table, versions):
        if entry is not None:
            commit = classify(entry.actions)
            if commit.kind is Kind.APPEND and commit.adds and (deltalog.COMMIT in commit.note or not with_ids):
                return entry.version
    return None


def _source_remedy(query: str, table: Table) -> str:
    if topology.spec(query).is_publisher:
        before = " ".join(spec.name for spec in topology.hot_path() if spec.name != query)
        return (
            f"let {topology.writers(table)[0]} read on to where it was (`activity stream {before} --available-now`), "
            f"then `activity resync {query} --reason …`"
        )
    if topology.spec(query).is_behind:
        return f"`activity recover {query} --reason …` builds its table again from {table.label}"
    return f"restore everything from one backup; or, to keep {table.label.partition('.')[0]} as it is: {CORRECT}"


def _own_remedy(query: str) -> str:
    if topology.spec(query).topics or topology.spec(query).is_behind:
        return f"`activity recover {query} --reason …` lets it process again what its tables lack"
    return f"restore everything from one backup; or {CORRECT}"
