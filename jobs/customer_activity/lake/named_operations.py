"""What a commit means to readers of its table: appended rows, maintenance, a named operation, or a foreign change.

The hot path's tables only grow, by commits of their own writers. Everything else that changes their rows is a named
operation. It carries `{"operation": <name>, "id": …, "reason": …}` as `userMetadata` and the epochs of the leases of
the table's writers as transaction ids; the lake's `_audit` folder has who did it, before it is committed. What each
reader does when it meets one:

    reader                    correction                  erasure        archiving
    silver, gold, current     begin behind it             skip it        skip it
    publish                   sends the rows it added     skips it       skips it
    indexes                   are built again             stay           stay
    verify, quality, rebuild  take the table as it is     as it is       as it is

- correction: rows are replaced by what they should have been, in all tables of silver and gold by one run, which also
  writes the checkpoints of those who read them (`rebuild/repair.py`). Where it only adds rows, they are appended
  ones; a stream that was off, and goes by the order of landings, refuses those of landings that it has come to.
- erasure: rows of a person are removed or blanked in every layer by one run, so no layer has anything to follow.
- archiving: old rows are moved to another place; what was computed from them stays.

Any other commit that changes rows is foreign: a DELETE, UPDATE, MERGE or INSERT from outside the pipeline. Readers stop
at it, because they can neither follow it nor pretend that it is new input.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from deltalake import CommitProperties, DeltaTable, Transaction

from customer_activity import topology
from customer_activity.catalog import REPLAY, Table, lease_id, table_path
from customer_activity.lake import audit
from customer_activity.lake.microbatch import metadata_of
from customer_activity.lease import lease

REBUILD = "rebuild"  # what commits call themselves that fill the tables of a lake that is built beside
NOT_STREAMS = (REPLAY, REBUILD)  # whose appends are rows to read, too
SHOWN = 120  # characters of what a foreign commit says of itself


class Operation(StrEnum):
    """The named operations: the only commits to a hot-path table that are not appends of its writers."""

    CORRECTION = "correction"
    ERASURE = "erasure"
    ARCHIVING = "archiving"


class Kind(StrEnum):
    """What a commit is to a reader."""

    APPEND = "append"
    MAINTENANCE = "maintenance"
    OPERATION = "operation"
    FOREIGN = "foreign"


class Commit(NamedTuple):
    """A log entry as a reader sees it."""

    kind: Kind
    operation: Operation | None  # for that kind
    # Who wrote it, as its note says: a query's name, `replay`, `rebuild`, `maintenance`; empty without a note.
    query: str
    # Delta's `add` actions of files with changed rows, as the log has them (paths are URL-encoded).
    adds: Sequence[Mapping[str, Any]]
    note: Mapping[str, Any]  # its `userMetadata`; empty where that is no JSON object
    described_by: str  # what it says of itself (operation, engine, user), fit to be shown


def classify(actions: Sequence[Mapping[str, Any]]) -> Commit:
    """Say what a commit is, from the actions of its log entry."""
    info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if action.get("commitInfo")), {})
    note = metadata_of(_text(info.get("userMetadata")))
    adds = [action["add"] for action in actions if action.get("add") and _has_new_rows(action["add"])]
    takes_away = any(
        action.get("cdc") or (action.get("remove") and _has_new_rows(action["remove"])) for action in actions
    )
    query = note.get("query") if isinstance(note.get("query"), str) else ""
    is_ours = query in NOT_STREAMS or query in topology.names()
    operation = _operation(note)
    if operation is not None and _is_fenced(actions, topology.names()):
        kind = Kind.OPERATION
    elif not adds and not takes_away:
        # What tells of a batch without rows is its writer's; metadata, compaction and empty entries add no rows.
        kind = Kind.APPEND if is_ours else Kind.MAINTENANCE
    elif is_ours and not takes_away and operation is None:
        kind = Kind.APPEND
    else:
        kind = Kind.FOREIGN
    return Commit(kind, operation if kind is Kind.OPERATION else None, str(query), adds, note, _described(info))


def is_recomputed(table: Table, commit: Commit, actions: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a table's own stream replaced rows of it: a correction, which releases before did not always name so.

    They left the name out where the streams were off that read the table. The stream's lease is in such a commit.
    """
    own = topology.writers(table)
    return commit.query in own and _is_fenced(actions, own)


