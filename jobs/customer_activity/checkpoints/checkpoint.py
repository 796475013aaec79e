"""A stream's checkpoint: what it says is planned and committed, also while nothing runs, and how to write it again.

A checkpoint is Spark's own: `metadata` has its id, which is the generation that every write carries; `offsets/N` says
up to where batch N reads, `commits/N` that it is through. An offsets file is a version line, a metadata line, and one
line a source ("-" for one that has no offset yet):

    Kafka   {"purchase-events": {"0": 1204, …}}                                   the next offset to read
    Delta   {"reservoirId": …, "reservoirVersion": 12, "index": -1, …}            version 12 is the next to read
            {"reservoirId": …, "reservoirVersion": 12, "index": 0, …}             version 12 is read

`sources/0/0` says where the first batch of a Kafka source begins, which is noted once: a zero byte, a version line, and
such an offset.

The second Delta form follows a commit with change files. Such a commit is admitted to a batch whole or not at all
(delta-io/delta, DeltaSourceCDCSupport.scala), so an index in it means that all of it was read.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from pyarrow import fs

from customer_activity import catalog
from customer_activity.catalog import Table
from customer_activity.errors import CheckpointMismatch
from customer_activity.storage.filesystem import filesystem

VERSION = "v1"
COMMIT = f'{VERSION}\n{{"nextBatchWatermarkMs":0}}'
NO_OFFSET = "-"
TIME = "%Y%m%dT%H%M%SZ"
FIRST = "sources/0/0"
BEFORE_FIRST = f"\0{VERSION}\n"
SET_ASIDE = re.compile(r"\.until-(\d{8}T\d{6}Z)$")
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError)

# What Spark notes of one source's offset, to the letter: Spark compares offsets as texts.
Source = str


class Progress(NamedTuple):
    """Up to where a stream has read, with its newest batch that is through."""

    batch_id: int
    noted_at: datetime  # when Spark noted its end, or its begin where it has not noted the end yet
    topic_offsets: dict[str, dict[int, int]]  # next offset to read, by topic and partition
    table_versions: dict[str, int]  # newest version that was read, by the id of the Delta table


class OffsetRange(NamedTuple):
    """Where each source of a batch begins and ends (None: no offset yet); a first batch has no begin at all."""

    begin: Sequence[Source | None] | None
    end: Sequence[Source | None]

    def ranges(self, begins: Callable[[str], dict[int, int]]) -> dict[str, dict[int, tuple[int, int]]]:
        """Return its Kafka offsets, begin and end, by topic and partition; a first batch begins where `begins` says."""
        ends, _ = _positions(self.end)
        starts = {topic: begins(topic) for topic in ends} if self.begin is None else _positions(self.begin)[0]
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


class State(NamedTuple):
    """Which batches a checkpoint knows; None when there is none."""

    generation: str  # the checkpoint's id
    planned: int | None  # the newest batch whose offsets are noted
    committed: int | None  # the newest batch that is through


def progress(lake: str, query: str, done: int | None = None) -> Progress | None:
    """Return the committed progress of a query; None when it never committed a batch.

    Args:
        lake: where it is.
        query: whose.
        done: the batch that its running driver has finished: it counts before Spark notes its end.

    Raises:
        CheckpointMismatch: the checkpoint is not as Spark writes it.
    """
    files, root = filesystem(catalog.checkpoint_path(lake, query))
    through = _numbered(files, f"{root}/commits")
    if done is not None and done not in through:
        through |= {number: info for number, info in _numbered(files, f"{root}/offsets").items() if number == done}
    if not through:
        return None
    batch_id = max(through)
    path = f"{root}/offsets/{batch_id}"
    try:
        return Progress(batch_id, through[batch_id].mtime.astimezone(UTC), *_positions(_sources(files, path)))
    except UNREADABLE as error:
        raise _torn(query, path, error) from error


def state(lake: str, query: str) -> State | None:
    """Return which batches a query's checkpoint knows; None when there is no checkpoint.

    Raises:
        CheckpointMismatch: a file that the query would start from is not as Spark writes it.
    """
    files, root = filesystem(catalog.checkpoint_path(lake, query))
    planned, committed = (max(_numbered(files, f"{root}/{log}"), default=None) for log in ("offsets", "commits"))
    if files.get_file_info(f"{root}/metadata").type == fs.FileType.NotFound and planned is None and committed is None:
        return None
    path = f"{root}/metadata"
    try:
        generation = str(json.loads(_text(files, path))["id"])
        if planned is not None:
            path = f"{root}/offsets/{planned}"
            _positions(_sources(files, path))
        if committed is not None:
            path = f"{root}/commits/{committed}"
            json.loads(_text(files, path).splitlines()[1])
    except UNREADABLE as error:
        raise _torn(query, path, error) from error
    return State(generation, planned, committed)


def cut(lake: str, query: str, batch_id: int) -> OffsetRange | None:
    """Return what a batch reads; None when the checkpoint does not tell."""
    files, root = filesystem(catalog.checkpoint_path(lake, query))
    try:
        end = _sources(files, f"{root}/offsets/{batch_id}")
        return OffsetRange(_sources(files, f"{root}/offsets/{batch_id - 1}") if batch_id else None, end)
    except UNREADABLE:
        return None


def generation(lake: str, query: str) -> str | None:
    """Return a checkpoint's id; None where it has none that can be read."""
    files, root = filesystem(catalog.checkpoint_path(lake, query))
    try:
        return str(json.loads(_text(files, f"{root}/metadata"))["id"])
    except UNREADABLE:
        return None


