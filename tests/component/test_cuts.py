"""The tables behind the hot path are the same whatever the batches: in one, in ten, in a thousand, and computed again.

Rows of silver and of the payment topic are there, a thousand landings of each; what follows them takes some at a time.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import delta
from customer_activity.lake.datafiles import FileWriter
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.maintenance import maintenance
from customer_activity.operations import current_rows
from customer_activity.settings import Settings
from support import event_time, tables
from support.payments import expected
from support.quick_pipeline import QuickPipeline
from support.without_jvm import NoSpark, without_jvm

LANDINGS, PURCHASES, DAYS = 1_000, 1_500, 12
CHAIN = ("event_time", "late_events", "daily", "weekly", "sessions", "payments")
LANDED = (Table.PURCHASES, Table.PAYMENT_EVENTS)
START = datetime(2026, 3, 26, tzinfo=UTC)
GRACE, MINUTE = timedelta(hours=3), timedelta(minutes=1)
MAINTAINED_EVERY = 50  # batches: as it is in a driver
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1_800)]  # a thousand batches of six streams
Row = dict[str, Any]
Rows = dict[str, list[Row]]


@dataclass
class Cut(QuickPipeline):
    """A pipeline whose streams see what has landed up to a version."""

    upto: int = 0

    def advance(self, query: str, table: Table) -> tuple[int, int]:
        """Take note that a query reads a table up to a version; return the first version of that and this."""
        start, newest = super().advance(query, table)
        if table in LANDED:
            newest = self.cursors[query, table] = min(newest, self.upto)
            self.versions[query, table] = start - 1, newest
        return start, newest


def purchases(chance: random.Random) -> list[Row]:
    """Return purchases in the order in which they arrive: each up to twenty hours late, beyond the grace."""
    times = sorted(START + chance.random() * timedelta(days=DAYS) for _ in range(PURCHASES))
    arriving = sorted((at + chance.random() ** 3 * timedelta(hours=20), number) for number, at in enumerate(times))
    return [
        {
            "purchase_id": f"P-{number}",
            "customer_id": f"C-{number % 5}",
            "amount": Decimal(f"{number % 7}.{number % 10}5"),
            "currency": "EUR",
            "occurred_at": times[number],
            "kafka_timestamp": arrival,
        }
        for arrival, number in arriving
    ]


def payments(chance: random.Random, bought: Sequence[Row]) -> list[Row]:
    """Return payments in the order in which they arrive: early, late, twice, that differ, for nobody, or none."""
    arriving: list[Row] = []
    for row in bought:
        for _ in range(chance.choice([0, 1, 1, 1, 2])):
            at = row["occurred_at"] + chance.choice([-5, 3, 29, 45, 600]) * MINUTE
            arriving.append(
                {
                    "purchase_id": row["purchase_id"] if chance.random() < 0.97 else f"nobody-{len(arriving)}",
                    "payment_id": f"pay-{row['purchase_id']}-{chance.randrange(2)}",
                    "customer_id": chance.choice([None, row["customer_id"]]),
                    "amount": row["amount"] + chance.choice([0, 0, 0, 1]),
                    "currency": "EUR",
                    "confirmed_at": at,
                    "kafka_timestamp": at + chance.random() * timedelta(hours=2),
                }
            )
    return sorted(arriving, key=lambda row: row["kafka_timestamp"])


def landed(lake: str, table: Table, arriving: Sequence[Row]) -> None:
    """Have rows land, by turns in two partitions, in a thousand landings: each is an entry of the table's log."""
    offsets = [0, 0]
    for landing in range(1, LANDINGS + 1):
        rows = []
        for number in range((landing - 1) * len(arriving) // LANDINGS, landing * len(arriving) // LANDINGS):
            partition = number % 2
            rows.append({**arriving[number], "partition": partition, "offset": offsets[partition], "landing": landing})
            offsets[partition] += 1
        writer = FileWriter(lake, table)
        writer.write(pa.Table.from_pylist(rows, arrow_schema(table)))
        file = writer.close()
        assert file is not None
        (query,) = topology.writers(table)
        note = MicroBatch(query, "landed", landing, extra={"landing": landing}).metadata()
        added = {"path": file.path, "partitionValues": {}, "size": file.size, "modificationTime": landing}
        actions = [
            {"commitInfo": {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "userMetadata": note}},
            {"add": {**added, "dataChange": True, "stats": file.stats}},
        ]
        tables.entry(lake, table, landing).write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
    maintenance.checkpoint_log(lake, table, every=1)


@pytest.fixture(scope="module")
def nobody() -> Iterator[NoSpark]:
    """Commit, and work as executors do, without a JVM; the streams are on."""
    topology.switch_on(CHAIN[1:])
    with without_jvm() as found:
        yield found
    topology.switch_on([])


@pytest.fixture(scope="module")
def lake(nobody: NoSpark, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake in which all has landed, and nothing follows."""
    folder = tmp_path_factory.mktemp("landed") / "lake"
    delta.ensure_tables(str(folder))
    chance = random.Random(25)
    bought = purchases(chance)
    paid = payments(chance, bought)
    assert min(len(bought), len(paid)) > LANDINGS
    landed(str(folder), Table.PURCHASES, bought)
    landed(str(folder), Table.PAYMENT_EVENTS, paid)
    return folder


def followed(lake: Path, folder: Path, nobody: NoSpark, cuts: int, places: Sequence[str]) -> Cut:
    """Have the streams take in what has landed in so many batches, each at the next of some places."""
    shutil.copytree(lake, folder / "lake")
    settings = Settings(lake=str(folder / "lake"), run_dir=folder / "run", grace_hours=GRACE / timedelta(hours=1))
    pipeline = Cut(nobody, settings.model_copy(update={"placement": places[0]}))  # type: ignore[arg-type]
    for number in range(cuts):
        if len(places) > 1:
            pipeline.settings = settings.model_copy(update={"placement": places[number % len(places)]})
            pipeline.restart()
        pipeline.upto = tables.newest(settings.lake, Table.PURCHASES) * (number + 1) // cuts
        for query in CHAIN:
            pipeline.hop(query)
        if number % MAINTAINED_EVERY == MAINTAINED_EVERY - 1:
            for table in written():
                maintenance.compact(settings.lake, table)
                maintenance.checkpoint_log(settings.lake, table, every=1)
            nobody.forget_logs()
    return pipeline


def written() -> list[Table]:
    return [table for query in CHAIN for table in topology.spec(query).tables]


def found(pipeline: Cut) -> Rows:
    """Return all rows but what depends on when it was decided."""
    rows = {table.label: pipeline.rows(table) for table in written()}
    for row in rows[Table.WATERMARKS.label]:
        row.pop("decided_at")
    return rows


@pytest.fixture(scope="module")
def at_once(lake: Path, nobody: NoSpark, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Return the rows that one batch comes to: those of the rules, one purchase after the other in plain Python."""
    pipeline = followed(lake, tmp_path_factory.mktemp("at_once"), nobody, 1, ["driver"])
    rows = found(pipeline)
    bought = event_time.as_bought(pipeline.rows(Table.PURCHASES))
    idle = timedelta(minutes=pipeline.settings.idle_partition_minutes)
    for table, days, first_day in ((Table.DAILY, 1, "day"), (Table.WEEKLY, 7, "first_day")):
        right = event_time.expected(bought, days=days, zone="UTC", grace=GRACE, idle=idle)
        assert {(row["customer_id"], row[first_day]): row["purchase_count"] for row in rows[table.label]} == {
            key: window.count for key, window in right.windows.items()
        }
    late = {row["purchase_id"] for row in rows[Table.LATE_EVENTS.label]}
    timed, paid = rows[Table.TIMED_PURCHASES.label], rows[Table.PAID.label]
    watermark = max(row["next_watermark"] for row in timed if row["next_watermark"] is not None)
    window = pipeline.settings.payment_minutes * MINUTE
    wanted = expected(timed, pipeline.rows(Table.PAYMENT_EVENTS), watermark, window, GRACE)
    assert {row["purchase_id"]: row["payment_id"] for row in paid} == {key: by for key, (by, _) in wanted.paid.items()}
    assert {row["purchase_id"] for row in rows[Table.UNPAID.label]} == wanted.unpaid
    assert len(rows[Table.UNMATCHED_PAYMENTS.label]) == len(wanted.others)
    assert min(len(late), len(paid), len(wanted.unpaid), len(wanted.others)) > 50
    return rows


@pytest.mark.parametrize(
    ("cuts", "places"),
    [
        pytest.param(10, ["driver"], id="10 batches"),
        pytest.param(10, ["executors"], id="10 batches on executors"),
        pytest.param(100, ["driver", "executors"], id="100 batches by turns"),
        pytest.param(LANDINGS, ["driver"], id="1,000 batches"),
    ],
)
def test_the_same_input_comes_to_the_same_tables_whatever_the_batches(
    lake: Path, at_once: Rows, nobody: NoSpark, tmp_path: Path, cuts: int, places: Sequence[str]
) -> None:
    pipeline = followed(lake, tmp_path, nobody, cuts, places)
    assert len(pipeline.batches["payments"]) == cuts
    rows = found(pipeline)
    for label, of_table in at_once.items():
        assert rows[label] == of_table, label
    for query in CHAIN:
        current_rows.make(pipeline.settings.lake, query, 1)
    assert found(pipeline) == rows
