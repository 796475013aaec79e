"""Checksums of Delta versions that delta-rs commits. Format: Delta's protocol, "Version Checksum File".

Delta in Spark derives each version's checksum from the one before, and takes the table's metadata and transaction ids
from it. Where there is none it runs jobs over the log, one to read the table and another to commit: seconds at a cold
start, and a batch that waits. delta-rs writes none, so they are written here, from the log and the one before.
"""

from __future__ import annotations

import json
from typing import Any

from pyarrow.fs import FileSystem, FileType

from customer_activity.storage.filesystem import filesystem

EMPTY: dict[str, Any] = {
    "tableSizeBytes": 0,
    "numFiles": 0,
    "numMetadata": 1,
    "numProtocol": 1,
    "setTransactions": [],
    "domainMetadata": [],
}
KEPT = (*EMPTY, "metadata", "protocol")  # the rest (histograms, the list of files) is optional and would be out of date


def write_checksum(table: str, version: int) -> None:
    """Write the checksum of a version that creates the table, or adds and removes files and notes transaction ids.

    Nothing is written where the version before has none: a checksum is an accelerator, never needed.

    Args:
        table: path or URL of the table.
        version: a version that is committed.
    """
    files, folder = filesystem(table)
    checksum = EMPTY if version == 0 else _read(files, f"{folder}/_delta_log/{version - 1:020}.crc")
    if checksum is None:
        return
    checksum = {name: checksum[name] for name in KEPT if name in checksum}
    with files.open_input_stream(f"{folder}/_delta_log/{version:020}.json") as stream:
        actions = [json.loads(line) for line in stream.read().splitlines()]
    for action in actions:
        if "metaData" in action:
            checksum["metadata"] = action["metaData"]
        elif "protocol" in action:
            checksum["protocol"] = action["protocol"]
        elif "txn" in action and "setTransactions" in checksum:
            others = [txn for txn in checksum["setTransactions"] if txn["appId"] != action["txn"]["appId"]]
            checksum["setTransactions"] = [*others, action["txn"]]
        for name, sign in (("add", 1), ("remove", -1)):
            if name in action:
                checksum["numFiles"] += sign
                checksum["tableSizeBytes"] += sign * action[name]["size"]
    with files.open_output_stream(f"{folder}/_delta_log/{version:020}.crc") as stream:
        stream.write(json.dumps(checksum).encode())


def _read(files: FileSystem, path: str) -> dict[str, Any] | None:
    if files.get_file_info(path).type == FileType.NotFound:
        return None
    with files.open_input_stream(path) as stream:
        found: dict[str, Any] = json.loads(stream.read())
    return found