def first(lake: str, query: str) -> Source | None:
    """Return where the first batch of a query that reads Kafka begins; None where that is not noted.

    Raises:
        CheckpointMismatch: the note is not as Spark writes it.
    """
    files, root = filesystem(catalog.checkpoint_path(lake, query))
    path = f"{root}/{FIRST}"
    try:
        text = _text(files, path).removeprefix(BEFORE_FIRST)
        _positions([text])
    except FileNotFoundError:
        return None
    except UNREADABLE as error:
        raise _torn(query, path, error) from error
    return text


def write(
    lake: str,
    query: str,
    generation: str,
    batch_id: int,
    batch: OffsetRange,
    *,
    is_committed: bool = False,
    begin: Source | None = None,
) -> None:
    """Write the checkpoint of a query that has planned a batch and not noted its end: Spark begins with that batch.

    There must be no checkpoint. With `is_committed` the batch's end is noted, and Spark begins with the next one. Where
    the batch is the first, `begin` is where it begins, as `first` returns it: without one Spark would begin again with
    what Kafka has by now.
    """
    files, root = filesystem(catalog.checkpoint_path(lake, query))
    contents = {} if begin is None else {FIRST: f"{BEFORE_FIRST}{begin}"}
    contents |= {"metadata": json.dumps({"id": generation}), f"offsets/{batch_id}": _offsets(batch.end)}
    if batch.begin is not None:
        contents[f"offsets/{batch_id - 1}"] = _offsets(batch.begin)
        contents[f"commits/{batch_id - 1}"] = COMMIT
    if is_committed:
        contents[f"commits/{batch_id}"] = COMMIT
    for folder in {"offsets", "commits", *(name.rpartition("/")[0] for name in contents)}:
        files.create_dir(f"{root}/{folder}", recursive=True)
    for name, text in contents.items():
        with files.open_output_stream(f"{root}/{name}") as stream:
            stream.write(text.encode())


def topic_offsets(sources: Sequence[Source | None]) -> dict[str, dict[int, int]]:
    """Return the next offset to read, by topic and partition."""
    return _positions(sources)[0]


def table_versions(sources: Sequence[Source | None]) -> dict[str, int]:
    """Return the newest version that was read, by the id of the Delta table."""
    return _positions(sources)[1]


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


def set_aside(lake: str, query: str, now: datetime) -> str | None:
    """Move a query's checkpoint away; return where it is now, None when there was none."""
    suffix = f"until-{now:{TIME}}"
    path = catalog.checkpoint_path(lake, query)
    files, root = filesystem(path)
    if files.get_file_info(root).type == fs.FileType.NotFound:
        return None
    fs.copy_files(root, f"{root}.{suffix}", source_filesystem=files, destination_filesystem=files)
    files.delete_dir(root)
    return f"{path}.{suffix}"


def forget_set_aside(lake: str, before: datetime) -> list[str]:
    """Remove checkpoints that were set aside before a time; return their names."""
    files, root = filesystem(f"{lake}/_checkpoints")
    found = files.get_file_info(fs.FileSelector(root, allow_not_found=True))
    old = [entry.base_name for entry in found if (when := set_aside_at(entry.base_name)) and when < before]
    for name in old:
        files.delete_dir(f"{root}/{name}")
    return sorted(old)


def set_aside_at(name: str) -> datetime | None:
    """Return when a checkpoint was set aside, by its name; None for one that is in use."""
    if (stamp := SET_ASIDE.search(name)) is None:
        return None
    return datetime.strptime(stamp.group(1), TIME).replace(tzinfo=UTC)


def _offsets(sources: Sequence[Source | None]) -> str:
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": int(time.time() * 1000), "conf": {}}
    return "\n".join([VERSION, json.dumps(metadata), *(source or NO_OFFSET for source in sources)])


def _torn(query: str, path: str, error: Exception) -> CheckpointMismatch:
    return CheckpointMismatch(
        f"checkpoint of {query}: {path} cannot be read ({type(error).__name__})",
        remedy=f"`activity recover {query} --reason …` writes the checkpoint again from what its tables say",
    )


def _text(files: fs.FileSystem, path: str) -> str:
    with files.open_input_stream(path) as stream:
        return str(stream.read().decode("utf-8"))


def _sources(files: fs.FileSystem, path: str) -> list[Source | None]:
    version, _metadata, *lines = _text(files, path).splitlines()
    if version != VERSION or not lines:
        raise ValueError(f"{path}: not a log of offsets")
    return [None if line.strip() in ("", NO_OFFSET) else line for line in lines]


def _numbered(files: fs.FileSystem, folder: str) -> dict[int, fs.FileInfo]:
    found = files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return {int(entry.base_name): entry for entry in found if entry.is_file and entry.base_name.isdigit()}


def _last_version(source: Source) -> int:
    """Return the last version of which an offset has anything; -1 when it has none."""
    offset = json.loads(source)
    if offset["index"] >= 0:
        return int(offset["reservoirVersion"])
    # The initial snapshot is one version; before its first file nothing is read.
    return -1 if offset.get("isStartingVersion") else int(offset["reservoirVersion"]) - 1


def _positions(sources: Sequence[Source | None]) -> tuple[dict[str, dict[int, int]], dict[str, int]]:
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
