"""Hand-made tables, checkpoints and status files, for what looks at them from outside."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from rich.console import Console

from customer_activity import catalog, topology
from customer_activity.catalog import Table, table_path
from customer_activity.inspection import status, tables
from customer_activity.inspection.query_status import QueryReport
from customer_activity.inspection.topics import Topic
from customer_activity.settings import Settings
from support.streams import Query

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TIMESTAMP = pa.timestamp("us", "UTC")
NO_PROCESS = 2**22 + 1  # above the greatest process number that Linux gives out


def write(settings: Settings, table: Table, rows: list[dict[str, Any]], **columns: pa.DataType) -> DeltaTable:
    path = table_path(settings.lake, table)
    write_deltalake(path, pa.Table.from_pylist(rows, schema=pa.schema(columns.items())), mode="append")
    return DeltaTable(path)


def write_times(settings: Settings, table: Table, *seconds: int) -> DeltaTable:
    column = tables.TIME_COLUMN.get(table, "no_time_of_kafkas")
    return write(settings, table, [{column: NOON + timedelta(seconds=s)} for s in seconds], **{column: TIMESTAMP})


def write_batch(
    settings: Settings, query: str, batch_id: int, *sources: dict[str, Any] | str, is_committed: bool = True
) -> None:
    root = Path(catalog.checkpoint_path(settings.lake, query))
    lines = [source if isinstance(source, str) else json.dumps(source) for source in sources]
    (root / "offsets").mkdir(parents=True, exist_ok=True)
    (root / "commits").mkdir(exist_ok=True)
    (root / "offsets" / str(batch_id)).write_text("\n".join(["v1", '{"batchWatermarkMs":0}', *lines]))
    if is_committed:
        (root / "commits" / str(batch_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        (root / "commits" / f".{batch_id}.crc").write_bytes(b"crc")


def delta_offset(table: DeltaTable, version: int, index: int = -1, *, is_snapshot: bool = False) -> dict[str, Any]:
    return {
        "sourceVersion": 1,
        "reservoirId": table.metadata().id,
        "reservoirVersion": version,
        "index": index,
        "isStartingVersion": is_snapshot,
    }


def write_status(settings: Settings, query: Query, **changed: Any) -> None:
    written = {
        "query": query,
        "state": "running",
        "pid": os.getpid(),
        "updated_at": datetime.now(UTC).isoformat(),
        "batch_id": 7,
        "batch_rows": 1000,
        "rows_per_second": 500.0,
        "batch_seconds": 2.0,
        "last_batch_at": NOON.isoformat(),
        "rows_total": 9000,
        "phases": {},
        "message": "",
    }
    path = settings.run_dir / "status" / f"{query}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(written | changed))


def of(report: status.Report, query: Query) -> QueryReport:
    return next(found for found in report.queries if found.query == query)


def text(renderable: Any) -> str:
    console = Console(width=160, force_terminal=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def strip(action: dict[str, Any]) -> dict[str, Any]:
    """Take the statistics out of an action of a Delta log."""
    return {"add": {**action["add"], "stats": None}} if "add" in action else action


def catch_up(settings: Settings, kafka: dict[str, Topic]) -> None:
    """Make a lake in which every query has read everything, and whose newest record shows in no table."""
    kafka[settings.purchase_topic] = Topic(settings.purchase_topic, {0: (0, 2)}, NOON + timedelta(seconds=100))
    kafka[settings.profile_topic] = Topic(settings.profile_topic, {0: (0, 2)}, NOON + timedelta(seconds=100))
    held = {table: write_times(settings, table, 0) for table in topology.tables()}
    write_batch(settings, Query.BRONZE, 0, {topic.name: {"0": 2} for topic in kafka.values()})
    for spec in topology.specs()[1:]:
        upstream = [held[table] for table in spec.sources]
        write_batch(settings, spec.name, 0, *(delta_offset(table, 1) for table in upstream))
