"""How much memory records of a megabyte take: that many wait, and a driver of its own takes them to the view.

    .venv/bin/python benchmarks/large_records.py [--records 10000] [--bytes 1000000] [--text random|same|both]

Prints a line of JSON a run. The last record of a topic is as large as its `max.message.bytes` lets a batch be. `random`
text does not pack, `same` packs a hundred times: a fetch of some kilobytes is a hundred records then.
"""

from __future__ import annotations

import base64
import json
import random
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: only its own folder is searched, and the package lies in the one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer
from deltalake import DeltaTable

from benchmarks import environment
from benchmarks.pipelines import Command, Pipeline
from benchmarks.trial import say
from customer_activity.catalog import Table, table_path
from customer_activity.kafka import clients
from customer_activity.settings import Settings

PROJECT = Path(__file__).resolve().parents[1]
DRAIN = Command("streams", (sys.executable, str(PROJECT / "jobs" / "run.py"), "stream", "--available-now"))
DRAIN_SECONDS = 3_600.0
MEGABYTE = 1_000_000
CUSTOMERS = 100
OVERHEAD = 200  # of a batch with one record, key and field names included


class Text(StrEnum):
    """What fills the records."""

    RANDOM = "random"
    SAME = "same"
    BOTH = "both"


def main(
    *,
    records: Annotated[int, typer.Option(help="Purchases that wait.")] = 10_000,
    size: Annotated[int, typer.Option("--bytes", help="Of each one's value.")] = MEGABYTE,
    text: Annotated[Text, typer.Option(help="What fills them.")] = Text.BOTH,
    folder: Annotated[Path, typer.Option(help="Where broker and lake are meanwhile.")] = Path("var/large-records"),
) -> None:
    """Drain large records, and print what it took."""
    for kind in (Text.RANDOM, Text.SAME) if text is Text.BOTH else (text,):
        with environment.opened(folder.resolve()) as settings:
            limit = int(clients.topic_setting(settings, settings.purchase_topic, "max.message.bytes"))
            started = time.monotonic()
            produce(settings, records, size, limit, kind)
            say(f"{records:,} records of {size:,} bytes ({kind}) wait after {time.monotonic() - started:.0f} s")
            print(json.dumps({"text": kind, "records": records, "bytes": size, "limit": limit, **land(settings)}))  # noqa: T201


def produce(settings: Settings, records: int, size: int, limit: int, kind: Text) -> None:
    """Send the customers' profiles, purchases whose unknown field makes them large, and one of the topic's limit."""
    filler = base64.b64encode(random.Random(1).randbytes(max(size, limit))).decode()
    if kind is Text.SAME:
        filler = "x" * len(filler)
    producer = clients.producer(settings, message_max_bytes=10 * MEGABYTE, queue_buffering_max_kbytes=64_000)
    for number in range(CUSTOMERS):
        profile = {"customerId": f"C-{number}", "name": "Ada", "updatedAtEpochMillis": 1483271606000}
        producer.produce(settings.profile_topic, key=f"C-{number}".encode(), value=json.dumps(profile).encode())
    for number in range(records + 1):
        wanted = size if number < records else limit - OVERHEAD
        fields = f'{{"purchaseId":"P-{number}","customerId":"C-{number % CUSTOMERS}","amount":9.99,"currency":"EUR",'
        fields += '"occurredAtEpochMillis":1483271606000,"note":"'
        value = (fields + filler[: wanted - len(fields) - 2] + '"}').encode()
        while True:
            try:
                producer.produce(settings.purchase_topic, key=f"P-{number}".encode(), value=value)
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(300):
        raise RuntimeError(f"{left} records were not delivered")


def land(settings: Settings) -> dict[str, Any]:
    """Run all streams on what waits; return seconds, bronze's rows and files, what gold counts, peaks of memory."""
    started = time.monotonic()
    with Pipeline(DRAIN, settings, settings.run_dir.parent / "streams.log") as pipeline:
        pipeline.wait(DRAIN_SECONDS)
        peaks = pipeline.usage.peaks()
    table = DeltaTable(table_path(settings.lake, Table.PURCHASE_EVENTS))
    sizes = table.get_add_actions(flatten=True)
    view = DeltaTable(table_path(settings.lake, Table.ACTIVITY)).to_pyarrow_table(columns=["purchase_count"])
    return {
        "seconds": round(time.monotonic() - started, 1),
        "rows": sum(sizes["num_records"].to_pylist()),
        "files": sizes.num_rows,
        "counted": sum(view["purchase_count"].to_pylist()),
        **peaks,
    }


if __name__ == "__main__":
    typer.run(main)