def _has_new_rows(file: Mapping[str, Any]) -> bool:
    """Whether a file's action changes rows; one that does not say so is taken to."""
    return bool(file.get("dataChange", True))


def _operation(note: Mapping[str, Any]) -> Operation | None:
    name = note.get("operation")
    return Operation(name) if isinstance(name, str) and name in set(Operation) else None


def _is_fenced(actions: Sequence[Mapping[str, Any]], streams: Iterable[str]) -> bool:
    """Whether a commit carries an epoch of the lease of some stream."""
    fences = {lease_id(stream) for stream in streams}
    return any((action.get("txn") or {}).get("appId") in fences for action in actions)


def _described(info: Mapping[str, Any]) -> str:
    """Return who wrote a commit, in printable characters and not too many: the text comes from outside."""
    said = [_text(info.get(name)) for name in ("operation", "engineInfo", "userName", "clientVersion")]
    return ", ".join(_shown(text) for text in said if text) or "no description"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _shown(text: str) -> str:
    cut = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in cut)


class Fence(NamedTuple):
    """What one run of a named operation commits with, once a table."""

    operation: Operation
    run: str  # its id, the same in each commit and in the lake's `_audit` folder
    reason: str
    fencing_epoch: Callable[[str], int]  # tells the epoch that it holds of a query
    lake: str

    def properties(self, table: Table, **details: Any) -> CommitProperties:
        """Return what a commit to a table carries; `details` are counts and ids of runs, never personal data.

        Raises:
            LeaseLost: another driver took one of the table's writers over.
        """
        note = {**details, "operation": self.operation.value, "id": self.run, "reason": self.reason}
        return CommitProperties(
            app_transactions=[Transaction(self._id, 1), *epochs_of(self.lake, table, self.fencing_epoch)],
            custom_metadata={"userMetadata": json.dumps(note, sort_keys=True)},
        )

    def is_in(self, table: Table) -> bool:
        """Whether a table has the run's commit."""
        return DeltaTable(table_path(self.lake, table)).transaction_version(self._id) is not None

    @property
    def _id(self) -> str:
        return f"{self.operation}:{self.run}"


def epochs_of(
    lake: str, table: Table, fencing_epoch: Callable[[str], int], queries: Iterable[str] | None = None
) -> list[Transaction]:
    """Return what makes a commit fail once another driver has taken over one of some streams that write a table.

    Those are all that write it where none are named.

    Raises:
        LeaseLost: one has already.
    """
    log = DeltaTable(table_path(lake, table))
    transactions = []
    for query in topology.writers(table) if queries is None else queries:
        epoch = fencing_epoch(query)
        if (log.transaction_version(lease_id(query)) or 0) > epoch:
            raise lease.lost(query, epoch)
        transactions.append(Transaction(lease_id(query), epoch))
    return transactions


@contextmanager
def fenced(lake: str, operation: Operation, tables: Sequence[Table], reason: str, **details: Any) -> Iterator[Fence]:
    """Keep the writers of some tables out for a named operation, and leave an audit record of it.

    `details` go into that record; they are never personal data.

    Raises:
        QueryAlreadyRunning: a driver is at work on one of their writers.
    """
    queries = [query for query in topology.names() if any(query in topology.writers(table) for table in tables)]
    with lease.kept_out(lake, queries) as held:
        run = uuid.uuid4().hex
        named = [table.label for table in tables]
        audit.append(lake, datetime.now(UTC), operation.value, queries[0], reason, id=run, tables=named, **details)
        yield Fence(operation, run, reason, held.fencing_epoch, lake)
