"""A history of years: what quality, rebuild and verify keep of a commit in memory is little, whatever it said."""

from __future__ import annotations

import json
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from customer_activity.catalog import Table, history_path
from customer_activity.lake import history
from customer_activity.lake.microbatch import ACCEPTED, DUPLICATE, QUARANTINED, READ
from customer_activity.quality import accounting
from customer_activity.verification import lake as verified
from support import tables
from support.streams import Query

TABLE = Table.PURCHASES
COMMITS, COMMITS_A_FILE = 3_000, 100
TOPIC = "purchase-events"


def note(number: int) -> dict[str, Any]:
    """Return what a commit of bronze says in a deployment of a dozen partitions."""
    return {
        "query": Query.SILVER,
        "generation": "8c6d8a52-6a5c-4a4b-9c11-2b7e4a1f6d10",
        "batch_id": number,
        "commit": f"{number:032x}",
        "counts": {TOPIC: {READ: 50 + number % 7, ACCEPTED: 48, QUARANTINED: 2, DUPLICATE: number % 3}},
        "minutes_before": {str(29_000_000 + minute): {"good": 3_000 + number, "not_json": 3} for minute in range(10)},
        "offsets": {TOPIC: {str(partition): [number * 10, number * 10 + 10] for partition in range(12)}},
        "landing": number,
        "landed_at": 1_700_000_000_000 + number,
    }


@pytest.fixture
def long_history(lake: str) -> str:
    """Return a lake in which the log of a table has its newest commit, and the history all those before."""
    tables.opened(lake, TABLE).create_checkpoint()
    first = tables.entry(lake, TABLE, 0)
    first.rename(tables.entry(lake, TABLE, COMMITS))
    log = first.parent
    (log / f"{0:020}.checkpoint.parquet").rename(log / f"{COMMITS:020}.checkpoint.parquet")
    (log / "_last_checkpoint").unlink()
    for checksum in log.glob("*.crc"):
        checksum.unlink()
    folder = Path(history_path(lake, TABLE))
    folder.mkdir(parents=True)
    for begin in range(0, COMMITS, COMMITS_A_FILE):
        versions = range(begin, begin + COMMITS_A_FILE)
        lines = [json.dumps({"version": version, "userMetadata": json.dumps(note(version))}) for version in versions]
        (folder / f"{begin:020}-{versions[-1]:020}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return lake


def counted(lake: str) -> None:
    total = accounting.counted(lake, TABLE)
    assert total is not None, "log and history are whole"
    assert total[TOPIC][ACCEPTED] == 48 * COMMITS
    assert total[TOPIC][DUPLICATE] == sum(number % 3 for number in range(COMMITS))


def verified_commits(lake: str) -> None:
    commits = verified.commits(lake, TABLE, tables.opened(lake, TABLE))
    assert commits.first_version == 0
    assert sum(each["counts"][TOPIC][ACCEPTED] for each in commits.metadata if "counts" in each) == 48 * COMMITS


@pytest.mark.parametrize(
    ("read", "most_bytes"),
    [pytest.param(counted, 900, id="quality and rebuild"), pytest.param(verified_commits, 1_800, id="verify")],
)
def test_little_of_a_commit_is_kept(long_history: str, read: Callable[[str], None], most_bytes: int) -> None:
    tracemalloc.start()
    try:
        read(long_history)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak / COMMITS < most_bytes


def versions(lake: str) -> list[int]:
    return sorted(said["version"] for said in history.archived_entries(lake, TABLE))


def test_a_history_that_is_far_away_is_read_several_files_at_once(
    long_history: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = versions(long_history)
    reading, most = 0, 0
    lock, met = threading.Lock(), threading.Event()
    read = history.lines_of

    def slow(files: fs.FileSystem, path: str) -> list[bytes]:
        nonlocal reading, most
        with lock:
            reading += 1
            most = max(most, reading)
            if reading > 1:
                met.set()
        met.wait(2)
        lines = read(files, path)
        with lock:
            reading -= 1
        return lines

    away = fs.SubTreeFileSystem(long_history, fs.LocalFileSystem())
    monkeypatch.setattr(history, "filesystem", lambda location: (away, str(Path(location).relative_to(long_history))))
    monkeypatch.setattr(history, "lines_of", slow)
    assert versions(long_history) == near == list(range(COMMITS))
    assert most > 1
