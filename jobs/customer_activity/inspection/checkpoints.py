"""What a streaming query has committed, read from its checkpoint: exact also while the query does not run.

A checkpoint is Spark's own: `offsets/N` says up to where batch N reads, `commits/N` that it is through. An offsets file
is a version line, a metadata line, and one line a source:

    Kafka   {"purchase-events": {"0": 1204, …}}                                   the next offset to read
    Delta   {"reservoirId": …, "reservoirVersion": 12, "index": -1, …}            version 12 is the next to read
            {"reservoirId": …, "reservoirVersion": 12, "index": 0, …}             version 12 is read

The second Delta form follows a commit with change files. Such a commit is admitted to a batch whole or not at all
(delta-io/delta, DeltaSourceCDCSupport.scala), so an index in it means that all of it was read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pyarrow import fs

from customer_activity import catalog
from customer_activity.catalog import Query
from customer_activity.errors import CheckpointMismatch
from customer_activity.storage import filesystem

PREAMBLE_LINES = 2  # the version of the log and the batch's metadata come before the sources
NO_OFFSET = "-"


class Progress(NamedTuple):
    """Up to where a query has read.

    Attributes:
        batch_id: the newest committed batch.
        committed_at: when it was committed.
        topic_offsets: next offset to read, by topic and partition.
        table_versions: newest version that was read, by the id of the Delta table.
    """

    batch_id: int
    committed_at: datetime
    topic_offsets: dict[str, dict[int, int]]
    table_versions: dict[str, int]


def progress(lake: str, query: Query) -> Progress | None:
    """Return the committed progress of a query; None when it never committed a batch.

    Raises:
        CheckpointMismatch: the checkpoint is not as Spark writes it.
    """
    files, root = filesystem(catalog.checkpoint_path(lake, query))
    commits = {int(entry.base_name): entry for entry in _entries(files, f"{root}/commits") if entry.base_name.isdigit()}
    if not commits:
        return None
    batch_id = max(commits)
    path = f"{root}/offsets/{batch_id}"
    try:
        return Progress(batch_id, commits[batch_id].mtime.astimezone(UTC), *_positions(_sources(files, path)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointMismatch(
            f"checkpoint of {query}: {path} cannot be read ({type(error).__name__})",
            remedy="the query cannot go on from it either; restore the checkpoint or rebuild what it writes",
        ) from error


def batch_records(lake: str, query: Query, batch_id: int, begins: Callable[[str], dict[int, int]]) -> int | None:
    """How many Kafka records a batch has, from where the one before it ended; None when that cannot be known.

    Args:
        lake: where the checkpoints are.
        query: whose batch.
        batch_id: of the batch.
        begins: tells the first offsets of a topic, by partition; asked for the first batch only.
    """
    files, root = filesystem(catalog.checkpoint_path(lake, query))
    try:
        ends, _ = _positions(_sources(files, f"{root}/offsets/{batch_id}"))
        if batch_id == 0:
            starts = {topic: begins(topic) for topic in ends}
        else:
            starts, _ = _positions(_sources(files, f"{root}/offsets/{batch_id - 1}"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return sum(
        end - starts.get(topic, {}).get(partition, 0)
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    )


def _sources(files: fs.FileSystem, path: str) -> list[dict[str, Any]]:
    with files.open_input_stream(path) as stream:
        lines = stream.read().decode("utf-8").splitlines()
    return [json.loads(line) for line in lines[PREAMBLE_LINES:] if line.strip() not in ("", NO_OFFSET)]


def _entries(files: fs.FileSystem, folder: str) -> list[fs.FileInfo]:
    found: list[fs.FileInfo] = files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return [entry for entry in found if entry.is_file]


def _positions(sources: list[dict[str, Any]]) -> tuple[dict[str, dict[int, int]], dict[str, int]]:
    """Tell Kafka's sources from Delta's: topic offsets, and table versions."""
    topic_offsets: dict[str, dict[int, int]] = {}
    table_versions: dict[str, int] = {}
    for source in sources:
        if "reservoirId" in source:
            is_read = source["index"] >= 0 and not source.get("isStartingVersion", False)
            table_versions[source["reservoirId"]] = source["reservoirVersion"] - (0 if is_read else 1)
            continue
        for topic, offsets in source.items():
            topic_offsets[topic] = {int(partition): offset for partition, offset in offsets.items()}
    return topic_offsets, table_versions
