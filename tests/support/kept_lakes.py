"""The deployments that releases have left (tests/fixtures/README.md), unpacked to go on from."""

from __future__ import annotations

import os
import tarfile
import time
from pathlib import Path

from confluent_kafka import Producer

from support.records import NOW_MS, Record

FOLDER = Path(__file__).parents[1] / "fixtures"
# Of the lake's layout, oldest first.
VERSIONS = sorted(int(path.name.removeprefix("lake-v").partition(".")[0]) for path in FOLDER.glob("lake-v*.tar.xz"))


def unpack(version: int, folder: Path, part: str = "") -> None:
    """Unpack one, or a part of it such as `lake`; its last file is of now.

    Delta tells the age of versions by the times of their files.
    """
    with tarfile.open(FOLDER / f"lake-v{version}.tar.xz") as archive:
        chosen = [member for member in archive.getmembers() if member.name.startswith(part)]
        archive.extractall(folder, chosen, filter="data")
        later = time.time() - max(member.mtime for member in chosen)
        for member in chosen:
            os.utime(folder / member.name, (member.mtime + later, member.mtime + later))


def put(producer: Producer, record: Record, partition: int = -1) -> None:
    """Send a record, to its key's partition or another, and wait until the broker has it.

    A record that says nothing of when it was sent is of now.
    """
    sent = 0 if record.timestamp_ms == NOW_MS else record.timestamp_ms
    producer.produce(record.topic, key=record.key, value=record.value, partition=partition, timestamp=sent)
    assert producer.flush(30) == 0
