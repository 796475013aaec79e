"""Where a lake is, as a file system that Arrow reads and writes."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyarrow import fs

from customer_activity import s3

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


def read_whole(location: str) -> bytes | None:
    """Return a small file's bytes; None when there is none."""
    files, path = filesystem(location)
    if files.get_file_info(path).type == fs.FileType.NotFound:
        return None
    with files.open_input_stream(path) as stream:
        return bytes(stream.read())


def write_whole(location: str, data: bytes) -> None:
    """Write a small file so that a reader sees all of it or what was there before."""
    files, path = filesystem(location)
    files.create_dir(path.rpartition("/")[0], recursive=True)
    # An object appears when it is closed; a file is moved into its place.
    draft = f"{path}.draft" if isinstance(files, fs.LocalFileSystem) else path
    with files.open_output_stream(draft) as stream:
        stream.write(data)
    if draft != path:
        files.move(draft, path)


def is_full(location: str) -> bool:
    """Whether the disk of a folder on this machine has no space left."""
    if "://" in location or not Path(location).exists():
        return False
    return shutil.disk_usage(location).free < LEAST_BYTES
