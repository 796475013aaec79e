"""Where a lake is, as a file system that Arrow reads and writes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

from pyarrow import fs

from customer_activity.storage import s3

PRIVATE = 0o700  # a folder's: what is in it needs no rights of its own
REQUESTS_AT_A_TIME = 32
LEAST_BYTES = 1 << 20  # a disk with less is full: a batch writes some files of some kilobytes each


def filesystem(location: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a location and the path within it."""
    if "://" not in location:
        return fs.LocalFileSystem(), location
    if s3.is_on(location):
        return s3.filesystem(), "/".join(s3.place(location)).rstrip("/")
    files, path = fs.FileSystem.from_uri(location)
    return files, path


def require(location: str) -> None:
    """Make sure that what a location is on answers; of a folder there is nothing to ask.

    Raises:
        SettingsError: there is no such bucket, or we may not list it.
        StorageUnavailable: S3 does not answer.
    """
    if s3.is_on(location):
        s3.require(location)


def infos(files: fs.FileSystem, paths: Sequence[str]) -> list[fs.FileInfo]:
    """Return what some files are; where each takes a request, some at once."""
    if isinstance(files, fs.LocalFileSystem):
        return list(files.get_file_info(list(paths)))
    with requests() as pool:
        return list(pool.map(files.get_file_info, paths))


def requests() -> ThreadPoolExecutor:
    """Return what makes some requests at once."""
    return ThreadPoolExecutor(REQUESTS_AT_A_TIME, thread_name_prefix="files")


def read_whole(location: str) -> bytes | None:
    """Return a small file's bytes; None when there is none."""
    files, path = filesystem(location)
    if files.get_file_info(path).type == fs.FileType.NotFound:
        return None
    try:
        with files.open_input_stream(path) as stream:
            return bytes(stream.read())
    except FileNotFoundError:  # removed in between
        return None


def write_whole(location: str, data: bytes, kind: str = "application/octet-stream") -> None:
    """Write a small file so that a reader sees all of it or what was there before, after a power loss, too.

    An object says what kind of content it is, as an internet media type.
    """
    files, path = filesystem(location)
    if not isinstance(files, fs.LocalFileSystem):  # an object appears when it is closed
        with files.open_output_stream(path, metadata={"Content-Type": kind}) as stream:
            stream.write(data)
        return
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_name(f"{place.name}.{uuid4().hex}.draft")  # nobody else's: two may write it at once
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(place)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def settle(*locations: str) -> None:
    """Have files on this disk, and their names, outlast a loss of power; an object does when it is written."""
    for location in locations:
        if "://" in location:
            continue
        for path in (Path(location), Path(location).parent):
            opened = os.open(path, os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)


def keep_private(folder: Path) -> None:
    """Create a folder of ours, or take it over from a former release, so that no other user here reads it."""
    folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
    if folder.stat().st_mode & 0o777 != PRIVATE:
        folder.chmod(PRIVATE)


def is_full(location: str) -> bool:
    """Whether the disk of a folder on this machine has no space left."""
    return has_less(location, LEAST_BYTES)


def has_less(location: str, size: int) -> bool:
    """Whether the disk of a folder on this machine has less space left than so many bytes."""
    if "://" in location or not Path(location).exists():
        return False
    return shutil.disk_usage(location).free < size
