"""Checksums of Delta versions that delta-rs commits. Format: Delta's protocol, "Version Checksum File".

Delta in Spark derives each version's checksum from the one before, and takes the table's metadata and transaction ids
from it. Where there is none it runs jobs over the log, one to read the table and another to commit: seconds at a cold
start, and a batch that waits. delta-rs writes none, so they are written here, from the log and a checksum shortly
before. Tables of current rows have none after a merge of delta-rs's: Spark does not read them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyarrow.fs import FileSystem, LocalFileSystem

from customer_activity.storage.filesystem import filesystem

Checksum = dict[str, Any]

EMPTY: Checksum = {
    "tableSizeBytes": 0,
    "numFiles": 0,
    "numMetadata": 1,
    "numProtocol": 1,
    "setTransactions": [],
    "domainMetadata": [],
}
KEPT = (*EMPTY, "metadata", "protocol")  # the rest (histograms, the list of files) is optional and would be out of date
NEAR = 16  # versions back; a table with more that have none has none at all, and each look is a request on S3
UNDERSTOOD = {"commitInfo", "metaData", "protocol", "txn", "add", "remove", "cdc"}


def write_checksum(table: str, version: int) -> None:
    """Write a version's checksum, from the newest before it and what was committed since.

    Those between may be missing: a crash came before they were written. Nothing is written where it cannot be told: a
    checksum is an accelerator, never needed, and a wrong one would be worse than none.
    """
    files, folder = filesystem(table)
    log = f"{folder}/_delta_log"
    for known in range(version - 1, max(version - NEAR, -1) - 1, -1):
        before = EMPTY if known < 0 else _read(files, f"{log}/{known:020}.crc")
        if before is not None:
            break
    else:
        return
    try:
        since = [action for at in range(known + 1, version + 1) for action in _actions(files, f"{log}/{at:020}.json")]
    except FileNotFoundError:  # the log does not reach back so far
        return
    if (checksum := following(before, since)) is not None:
        _write(files, f"{log}/{version:020}.crc", checksum)


def following(before: Checksum, actions: Iterable[Mapping[str, Any]]) -> Checksum | None:
    """Return the checksum after some commits' actions; None where they do not tell what it needs."""
    after = {name: before[name] for name in KEPT if name in before}
    for action in actions:
        if not action.keys() <= UNDERSTOOD:
            return None
        if "metaData" in action:
            after["metadata"] = action["metaData"]
        elif "protocol" in action:
            after["protocol"] = action["protocol"]
        elif "txn" in action and "setTransactions" in after:
            others = [txn for txn in after["setTransactions"] if txn["appId"] != action["txn"]["appId"]]
            after["setTransactions"] = [*others, action["txn"]]
        for name, sign in (("add", 1), ("remove", -1)):
            if name in action:
                if (size := action[name].get("size")) is None:  # another writer need not say it of what it removes
                    return None
                after["numFiles"] += sign
                after["tableSizeBytes"] += sign * size
    return after


def _read(files: FileSystem, path: str) -> Checksum | None:
    """Return a checksum; None when there is none, or after a loss of power nothing in its file."""
    try:
        with files.open_input_stream(path) as stream:
            found: Checksum = json.loads(stream.read())
    except (FileNotFoundError, ValueError):
        return None
    return found


def _actions(files: FileSystem, path: str) -> list[dict[str, Any]]:
    with files.open_input_stream(path) as stream:
        return [json.loads(line) for line in stream.read().splitlines()]


def _write(files: FileSystem, path: str, checksum: Checksum) -> None:
    """Write a checksum so that Delta, which may be about to read it, finds all of it or none.

    It is not brought to the disk: after a loss of power it must not speak for an entry that is gone.
    """
    data = json.dumps(checksum).encode()
    if not isinstance(files, LocalFileSystem):  # an object appears when it is closed
        with files.open_output_stream(path) as stream:
            stream.write(data)
        return
    place = Path(path)
    draft = place.with_name(f".{place.name}.draft")
    draft.write_bytes(data)
    draft.replace(place)
