"""What streams keep besides their tables, month by month of the real year, and while a partition is silent for one.

    .venv/bin/python benchmarks/months.py [--months 14] [--streams NAMES] [--out DIR]

One driver with all optional streams takes the year in twelve months, then the first months of it once more as those of
the year after. In the thirteenth one partition of the purchases is silent. Records carry the purchases' own times as
Kafka timestamps, so that the topic's clock goes on as it would have. After each month, when everything is through:
rows and bytes of local state, bytes of the clock of event time in its commit, and the memory that the month took at
most. It counts only if `activity verify` finds no difference.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

if not __package__:
    sys.path[:1] = [str(Path.cwd())]

import pyarrow as pa
import pyarrow.compute as pc
import typer
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from benchmarks import environment
from benchmarks.pipelines import OURS, Pipeline, verify
from benchmarks.trial import say
from benchmarks.usage import MEGABYTE
from customer_activity import catalog
from customer_activity.catalog import PROFILES_ROLE, PURCHASES_ROLE
from customer_activity.demo.traffic import dataset, payments
from customer_activity.demo.traffic.payments import PaymentTraffic
from customer_activity.demo.traffic.profiles import Arrival, ProfileTraffic
from customer_activity.demo.traffic.record import Record
from customer_activity.engine import derived
from customer_activity.inspection import status
from customer_activity.kafka import clients
from customer_activity.settings import Settings
from customer_activity.streams.event_time.stream import NOTE, SPEC

STREAMS = "daily,weekly,sessions,late_events,payments,enrichment,routing,alerts,publish_alerts"
YEAR, TIME, BASKET = 12, "transaction_timestamp", "basket_id"
A_YEAR_MS, OTHER_BASKETS = 365 * 86_400_000, 10**12
SILENT_MONTH, SILENT_PARTITION = 13, 0
PAID_SHARE, SEED = 0.9, 1
ANY = -1  # partition: where its key puts it
INPUTS = (PURCHASES_ROLE, PROFILES_ROLE, catalog.PAYMENTS_ROLE)
LOOK_SECONDS, LONGEST_SECONDS = 1.0, 600.0


def main(
    *,
    months: Annotated[int, typer.Option(min=1, help="How many, of the year and of the one after.")] = 14,
    streams: Annotated[str, typer.Option(help="Optional streams that run.")] = STREAMS,
    out: Annotated[Path, typer.Option(help="Folder of results, logs and data.")] = Path("var/months"),
) -> None:
    """Measure, and print a row a month."""
    os.environ["ACTIVITY_STREAMS"] = streams
    out = out.resolve()
    rows: list[dict[str, Any]] = []
    with environment.opened(out) as settings, Pipeline(OURS, settings, out / "ours.log") as pipeline:
        for role in INPUTS:  # Kafka would remove records of years ago
            environment.set_topic(settings, settings.topics[role], {"retention.ms": "-1"})
        lines = dataset.transactions()
        of_month = pc.month(lines[TIME])
        _send(settings, _profiles(), at_ms=dataset.REGISTERED_AT_MS)
        for month in range(1, months + 1):
            began_ms = time.time() * 1000
            some = lines.filter(pc.equal(of_month, (month - 1) % YEAR + 1))
            sent = _send_month(settings, some if month <= YEAR else _a_year_later(some), month)
            _wait_until_through(settings, pipeline)
            rows.append({"month": month, "records": sent, **_kept(settings), **_used(pipeline, began_ms)})
            say(f"  {rows[-1]}")
        pipeline.stop()
        proof = verify(settings, out / "verify.log")
    (out / "months.json").write_text(json.dumps({"verify": proof, "months": rows}, indent=1))
    table = Table(*rows[0], title=str(proof["verdict"]))
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console(width=200).print(table)
    raise typer.Exit(0 if proof["equal"] else 1)


def _profiles() -> Iterator[Record]:
    options = dataset.DatasetOptions(lines=1, profiles=ProfileTraffic(Arrival.FIRST))
    return (record for record in dataset.records(options) if record.role == PROFILES_ROLE)


def _a_year_later(lines: pa.Table) -> pa.Table:
    """Return the lines as other purchases, of the same days a year later."""
    later = pc.add(lines[TIME].cast(pa.timestamp("ms")), pa.scalar(A_YEAR_MS, pa.duration("ms")))
    baskets = pc.add(lines[BASKET].cast(pa.int64()), OTHER_BASKETS)
    return lines.set_column(lines.schema.get_field_index(TIME), TIME, later).set_column(
        lines.schema.get_field_index(BASKET), BASKET, baskets
    )


def _send_month(settings: Settings, lines: pa.Table, month: int) -> int:
    """Send purchases and payments of a month, each at its time; return how many records that were."""
    moments = iter(lines[TIME].cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist())
    records = payments.among(dataset.purchases(lines, "EUR"), PaymentTraffic(PAID_SHARE, SEED + month))
    sent, at_ms = 0, lines[TIME].cast(pa.timestamp("ms")).cast(pa.int64())[0].as_py()
    producer = clients.producer(settings, linger_ms=20, queue_buffering_max_messages=200_000)
    count = len(clients.partitions(settings, settings.topics[PURCHASES_ROLE]))
    for record in records:
        if record.role == PURCHASES_ROLE:
            at_ms = next(moments)
        others = [n for n in range(count) if month != SILENT_MONTH or n != SILENT_PARTITION]
        _produce(producer, settings, record, at_ms, others if record.role == PURCHASES_ROLE else None)
        sent += 1
    producer.flush()
    return sent


def _send(settings: Settings, records: Iterator[Record], at_ms: int) -> None:
    producer = clients.producer(settings)
    for record in records:
        _produce(producer, settings, record, at_ms, None)
    producer.flush()


def _produce(
    producer: Producer, settings: Settings, record: Record, at_ms: int, partitions: Sequence[int] | None
) -> None:
    partition = ANY if partitions is None else partitions[zlib.crc32(record.key or b"") % len(partitions)]
    while True:
        try:
            producer.produce(settings.topics[record.role], record.value, record.key, partition, timestamp=at_ms)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def _wait_until_through(settings: Settings, pipeline: Pipeline) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while not status.report(settings).is_caught_up:
        pipeline.check()
        if time.monotonic() > deadline:
            raise TimeoutError("not everything was through in time")
        time.sleep(LOOK_SECONDS)


def _kept(settings: Settings) -> dict[str, Any]:
    """Return rows and megabytes of each stream's local state, and the bytes of the clock of event time."""
    found: dict[str, Any] = {}
    for file in sorted(settings.index_dir.glob("*.db")):
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as state:
            names = [name for (name,) in state.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            counts = [state.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names]  # noqa: S608
        size = sum(part.stat().st_size for part in file.parent.glob(f"{file.name}*"))
        found[file.stem] = f"{sum(counts):,} rows, {size / MEGABYTE:.1f} MB"
    note = derived.noted(settings.lake, SPEC, catalog.Table.TIMED_PURCHASES).get(NOTE)
    return {**found, "clock, bytes": len(json.dumps(note))}


def _used(pipeline: Pipeline, began_ms: float) -> dict[str, Any]:
    """Return seconds, processor seconds and the most memory since a moment."""
    now_ms = time.time() * 1000
    used = pipeline.usage.between(began_ms, now_ms)
    memory = max(s.jvm_memory + s.python_memory for s in pipeline.usage.samples if s.at_ms >= began_ms)
    return {
        "seconds": round((now_ms - began_ms) / 1000, 1),
        "processor": round(used["jvm_cpu_seconds"] + used["python_cpu_seconds"], 1),
        "memory, MB": round(memory / MEGABYTE),
    }


if __name__ == "__main__":
    typer.run(main)
