"""Where a lake is, as a file system that Arrow reads and writes."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyarrow import fs

LEAST_BYTES = 1 << 20  # a disk with less is full: a batch writes some files of some kilobytes each


def filesystem(location: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a location and the path within it; `s3a` is Hadoop's name for `s3`."""
    if "://" not in location:
        return fs.LocalFileSystem(), location
    files, path = fs.FileSystem.from_uri(location.replace("s3a://", "s3://", 1))
    return files, path


def is_full(location: str) -> bool:
    """Whether the disk of a folder on this machine has no space left."""
    if "://" in location or not Path(location).exists():
        return False
    return shutil.disk_usage(location).free < LEAST_BYTES
