"""A stream's checkpoint: what it says is planned and committed, also while nothing runs, and how to write it again.

A checkpoint is Spark's own: `metadata` has its id, which is the generation that every write carries; `offsets/N` says
up to where batch N reads, `commits/N` that it is through. An offsets file is a version line, a metadata line, and one
line a source (`offsets.py`; "-" for one that has no offset yet).

`sources/0/0` says where the first batch of a Kafka source begins, which is noted once: a zero byte, a version line, and
Kafka's offset.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from pyarrow import fs

from customer_activity import catalog, unforeseen
from customer_activity.checkpoints.offsets import OffsetRange, Source, positions
from customer_activity.errors import CheckpointMismatch, StorageUnavailable
from customer_activity.storage.filesystem import filesystem

VERSION = "v1"
COMMIT = f'{VERSION}\n{{"nextBatchWatermarkMs":0}}'
NO_OFFSET = "-"
TIME = "%Y%m%dT%H%M%SZ"
FIRST = "sources/0/0"
BEFORE_FIRST = f"\0{VERSION}\n"
SET_ASIDE = re.compile(r"\.until-(\d{8}T\d{6}Z)$")
GONE = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)  # other OSErrors may pass
UNREADABLE = (*GONE, ValueError, KeyError, TypeError, AttributeError, IndexError)


class Progress(NamedTuple):
    """Up to where a stream has read, with its newest batch that is through."""

    batch_id: int
    noted_at: datetime  # when Spark noted its end, or its begin where it has not noted the end yet
    topic_offsets: dict[str, dict[int, int]]  # next offset to read, by topic and partition
    table_versions: dict[str, int]  # newest version that was read, by the id of the Delta table


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
        StorageUnavailable: the lake's storage does not answer.
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
        return Progress(batch_id, through[batch_id].mtime.astimezone(UTC), *positions(_sources(files, path)))
    except UNREADABLE as error:
        raise _torn(query, path, error) from error


def state(lake: str, query: str) -> State | None:
    """Return which batches a query's checkpoint knows; None when there is no checkpoint.

    Raises:
        CheckpointMismatch: a file that the query would start from is not as Spark writes it.
        StorageUnavailable: the lake's storage does not answer.
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
            positions(_sources(files, path))
        if committed is not None:
            path = f"{root}/commits/{committed}"
            json.loads(_text(files, path).splitlines()[1])
    except UNREADABLE as error:
        raise _torn(query, path, error) from error
    return State(generation, planned, committed)


def cut(lake: str, query: str, batch_id: int) -> OffsetRange | None:
    """Return what a batch reads; None when the checkpoint does not tell.

    Raises:
        StorageUnavailable: the lake's storage does not answer.
    """
    files, root = filesystem(catalog.checkpoint_path(lake, query))
    try:
        end = _sources(files, f"{root}/offsets/{batch_id}")
        return OffsetRange(_sources(files, f"{root}/offsets/{batch_id - 1}") if batch_id else None, end)
    except UNREADABLE:
        return None


def generation(lake: str, query: str) -> str | None:
    """Return a checkpoint's id; None where it has none that can be read.

    Raises:
        StorageUnavailable: the lake's storage does not answer.
    """
    files, root = filesystem(catalog.checkpoint_path(lake, query))
    try:
        return str(json.loads(_text(files, f"{root}/metadata"))["id"])
    except UNREADABLE:
        return None


def first(lake: str, query: str) -> Source | None:
    """Return where the first batch of a query that reads Kafka begins; None where that is not noted.

    Raises:
        CheckpointMismatch: the note is not as Spark writes it.
        StorageUnavailable: the lake's storage does not answer.
    """
    files, root = filesystem(catalog.checkpoint_path(lake, query))
    path = f"{root}/{FIRST}"
    try:
        text = _text(files, path).removeprefix(BEFORE_FIRST)
        positions([text])
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
    if batch.begin is not None:
        contents[f"offsets/{batch_id - 1}"] = _offsets(batch.begin)
        contents[f"commits/{batch_id - 1}"] = COMMIT
    contents[f"offsets/{batch_id}"] = _offsets(batch.end)
    if is_committed:
        contents[f"commits/{batch_id}"] = COMMIT
    contents["metadata"] = json.dumps({"id": generation})  # last: without it a checkpoint is torn, and none is begun
    for folder in {"offsets", "commits", *(name.rpartition("/")[0] for name in contents)}:
        files.create_dir(f"{root}/{folder}", recursive=True)
    for name, text in contents.items():
        with files.open_output_stream(f"{root}/{name}") as stream:
            stream.write(text.encode())


def set_aside(lake: str, query: str, now: datetime) -> str | None:
    """Move a query's checkpoint away; return where it is now, None when there was none."""
    files, root = filesystem(catalog.checkpoint_path(lake, query))
    if files.get_file_info(root).type == fs.FileType.NotFound:
        return None
    _, aside = filesystem(path := place_aside(lake, query, now))
    fs.copy_files(root, aside, source_filesystem=files, destination_filesystem=files)
    files.delete_dir(root)
    return path


def place_aside(lake: str, query: str, now: datetime) -> str:
    """Return where a query's checkpoint is once it is set aside at a time."""
    return f"{catalog.checkpoint_path(lake, query)}.until-{now:{TIME}}"


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
    """Read a file.

    Raises:
        OSError: one of GONE.
        StorageUnavailable: the lake's storage does not answer; what the checkpoint says is unknown, not damaged.
    """
    try:
        with files.open_input_stream(path) as stream:
            return str(stream.read().decode("utf-8"))
    except GONE:
        raise
    except OSError as error:
        raise StorageUnavailable(
            f"checkpoint: {path} cannot be read now ({unforeseen.brief(error)})",
            remedy="start again when the lake's storage answers; nothing was changed",
        ) from error


def _sources(files: fs.FileSystem, path: str) -> list[Source | None]:
    version, _metadata, *lines = _text(files, path).splitlines()
    if version != VERSION or not lines:
        raise ValueError(f"{path}: not a log of offsets")
    return [None if line.strip() in ("", NO_OFFSET) else line for line in lines]


def _numbered(files: fs.FileSystem, folder: str) -> dict[int, fs.FileInfo]:
    found = files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return {int(entry.base_name): entry for entry in found if entry.is_file and entry.base_name.isdigit()}
