"""A hop that was off while the one above it made many commits: seconds, peak memory, and the log short again after.

    .venv/bin/python benchmarks/lag.py --hop gold [--commits 170000] [--out FOLDER]

170,000 commits are a day at two a second. They are made by this script, which writes log entries and files as the hop
above would; the hop and what merges beside it then drain them by the real command. At the end the table below is
compared with what was committed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: only its own folder is searched, and the package lies in the one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import pyarrow as pa
import pyarrow.parquet as pq
import typer
from deltalake import DeltaTable

from benchmarks import environment
from benchmarks.pipelines import PYTHON, Command, Pipeline
from benchmarks.trial import say
from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import history
from customer_activity.maintenance.maintenance import COMMITS_A_CHECKPOINT
from customer_activity.settings import PROJECT, Settings

CHECKPOINT_EVERY = 1_000  # commits, not 100 as in maintenance: each here has all files, which nobody has compacted
CUSTOMERS = 1_000
CUSTOMER = "lagging-"  # none of those that `activity produce` makes
TRAFFIC = ("produce", "--customers", "50", "--purchases", "200", "--rate", "1000")
COMMAND_SECONDS = 86_400.0
BRONZE = "bronze"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
AMOUNT = Decimal("1.25")


class Hop(StrEnum):
    """Which hop was off."""

    SILVER = "silver"
    GOLD = "gold"
    PUBLISH = "publish"


def event(number: int) -> dict[str, Any]:
    """Return a purchase as bronze has it."""
    return {
        "purchase_id": f"lag-{number}",
        "customer_id": f"{CUSTOMER}{number % CUSTOMERS}",
        "product_id": "X",
        "amount": AMOUNT,
        "currency": "EUR",
        "occurred_at": NOON,
        "risk_score": None,
        "key": f"lag-{number}".encode(),
        "value": b"{}",
        "topic": "purchase-events",
        "partition": 0,
        "offset": 1_000_000 + number,
        "kafka_timestamp": NOON + timedelta(seconds=number),
        "ingested_at": NOON,
        "landing": 1_000 + number,
    }


def change(number: int) -> dict[str, Any]:
    """Return a change of gold's."""
    return {
        "customer_id": f"{CUSTOMER}{number % CUSTOMERS}",
        "name": "Ada",
        "profile_updated_at": NOON,
        "purchase_count": number // CUSTOMERS + 1,
        "total_amount": AMOUNT * (number // CUSTOMERS + 1),
        "currency": "EUR",
        "view_version": 4_000_000_000_000 + number,
        "as_of": NOON,
        "existed": number >= CUSTOMERS,
        "is_gone": False,
    }


# By hop: the table that has grown, the stream that writes it, its rows, and the stages that drain it.
WORLDS: dict[Hop, tuple[Table, str, Callable[[int], dict[str, Any]], list[str]]] = {
    Hop.SILVER: (Table.PURCHASE_EVENTS, BRONZE, event, ["silver"]),
    Hop.GOLD: (Table.PURCHASES, "silver", event, ["gold", "silver"]),
    Hop.PUBLISH: (Table.ACTIVITY_CHANGES, "gold", change, ["publish", "gold"]),
}


def main(
    *,
    hop: Annotated[Hop, typer.Option()],
    commits: Annotated[int, typer.Option(min=1)] = 170_000,
    out: Annotated[Path, typer.Option()] = PROJECT / "var" / "lag",
) -> None:
    """Make the commits, drain them, and say what it cost."""
    table, writer, row, stages = WORLDS[hop]
    with environment.opened(out.resolve()) as settings:
        run(settings, *TRAFFIC)
        run(settings, "stream", "--available-now")
        started = time.monotonic()
        first = DeltaTable(table_path(settings.lake, table)).version() + 1
        grow(settings.lake, table, writer, row, range(first, first + commits))
        say(f"{commits:,} commits to {table.label} in {time.monotonic() - started:.0f} s")
        for stage in stages:
            started = time.monotonic()
            peaks = run(settings, "stream", stage, "--available-now")
            took, jvm, python = time.monotonic() - started, peaks["jvm_megabytes"], peaks["python_megabytes"]
            say(f"  {stage}: {took:.0f} s, peak {jvm:,.0f} MB of the JVM, {python:,.0f} MB of Python")
        say(f"  {outcome(settings, hop, commits)}")
        # A start reads a query's last batch once more, so the log goes back to its begin until there is a next one.
        run(settings, *TRAFFIC, "--seed", "2")
        run(settings, "stream", "--available-now")
        run(settings, "maintain")
        entries = len([*Path(table_path(settings.lake, table), "_delta_log").glob("*.json")])
        say(f"  the log of {table.label} has {entries:,} entries after maintenance")


def grow(lake: str, table: Table, writer: str, row: Callable[[int], dict[str, Any]], versions: range) -> None:
    """Write commits of one row each."""
    path = Path(table_path(lake, table))
    schema = arrow_schema(table)
    last_checkpoint = versions[-min(len(versions), 2 * COMMITS_A_CHECKPOINT)]  # maintenance shortens a log up to one
    before = history.latest_metadata(lake, table, writer)  # the writer's checkpoint knows that batch
    for number, version in enumerate(versions):
        values = {name: value for name, value in row(number).items() if name in schema.names}
        name = f"part-lag-{number}.parquet"
        pq.write_table(pa.Table.from_pylist([values], schema), path / name, compression="snappy")
        note = {**before, "commit": f"lag-{number}", "counts": {}}
        if writer == BRONZE:
            note["landing"] = 1_000 + number
        now = int(time.time() * 1000)
        info = {"timestamp": now, "operation": "WRITE", "userMetadata": json.dumps(note)}
        add = {
            "path": name,
            "partitionValues": {},
            "size": (path / name).stat().st_size,
            "modificationTime": now,
            "dataChange": True,
            "stats": json.dumps({"numRecords": 1}),
        }
        entry = "\n".join(json.dumps(action) for action in ({"commitInfo": info}, {"add": add}))
        (path / "_delta_log" / f"{version:020}.json").write_text(entry, encoding="utf-8")
        if number % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1 or version == last_checkpoint:
            DeltaTable(path).create_checkpoint()


def run(settings: Settings, *arguments: str) -> dict[str, float]:
    """Run a command to its end; return its peaks of memory.

    Raises:
        PipelineEnded: it failed.
    """
    command = Command(arguments[0], (str(PYTHON), "-m", "customer_activity", *arguments))
    with Pipeline(command, settings, settings.run_dir.parent / "lag.log") as running:
        running.wait(COMMAND_SECONDS)
        return running.usage.peaks()


def outcome(settings: Settings, hop: Hop, commits: int) -> str:
    """Compare the table below with what was committed."""
    below = {Hop.SILVER: Table.PURCHASES, Hop.GOLD: Table.SUMMARIES, Hop.PUBLISH: Table.ACTIVITY}[hop]
    rows = DeltaTable(table_path(settings.lake, below)).to_pyarrow_table().to_pylist()
    # A row of purchases is one purchase; the other tables' rows count them.
    found = sum(row.get("purchase_count", 1) for row in rows if row["customer_id"].startswith(CUSTOMER))
    return f"{'equal' if found == commits else 'DIFFERENT'}: {found:,} of {commits:,}"


if __name__ == "__main__":
    typer.run(main)
