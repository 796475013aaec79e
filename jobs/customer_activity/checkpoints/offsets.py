"""Offsets as Spark notes them, to the letter: up to where a batch reads each of its sources.

    Kafka   {"purchase-events": {"0": 1204, …}}                                   the next offset to read
    Delta   {"reservoirId": …, "reservoirVersion": 12, "index": -1, …}            version 12 is the next to read
            {"reservoirId": …, "reservoirVersion": 12, "index": 0, …}             version 12 is read

The second Delta form follows a commit with change files. Such a commit is admitted to a batch whole or not at all
(delta-io/delta, DeltaSourceCDCSupport.scala), so an index in it means that all of it was read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from customer_activity.catalog import Table

Source = str  # one source's offset: Spark compares them as texts


class OffsetRange(NamedTuple):
    """Where each source of a batch begins and ends (None: no offset yet); a first batch has no begin at all."""

    begin: Sequence[Source | None] | None
    end: Sequence[Source | None]

    def ranges(self, begins: Callable[[str], dict[int, int]]) -> dict[str, dict[int, tuple[int, int]]]:
        """Return its Kafka offsets, begin and end, by topic and partition; a first batch begins where `begins` says."""
        ends, _ = positions(self.end)
        starts = {topic: begins(topic) for topic in ends} if self.begin is None else positions(self.begin)[0]
        return {
            topic: {partition: (starts.get(topic, {}).get(partition, 0), end) for partition, end in partitions.items()}
            for topic, partitions in ends.items()
        }

    def versions(self, begins: Mapping[Table, int | None]) -> dict[Table, tuple[int, int]]:
        """Return the version that was read last and the newest of the batch, by table.

        A batch has whole versions. Where Spark's limits end one inside a version, it has that version to its end, and
        the next one begins behind it: both are told here, and so they agree.

        `begins` has the first version that a first batch reads of each table, in the order of the stream's sources, or
        None where it begins with the initial snapshot: that is all versions up to the first that it reads.
        """
        found: dict[Table, tuple[int, int]] = {}
        starts = self.begin or [None] * len(self.end)
        for (table, first), start, end in zip(begins.items(), starts, self.end, strict=True):
            after = (first or 0) - 1 if start is None else _last_version(start)
            upto = after if end is None else _last_version(end)
            found[table] = after, max(after, upto)
        return found


def topic_offsets(sources: Sequence[Source | None]) -> dict[str, dict[int, int]]:
    """Return the next offset to read, by topic and partition."""
    return positions(sources)[0]


def table_versions(sources: Sequence[Source | None]) -> dict[str, int]:
    """Return the newest version that was read, by the id of the Delta table."""
    return positions(sources)[1]


def after(table_id: str, version: int) -> Source:
    """Return the offset of a Delta table that is read up to a version."""
    offset = {
        "sourceVersion": 1,
        "reservoirId": table_id,
        "reservoirVersion": version + 1,
        "index": -1,
        "isStartingVersion": False,
    }
    return json.dumps(offset, separators=(",", ":"))  # as Spark writes it


def raised(sources: Sequence[Source | None], least: Mapping[str, Mapping[int, int]]) -> list[Source | None]:
    """Move Kafka's positions that are below `least` up to it; a partition that has none yet gets it."""
    moved: list[Source | None] = []
    for source in sources:
        offsets = json.loads(source or "{}")
        if not any(topic in offsets for topic in least):
            moved.append(source)
            continue
        for topic, partitions in offsets.items():
            for partition, offset in least.get(topic, {}).items():
                partitions[str(partition)] = max(offset, partitions.get(str(partition), offset))
        moved.append(json.dumps(offsets, separators=(",", ":")))  # as Spark writes it
    return moved


def positions(sources: Sequence[Source | None]) -> tuple[dict[str, dict[int, int]], dict[str, int]]:
    """Tell Kafka's sources from Delta's: topic offsets, and table versions."""
    topic_offsets: dict[str, dict[int, int]] = {}
    table_versions: dict[str, int] = {}
    for source in map(json.loads, filter(None, sources)):
        if "reservoirId" in source:
            is_read = source["index"] >= 0 and not source.get("isStartingVersion", False)
            table_versions[source["reservoirId"]] = source["reservoirVersion"] - (0 if is_read else 1)
            continue
        for topic, offsets in source.items():
            topic_offsets[topic] = {int(partition): offset for partition, offset in offsets.items()}
    return topic_offsets, table_versions


def _last_version(source: Source) -> int:
    """Return the last version of which an offset has anything; -1 when it has none."""
    offset = json.loads(source)
    if offset["index"] >= 0:
        return int(offset["reservoirVersion"])
    # The initial snapshot is one version; before its first file nothing is read.
    return -1 if offset.get("isStartingVersion") else int(offset["reservoirVersion"]) - 1
