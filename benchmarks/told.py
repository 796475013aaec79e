"""Processor time that traces, logs as JSON and lineage add to a batch, part by part and apart from everything else.

    .venv/bin/python benchmarks/told.py [--rows 500]

What they cost a running pipeline: `benchmarks/beside.py . --only freshness --told`.
"""

from __future__ import annotations

import io
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stderr
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Annotated

if not __package__:  # run as a file: only its own folder is searched
    from pathlib import Path

    sys.path[:1] = [str(Path(__file__).resolve().parents[1])]

import pyarrow as pa
import typer
from openlineage.client.serde import Serde

from customer_activity.catalog import Table
from customer_activity.contracts.columns import HEADERS
from customer_activity.contracts.tables import arrow_schema
from customer_activity.contracts.trace import trace_contexts
from customer_activity.engine import batch_events, logs
from customer_activity.engine.observability import QueryStatus
from customer_activity.lake.microbatch import MicroBatch, Place, Placement
from customer_activity.lineage.events import event
from customer_activity.lineage.recording import Telling
from customer_activity.lineage.sending import Sender
from customer_activity.lineage.told import Moment, Told
from customer_activity.settings import Settings
from customer_activity.state import profile_records
from customer_activity.streams.gold import state
from customer_activity.streams.gold.sums import summarised, totalled
from customer_activity.streams.registry import STREAMS

TIMES = 300
AT = datetime(2026, 1, 1, tzinfo=UTC)
CUSTOMERS = 400


def traceparent(number: int) -> str:
    """Return a trace of its own for each number."""
    return f"00-{number + 1:032x}-{number + 1:016x}-01"


def micros(what: Callable[[], object]) -> float:
    """Return the processor microseconds that something takes."""
    what()
    started = time.process_time()
    for _ in range(TIMES):
        what()
    return (time.process_time() - started) / TIMES * 1e6


def parsing(rows: int, *, is_traced: bool) -> Callable[[], object]:
    """Reading records' headers."""
    headers = [[{"key": "traceparent", "value": traceparent(n).encode()}] if is_traced else None for n in range(rows)]
    column = pa.array(headers, HEADERS)
    return lambda: trace_contexts(column)


def joining(rows: int, connection: sqlite3.Connection, *, is_traced: bool) -> Callable[[], object]:
    """Taking purchases in by gold's state, and reading the rows that changed."""
    common = {"kafka_timestamp": AT, "partition": 0, "landing": 0}
    profiles = [
        {**common, "customer_id": f"C-{n}", "name": "Ada", "updated_at": AT, "offset": n, "is_tombstone": False}
        for n in range(CUSTOMERS)
    ]
    purchases = [
        {
            **common,
            "purchase_id": f"P-{n}",
            "customer_id": f"C-{n % CUSTOMERS}",
            "amount": Decimal("1.10"),
            "occurred_at": AT,
            "offset": n,
            "trace_context": traceparent(n) if is_traced else None,
        }
        for n in range(rows)
    ]
    said = profile_records.newest(pa.Table.from_pylist(profiles, arrow_schema(Table.PROFILE_CHANGES)))
    bought = pa.Table.from_pylist(purchases, arrow_schema(Table.PURCHASES))
    nothing = profile_records.newest(arrow_schema(Table.PROFILE_CHANGES).empty_table())
    connection.executescript(state.NEEDS.tables)

    def take(sums: pa.Table, changes: pa.Table) -> int:
        changed = state.take_in(connection, sums, changes, [], lambda _: ())
        return sum(part.rows.num_rows for part in changed)

    take(totalled([]), said)
    return lambda: take(totalled([summarised(bought)]), nothing)


def batch(rows: int) -> MicroBatch:
    """Return a batch that has ended."""
    versions = {Table.PURCHASE_EVENTS: (41, 42), Table.PROFILE_EVENTS: (40, 41)}
    done = MicroBatch("silver", "g", 3, rows=rows, versions=versions, placement=Placement(Place.DRIVER, "few rows"))
    done.phases |= {"read": 4.0, "compute": 6.0, "commit": 40.0}
    return done


def _made(settings: Settings, told: Told) -> str:
    return Serde.to_json(event(settings, told))


class Kept(Sender):
    """Sends nothing, and keeps what it was told last."""

    last: Told

    def put(self, told: Told) -> None:
        """Keep it."""
        self.last = told


def measured(rows: int) -> Iterator[tuple[str, float]]:
    """Yield what was measured, and its microseconds."""
    for is_traced, words in ((False, "without traces"), (True, "with traces")):
        yield f"headers of {rows} records, {words}", micros(parsing(rows, is_traced=is_traced))
    for is_traced, words in ((False, "without traces"), (True, "with traces")):
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            work = joining(rows, connection, is_traced=is_traced)
            yield f"gold's state, {rows} purchases, {words}", micros(work)
    done = batch(rows)
    for log_format in (logs.TEXT, logs.JSON):
        with redirect_stderr(io.StringIO()):
            logs.configure_logging(log_format)
            yield f"the batch's event in the log, {log_format}", micros(lambda: batch_events.tell(done, 0.05))
    sender = Kept(lambda: lambda _: None)
    settings = Settings()
    recorder = Telling(settings, sender)
    recorder.begin(STREAMS["silver"].spec, QueryStatus("silver"))
    yield "the batch recorded for lineage", micros(lambda: recorder.take(done))
    for moment in (Moment.RUNNING, Moment.COMPLETE):
        told = sender.last._replace(moment=moment)
        making = partial(_made, settings, told)
        yield f"an event of lineage, {moment} (not the batch's thread)", micros(making)


def main(*, rows: Annotated[int, typer.Option(min=1, help="Records of a batch.")] = 500) -> None:
    """Measure, and print processor microseconds."""
    for what, took in measured(rows):
        sys.stdout.write(f"{took:10,.1f} us  {what}\n")


if __name__ == "__main__":
    typer.run(main)
