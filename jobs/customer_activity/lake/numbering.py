"""The number of each landing, and what else of the newest ones is known from what their commits note.

Records are ordered by (landing, partition, offset). A landing is a batch of bronze, or what a replay from quarantine
brings back of one; it has the number after the newest. A batch that is repeated, because it was interrupted between two
of its commits, keeps its number and the time at which it landed first: by another clock its records might be judged
otherwise than those of its tables that have it already.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import pyarrow.compute as pc
from deltalake import DeltaTable

from customer_activity import topology
from customer_activity.catalog import REPLAY, Table, table_path
from customer_activity.contracts import RULES
from customer_activity.lake import deltalog, history
from customer_activity.lake.microbatch import MicroBatch, metadata_of
from customer_activity.topology import Spec

# What commits note of a landing; a replay's whose landings it is one of: that of the hot path's where it does not tell.
LANDING, LANDED_AT, BY_RULES, REPLAYED_TO = "landing", "landed_at", "rules", "replayed_to"
FIRST_LANDING = "first_landing"  # of a replay, which has all from this one on: the other number is that of its last
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


class Landing(NamedTuple):
    """A landing: its number, which counts up by one, and when it was, in whole milliseconds."""

    number: int
    landed_at: datetime


class Numbering:
    """Numbers the batches of a stream that lands records, and replays of such records.

    Attributes:
        newest: the newest number of the lake; 0 where none was given yet.
        noted: what the newest commit of that stream notes; empty where there is none.
    """

    def __init__(self, lake: str, stream: Spec) -> None:
        """Read what the newest commits note."""
        self.lake = lake
        self.stream = stream
        self.refresh()

    def refresh(self) -> None:
        """Read it again: a replay has landed meanwhile."""
        stream = self.stream
        notes = [_newest_note(self.lake, table, partial(_is_landing_of, stream.name)) for table in stream.tables]
        of_batches = [
            _newest_note(self.lake, table, lambda note: note.get("query") == stream.name) for table in stream.tables
        ]
        self.newest = max(int(note.get(LANDING, 0)) for note in notes) or _newest_stored(self.lake, stream.tables)
        self.noted: Mapping[str, Any] = max(of_batches, key=lambda note: int(note.get(LANDING, -1)))

    def has(self, generation: str, batch_id: int | None) -> bool:
        """Whether a batch is the newest that has landed in any table."""
        return bool(self.noted) and _key(self.noted) == (generation, batch_id)

    def of(self, batch: MicroBatch) -> Landing:
        """Return a batch's landing and have its commits note it; a repeated batch's is the one that it had."""
        if LANDING not in self.noted or not self.has(batch.generation, batch.batch_id):
            self.newest += 1
            self.noted = {
                "generation": batch.generation,
                "batch_id": batch.batch_id,
                LANDING: self.newest,
                LANDED_AT: _now(),
            }
        number, millis = int(self.noted[LANDING]), int(self.noted[LANDED_AT])
        batch.extra |= {LANDING: number, LANDED_AT: millis, BY_RULES: RULES}
        return Landing(number, EPOCH + millis * MILLISECOND)

    def of_replay(self) -> Landing:
        """Return the first landing of a replay that begins now."""
        return Landing(self.newest + 1, EPOCH + _now() * MILLISECOND)


def _now() -> int:
    return time.time_ns() // 1_000_000


def _key(note: Mapping[str, Any]) -> tuple[str, int]:
    return str(note.get("generation")), int(note.get("batch_id", -1))


def _is_landing_of(stream: str, note: Mapping[str, Any]) -> bool:
    """Whether a commit is of a stream that lands records, or of a replay of such."""
    query = note.get("query")
    return query == stream or (query == REPLAY and note.get(REPLAYED_TO, topology.landing().name) == stream)


def _newest_note(lake: str, table: Table, is_wanted: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any]:
    """Return what the newest commit of some notes; others write to quarantine, too."""
    newest = deltalog.newest_version(lake, table)
    notes = (metadata_of(said.get("userMetadata")) for said in history.log_entries(lake, table, newest))
    return next(filter(is_wanted, notes), {})


def _newest_stored(lake: str, tables: Iterable[Table]) -> int:
    """Return the newest number that a row has: where no commit tells, a number must not be given a second time."""
    newest = 0
    for table in tables:
        rows = DeltaTable(table_path(lake, table)).to_pyarrow_dataset()
        if LANDING in rows.schema.names:
            for batch in rows.to_batches(columns=[LANDING]):
                newest = max(newest, pc.max(batch.column(LANDING)).as_py() or 0)
    return newest
